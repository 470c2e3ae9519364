# SPDX-License-Identifier: Apache-2.0
"""Servers that were given up while their place was being taken: what they hold is let go.

A scheduler that dies between Placement's answer and its own leaves an allocation of which nobody knows.
Nova-conductor waits for its RPC time and gives up: it buries a new server in cell 0, in state ERROR, and
leaves a server that was to be unshelved shelved.  From cell 0 no server ever comes to a host, and a
shelved one that holds a place cannot be unshelved any more; stock Nova lets them hold it.  The same is
left by a write that was answered after the conductor's time.

So servers that were buried, and shelved ones that changed lately and of which nothing is under way, are
looked up in Placement, each twice: when it is seen first, and once more for a write that was still under
way then.  A shelved one is looked at again after Placement has told what it holds: whoever began to
unshelve it before that keeps it, and what changes after that has another generation, with which what was
read cannot be deleted.  A few a look, however many fail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from shared_scheduler.core.events import NodeDoubted
from shared_scheduler.placement.client import ConsumerWrite, PlacementClient
from shared_scheduler.placement.policy import Standing
from shared_scheduler.placement.reply import Meaning
from shared_scheduler.service.databases import ApiDatabase, CellDatabase, DatabaseError

LOG = logging.getLogger(__name__)

#: Older ones were seen by whoever was there, or wait for their users as they do in stock Nova.
LOOK_BACK = timedelta(hours=1)
#: Of those that were buried, and of each cell.
LISTED_MAX = 200
#: How often servers are looked for.
EVERY_S = 15.0
#: Between the two checks of a server; a write takes less (its request's time).
AGAIN_S = 120.0
CHECKS = 2
CHECKS_A_LOOK = 10


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A server that was given up; a shelved one each time anew."""

    server: str
    changed_at: datetime | None = None
    cell: CellDatabase | None = field(default=None, compare=False)  # None: it is buried

    def is_idle(self) -> bool:
        """Whether still nobody does anything with it."""
        if self.cell is None:
            return True
        return (self.server, self.changed_at) in self.cell.offloaded(LOOK_BACK, 1, self.server)


@dataclass(slots=True)
class _Checked:
    times: int = 0
    last_s: float = 0.0


class GivenUp:
    """``look`` is called now and then, by one thread."""

    def __init__(
        self,
        api: ApiDatabase,
        cells: Callable[[], Iterable[CellDatabase]],
        client: PlacementClient,
        submit: Callable[[NodeDoubted], None],
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._cells = cells
        self._client = client
        self._submit = submit
        self._clock = clock
        self._checked: dict[_Suspect, _Checked] = {}
        self._outage: DatabaseError | None = None

    def look(self) -> None:
        """Check the next few.

        :raises DatabaseError: a database cannot be read; what the others tell has been checked
        :raises PlacementError: Placement does not answer
        """
        self._outage = None
        self._checked = {each: self._checked.get(each, _Checked()) for each in self._suspects()}
        due = [suspect for suspect, checked in self._checked.items() if self._is_due(checked)]
        for suspect in due[:CHECKS_A_LOOK]:
            self._check(suspect)
            self._checked[suspect].times += 1
            self._checked[suspect].last_s = self._clock()
        if self._outage is not None:
            raise self._outage

    def _suspects(self) -> Iterator[_Suspect]:
        yield from map(_Suspect, self._api.buried(LOOK_BACK, LISTED_MAX))
        for cell in self._cells():
            try:
                found = cell.offloaded(LOOK_BACK, LISTED_MAX)
            except DatabaseError as error:
                self._outage = error
                continue
            yield from (_Suspect(server, changed_at, cell) for server, changed_at in found)

    def _is_due(self, checked: _Checked) -> bool:
        waited = checked.times == 0 or self._clock() - checked.last_s >= AGAIN_S
        return checked.times < CHECKS and waited

    def _check(self, suspect: _Suspect) -> None:
        server = suspect.server
        standing = self._client.consumer(server)
        if standing.allocations and suspect.is_idle() and self._let_go(server, standing):
            LOG.info("Server %s was given up while its place was taken: %s is free again", server,
                     dict(standing.allocations))  # fmt: skip
            for root in sorted(set(map(self._client.root, standing.allocations))):
                self._submit(NodeDoubted(root, "a server that was given up had a place there"))

    def _let_go(self, server: str, standing: Standing) -> bool:
        """False if somebody else changed it meanwhile: then it is theirs."""
        write = ConsumerWrite(
            server, {}, standing.generation, standing.project_id, standing.user_id
        )
        reply = self._client.write(write)
        if reply.meaning is not Meaning.DONE:
            LOG.warning("Server %s was given up, but keeps %s: %s", server,
                        dict(standing.allocations), reply.describe())  # fmt: skip
        return reply.meaning is Meaning.DONE
