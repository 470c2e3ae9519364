# SPDX-License-Identifier: Apache-2.0
"""Every operation of Nova that writes allocations of a server, and what happens to it after a conflict.

``doc/source/contributor/allocation_writes.rst`` shows this table, and a test compares the two.  The scheduler's writes
follow ``consumer_conflicts.RULES``.  Writes of other services are listed because they can conflict with those; Nova's
own rules apply to them.

The kinds of failure are distinguished by Placement's error code and by the consumer's allocations, never by text:

==================  ================================================================================
no capacity         409 without ``placement.concurrent_update``: not enough capacity, or a violated unit
provider conflict   409 ``concurrent_update``, and the consumer is as it was expected
consumer conflict   409 ``concurrent_update``, and the consumer is not as it was expected, or shows
                    nothing and takes no generation while no provider moves
==================  ================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shared_scheduler.core.effects import ConsumerPolicy


class Writer(StrEnum):
    """The writer of the server's allocations."""

    API = "api"

    SCHEDULER = "scheduler"
    CONDUCTOR = "conductor"
    COMPUTE = "compute"
    NOBODY = "nobody"


class Then(StrEnum):
    """The outcome of the operation.  If it fails, existing allocations are unchanged."""

    WRITTEN = "written"
    NEXT_HOST = "next host"
    RACE = "retry, next host"  # retried for a bounded time, each time after the allocations were read
    AGAIN = "retry, fails"  # retried a few times
    RACE_AGAIN = "retry"  # retried until it succeeds
    FAILS = "fails"
    MERGED = "merge, fails"  # merged with what others have added, if that is decidable
    LEFT_ALONE = "left alone"  # another writer has changed the allocations, which now belong to it
    NOTHING = "-"  # cannot occur, or has no effect


@dataclass(frozen=True, slots=True)
class Operation:
    """One row."""

    name: str
    writer: Writer
    #: which of ``consumer_conflicts.RULES`` the scheduler follows; None: another service writes, or none
    policy: ConsumerPolicy | None
    #: the consumer generation that is sent
    sends: str
    no_capacity: Then
    provider_conflict: Then
    consumer_conflict: Then
    #: the consumer holds exactly the allocations of an earlier attempt of the same writer
    own_attempt: Then
    #: the value of the option ``merged_moves`` with which this row holds; empty: it holds without
    merged_move: str = ""


def _ours(name: str, policy: ConsumerPolicy, sends: str) -> Operation:
    ends = (Then.NEXT_HOST, Then.RACE, Then.FAILS, Then.WRITTEN)
    return Operation(name, Writer.SCHEDULER, policy, sends, *ends)


def _merged(name: str, policy: ConsumerPolicy, sends: str, move: str) -> Operation:
    ends = (Then.NEXT_HOST, Then.RACE, Then.MERGED, Then.WRITTEN)
    return Operation(f"{name}, merged", Writer.SCHEDULER, policy, sends, *ends, move)


def _theirs(name: str, writer: Writer, sends: str, *ends: Then) -> Operation:
    return Operation(name, writer, None, sends, *ends)


_NEW, _MERGE = ConsumerPolicy.NEW, ConsumerPolicy.MERGE

#: each operation that writes, and the deletes
OPERATIONS = (
    _ours("build", _NEW, "null"),
    # all or nothing: if one server fails, the allocations of the others are deleted
    _ours("multi-create", _NEW, "null"),
    # with the candidate of our Selection
    _theirs("build on alternate", Writer.CONDUCTOR, "as read",
            Then.NEXT_HOST, Then.RACE, Then.FAILS, Then.WRITTEN),
    _ours("unshelve", _NEW, "null"),
    # the conductor has put the source's allocations under the migration's uuid before it asks
    _ours("resize", _NEW, "null"),
    _ours("cold migrate", _NEW, "null"),
    _ours("live migrate", _NEW, "null"),
    # the server still holds its source
    _ours("evacuate", _MERGE, "as known"),
    _merged("resize", _NEW, "null", "resize"),
    _merged("cold migrate", _NEW, "null", "migration"),
    _merged("live migrate", _NEW, "null", "live-migration"),
    _merged("evacuate", _MERGE, "as known", "evacuation"),
    _theirs("rebuild", Writer.NOBODY, "-", *(Then.NOTHING,) * 4),
    # of a resize or migration: the source's allocations go from the server to the migration's uuid (null), before the
    # scheduler is asked
    _theirs("start of a move", Writer.CONDUCTOR, "as read",
            Then.FAILS, Then.AGAIN, Then.FAILS, Then.WRITTEN),
    # and they go back, instead of whatever the server has
    _theirs("end of a failed move", Writer.CONDUCTOR, "as read",
            Then.FAILS, Then.AGAIN, Then.FAILS, Then.WRITTEN),
    _theirs("confirm", Writer.COMPUTE, "as read",
            Then.NOTHING, Then.FAILS, Then.FAILS, Then.NOTHING),
    _theirs("revert", Writer.COMPUTE, "as read",
            Then.FAILS, Then.AGAIN, Then.FAILS, Then.WRITTEN),
    # no generation is sent: all existing allocations are deleted
    _theirs("shelve-offload", Writer.COMPUTE, "none", *(Then.NOTHING,) * 4),
    _theirs("delete", Writer.COMPUTE, "none", *(Then.NOTHING,) * 4),
    _theirs("forced delete", Writer.COMPUTE, "none", *(Then.NOTHING,) * 4),
    # every delete, a forced one too, if [DEFAULT] reclaim_instance_interval is set
    _theirs("delete, reclaimed", Writer.COMPUTE, "as read",
            Then.NOTHING, Then.FAILS, Then.FAILS, Then.NOTHING),
    # its nova-compute service is down, or it has no host
    _theirs("local delete", Writer.API, "none", *(Then.NOTHING,) * 4),
    # the conductor finds that the server is gone when the scheduler has answered
    _theirs("delete in a build", Writer.CONDUCTOR, "none", *(Then.NOTHING,) * 4),
    # a request of ours failed after its write
    Operation("clean-up", Writer.SCHEDULER, None, "as made",
              Then.NOTHING, Then.RACE_AGAIN, Then.LEFT_ALONE, Then.NOTHING),
)  # fmt: skip


#: our writes without the option, and with it
OURS = [one for one in OPERATIONS if one.policy is not None and not one.merged_move]
MERGED = [one for one in OPERATIONS if one.merged_move]


def operation(name: str) -> Operation:
    """The row of one operation.

    :raises StopIteration: when there is none
    """
    return next(one for one in OPERATIONS if one.name == name)
