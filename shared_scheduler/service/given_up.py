# SPDX-License-Identifier: Apache-2.0
"""Servers that were given up while their place was being taken: what they hold is let go.

A scheduler that dies between Placement's answer and its own leaves an allocation of which nobody knows.
Nova-conductor waits for its RPC time, gives the server up and buries it in cell 0, in state ERROR. From
there no server ever comes to a host; stock Nova lets it hold its place until its user deletes it.  The
same is left by a write that was answered after the conductor's time.

So servers that were buried lately are looked up in Placement, each twice: when it is seen first, and once
more for a write that was still under way then.  A few a look, however many fail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from shared_scheduler.core.events import NodeDoubted
from shared_scheduler.placement.client import ConsumerWrite, PlacementClient
from shared_scheduler.placement.policy import Standing
from shared_scheduler.placement.reply import Meaning
from shared_scheduler.service.databases import ApiDatabase

LOG = logging.getLogger(__name__)

#: Older ones were seen by whoever was there, or wait for their users as they do in stock Nova.
LOOK_BACK = timedelta(hours=1)
LISTED_MAX = 200
#: How often servers are looked for.
EVERY_S = 15.0
#: Between the two checks of a server; a write takes less (its request's time).
AGAIN_S = 120.0
CHECKS = 2
CHECKS_A_LOOK = 10


@dataclass(slots=True)
class _Checked:
    times: int = 0
    last_s: float = 0.0


class GivenUp:
    """``look`` is called now and then, by one thread."""

    def __init__(
        self,
        api: ApiDatabase,
        client: PlacementClient,
        submit: Callable[[NodeDoubted], None],
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._client = client
        self._submit = submit
        self._clock = clock
        self._checked: dict[str, _Checked] = {}

    def look(self) -> None:
        """Check the next few.

        :raises DatabaseError: the API database cannot be read
        :raises PlacementError: Placement does not answer
        """
        listed = self._api.buried(LOOK_BACK, LISTED_MAX)
        self._checked = {each: self._checked.get(each, _Checked()) for each in listed}
        due = [server for server, checked in self._checked.items() if self._is_due(checked)]
        for server in due[:CHECKS_A_LOOK]:
            self._check(server)
            self._checked[server].times += 1
            self._checked[server].last_s = self._clock()

    def _is_due(self, checked: _Checked) -> bool:
        waited = checked.times == 0 or self._clock() - checked.last_s >= AGAIN_S
        return checked.times < CHECKS and waited

    def _check(self, server: str) -> None:
        standing = self._client.consumer(server)
        if standing.allocations and self._let_go(server, standing):
            LOG.info("Server %s was given up while its place was taken: %s is free again", server,
                     dict(standing.allocations))  # fmt: skip
            for root in sorted(set(map(self._root, standing.allocations))):
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

    def _root(self, provider: str) -> str:
        """The compute node's own provider."""
        tree = self._client.providers(in_tree=provider)
        return tree[0].root if tree else provider
