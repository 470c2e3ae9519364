# SPDX-License-Identifier: Apache-2.0
"""Decides whether an allocation may be deleted whose request does not wait any more.

A move that failed because Placement did not answer may be requested again.  If another scheduler selects the same host,
Placement cannot distinguish its allocations from ours.  Nova can.  Therefore Nova's databases are read before anything
is deleted, in this order::

    read the consumer: generation g  ->  read Nova  ->  restore with g

Nova's API sets the task of a server before it casts an operation, and the task stays until the operation has ended
and the record of the server has the new host.  A server with a task is in use by an operation.  A server without a
task that is not on the host does not need the allocation.  An operation that starts after Nova was asked writes the
consumer again before it relies on it (``consumer_conflicts.ConflictCase.TWIN``), so the restore with g conflicts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from shared_scheduler.placement import consumer_conflicts
from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.connection import Meaning, Reply
from shared_scheduler.placement.consumer_conflicts import ConflictCase, ConsumerAllocations
from shared_scheduler.placement.consumer_write import ConsumerWrite
from shared_scheduler.placement.in_doubt_writes import CheckResult, WriteAttempt
from shared_scheduler.protocol.messages import Allocations

LOG = logging.getLogger(__name__)

_WRITTEN_LATE = "allocations of %s were written although Placement did not answer: deleted them"
_PLACED_TWICE = (
    "two schedulers have placed server %s, and it is not on the host of this one: deleted its allocations there; if it "
    "has none now, write them with nova-manage placement heal_allocations"
)


class ServerActivity(StrEnum):
    """The activity of Nova on a server."""

    NO_OWNER = "no_owner"  # in no cell: it is being built, or its build was given up
    UNDER_WAY = "under_way"  # an operation may use its allocations, or this is unknown
    AT_REST = "at_rest"
    UNREAD = "unread"  # the databases could not be read


@dataclass(frozen=True, slots=True)
class ServerLocation:
    """``node``: the compute node of a server without an operation; None: it has none.

    ``move``: the type of the migration that is being scheduled, as Nova's record has it; empty: none.  ``migration``:
    its uuid, which has the server's previous allocations.  ``deleted``: Nova has deleted the server, or has given its
    build up: it is in cell 0.
    """

    activity: ServerActivity
    node: str | None = None
    move: str = ""
    migration: str = ""
    deleted: bool = False


#: Reads the present location of a server, given its uuid.
Locate = Callable[[str], ServerLocation]
#: Sends the write that restores the allocations of a consumer; None: it was not sent, because it must wait.
Restore = Callable[[ConsumerWrite], Reply | None]
#: Notes that what an attempt wrote for a consumer was deleted.
Deleted = Callable[[str, WriteAttempt], None]


def without_nova(_: str) -> ServerLocation:
    """The location of each server without Nova: no server has a node, and only this scheduler writes allocations."""
    return ServerLocation(ServerActivity.NO_OWNER)


class Reconciler:
    """Reconciles allocations in doubt.  Only one thread may use it at a time."""

    def __init__(self, client: PlacementClient, locate: Locate, restore: Restore, deleted: Deleted) -> None:
        self._client = client
        self._locate = locate
        self._restore = restore
        self._deleted = deleted

    def reconcile(self, consumer: str, attempts: tuple[WriteAttempt, ...]) -> CheckResult:
        """Delete the one of ``attempts`` whose allocations exist, if no operation uses them.

        :raises PlacementError: when Placement cannot be read
        """
        standing = self._client.consumer(consumer)
        for attempt in attempts:
            finding = consumer_conflicts.find_delete(standing, attempt.written, attempt.generation)
            if finding is ConflictCase.AS_WANTED:
                return self._found(consumer, attempt, standing)
        return CheckResult.NOTHING

    def _found(self, consumer: str, attempt: WriteAttempt, standing: ConsumerAllocations) -> CheckResult:
        result = self.judge(consumer, attempt)
        if result is not CheckResult.NOTHING:
            return result
        reply = self._restore(put_back(consumer, attempt.before, standing))
        if reply is None or reply.meaning is not Meaning.DONE:
            return CheckResult.UNANSWERED
        self._deleted(consumer, attempt)
        LOG.warning(_PLACED_TWICE if attempt.answered else _WRITTEN_LATE, consumer)
        return CheckResult.NOTHING

    def judge(self, consumer: str, attempt: WriteAttempt) -> CheckResult:
        """Whether an operation relies on ``attempt``, whose allocations exist.  The trees are read first, so that
        nothing happens between the read of Nova and the restore.  A server that was answered and is in no cell may be
        waiting for its conductor.

        :raises PlacementError: when Placement cannot be read
        """
        roots, found = self._roots(attempt), self._locate(consumer)
        if attempt.answered and found.activity is ServerActivity.NO_OWNER and not found.deleted:
            return CheckResult.UNDER_WAY
        return judge(found, roots)

    def _roots(self, attempt: WriteAttempt) -> frozenset[str]:
        ours = consumer_conflicts.without(attempt.written, attempt.before)
        return frozenset(map(self._client.root, ours))


def judge(found: ServerLocation, roots: frozenset[str]) -> CheckResult:
    """The result of a check; ``NOTHING``: no operation uses the allocations in the trees of these ``roots``."""
    if found.activity is ServerActivity.UNREAD:
        return CheckResult.UNANSWERED
    if found.activity is ServerActivity.UNDER_WAY:
        return CheckResult.UNDER_WAY
    return CheckResult.RIGHTFUL if found.node in roots else CheckResult.NOTHING


def put_back(consumer: str, before: Allocations, standing: ConsumerAllocations) -> ConsumerWrite:
    """The write that replaces the present allocations by those before the attempt."""
    return ConsumerWrite(consumer, before, standing.generation, standing.project_id, standing.user_id)
