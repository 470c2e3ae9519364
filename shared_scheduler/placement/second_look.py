# SPDX-License-Identifier: Apache-2.0
"""What stands there after all, where a write was given up: is it still ours to take back?

A move that failed because Placement did not answer may be asked for again.  If another scheduler puts it
on the same host, nothing in Placement tells its allocations from ours.  Nova knows which it is, so it
is asked before anything is taken back, and the order makes the answer good::

    read the consumer: generation g  ->  ask Nova  ->  put back with g

Nova's API marks a server before anybody looks for a host, and the mark stays until the operation has
ended and the server's record says where it lives.  So a server with the mark is somebody's, and one
without it that does not live there left its place to nobody.  An operation that begins after Nova was
asked writes the consumer anew before it relies on it (``policy.Finding.TWIN``): then g conflicts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from shared_scheduler.placement import policy
from shared_scheduler.placement.client import ConsumerWrite, PlacementClient
from shared_scheduler.placement.doubtful import Attempt, Look
from shared_scheduler.placement.policy import Standing
from shared_scheduler.placement.reply import Meaning
from shared_scheduler.protocol.messages import Allocations

LOG = logging.getLogger(__name__)


class Doing(StrEnum):
    """What Nova does with a server."""

    NOBODYS = "nobodys"  # in no cell: it is being built, or was given up
    UNDER_WAY = "under_way"  # or not to be told: somebody may rely on what it holds
    AT_REST = "at_rest"
    UNREAD = "unread"  # nothing was learned


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """``node``: the compute node that a server at rest lives on; None: it lives on none."""

    doing: Doing
    node: str | None = None


#: Tells of a server's uuid where it is, as of now.
Locate = Callable[[str], Whereabouts]


def without_nova(_: str) -> Whereabouts:
    """For where there is no Nova: no server lives anywhere, and only we write allocations."""
    return Whereabouts(Doing.NOBODYS)


class SecondLook:
    """Used by one thread at a time."""

    def __init__(self, client: PlacementClient, locate: Locate) -> None:
        self._client = client
        self._locate = locate

    def look(self, consumer: str, attempts: tuple[Attempt, ...]) -> Look:
        """Take back the one of ``attempts`` that stands there, if nobody relies on it.

        :raises PlacementError: nothing was learned
        """
        standing = self._client.consumer(consumer)
        for attempt in attempts:
            if policy.same(standing.allocations, attempt.written):
                return self._found(consumer, attempt, standing)
        return Look.NOTHING

    def _found(self, consumer: str, attempt: Attempt, standing: Standing) -> Look:
        """The trees are read first: nothing comes between Nova's answer and the putting back."""
        roots = self._roots(attempt)
        look = judge(self._locate(consumer), roots)
        if look is not Look.NOTHING:
            return look
        reply = self._client.write(put_back(consumer, attempt.before, standing))
        LOG.warning("allocations of %s had been written after all: took them back (%s)",
                    consumer, reply.meaning)  # fmt: skip
        return Look.NOTHING if reply.meaning is Meaning.DONE else Look.UNANSWERED

    def _roots(self, attempt: Attempt) -> frozenset[str]:
        ours = policy.without(attempt.written, attempt.before)
        return frozenset(map(self._client.root, ours))


def judge(found: Whereabouts, roots: frozenset[str]) -> Look:
    """``NOTHING``: nobody relies on what stands in the trees of these ``roots``."""
    if found.doing is Doing.UNREAD:
        return Look.UNANSWERED
    if found.doing is Doing.UNDER_WAY:
        return Look.UNDER_WAY
    return Look.RIGHTFUL if found.node in roots else Look.NOTHING


def put_back(consumer: str, before: Allocations, standing: Standing) -> ConsumerWrite:
    """What stood there before, for what stands there now."""
    return ConsumerWrite(
        consumer, before, standing.generation, standing.project_id, standing.user_id
    )
