# SPDX-License-Identifier: Apache-2.0
"""What Nova does with the server, and what its databases show."""

from __future__ import annotations

from random import Random

from shared_scheduler.placement.reconciler import ServerActivity, ServerLocation
from shared_scheduler.sim.agenda import Agenda
from tests.unit.placement.one_server.plan import ELSEWHERE, SERVER, SOURCE, Kind
from tests.unit.placement.one_server.story import Story

IN_NO_CELL = ServerLocation(ServerActivity.NO_OWNER)
#: or in cell 0
DELETED = ServerLocation(ServerActivity.NO_OWNER, deleted=True)
UNDER_WAY = ServerLocation(ServerActivity.UNDER_WAY)


class Nova:
    """``found``: where Nova's databases have the server."""

    def __init__(self, kind: Kind, rng: Random, beside: Agenda, story: Story) -> None:
        self._kind, self._rng, self._beside, self._story = kind, rng, beside, story
        self.found = IN_NO_CELL if kind is Kind.BUILD else UNDER_WAY

    def locate(self, consumer: str) -> ServerLocation:
        """As ``Locate``."""
        return self.found if consumer == SERVER else ServerLocation(ServerActivity.AT_REST, ELSEWHERE)

    def is_at_rest_on(self, node: str) -> bool:
        return self.found.activity is ServerActivity.AT_REST and self.found.node == node

    def begins(self) -> None:
        """The API begins an operation."""
        if self._kind is not Kind.BUILD:
            self._is(UNDER_WAY)

    def fails(self) -> None:
        """No host was found: a new server goes to cell 0, another one stays."""
        is_new = self._kind is Kind.BUILD
        self._is(DELETED if is_new else ServerLocation(ServerActivity.AT_REST, SOURCE))

    def goes_on(self, node: str, now: float) -> None:
        """The conductor has heard an answer: it notes the cell of a new server, whose build or move then ends."""
        mapped_s = now + self._rng.choice((0.0, 0.05, 3.0, 9.0))
        self._beside.at(mapped_s, self._is_mapped)
        self._beside.at(mapped_s + self._rng.choice((0.1, 3.0, 20.0)), self._ends, node)

    def _is_mapped(self) -> None:
        if self.found is not DELETED:
            self._is(UNDER_WAY)

    def _ends(self, node: str) -> None:
        if self.found is UNDER_WAY:
            self._is(ServerLocation(ServerActivity.AT_REST, node))

    def deletes(self) -> None:
        """The user deletes the server; the databases show it now or soon."""
        self._beside.after(self._rng.choice((0.0, 0.3)), self._is, DELETED)

    def _is(self, found: ServerLocation) -> None:
        self.found = found
        self._story.add(self._beside.now, "    Nova:", found.activity, found.node or "")
