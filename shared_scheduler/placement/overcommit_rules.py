# SPDX-License-Identifier: Apache-2.0
"""What follows from the check after a write that only Placement has judged.  Pure.

``allocation_writer`` carries it out with a thread, and the simulator (``sim/unjudged_writes.py``) in virtual time::

    write --written--> read the usage of its providers
      ^                  |  no answer, in time---------> read it again after a wait
      |                  |  none by the deadline-------> unreachable: the core deletes what stands
      |                  |  none, and the service stops> written: nobody would delete it
      |                  |  fits-----------------------> written
      |                  '  overfull: delete the write
      |                       |  not deleted-----------> unreachable: the core deletes what may stand
      |                       |  deleted, in vain------> no_capacity
      '--after a wait---------'  deleted, with tries and time left

The read is repeated because a write that nobody checks may be too much for as long as its server lives.

Read are the providers of which it has taken something: a merge takes nothing more of a pool that it has found, which
may be overfull for other reasons.

All writers of a race see the over-commit, so without further tries none of them would get the last unit.  A write is
not sent again after its deadline, on which an agent relies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from shared_scheduler.core.effects import DeleteAllocation, WriteAllocation
from shared_scheduler.core.events import AllocationDeleted, WriteCode
from shared_scheduler.placement.write_course import WriteCourse
from shared_scheduler.protocol.backoff import Backoff

#: Writes of one intent that are checked and deleted, and the wait between them.
MAX_RACES = 4
RACE_BACKOFF = Backoff.between(0.010, 0.200)
#: Wait before a check without an answer is repeated.
CHECK_AGAIN_S = 0.25


@dataclass(frozen=True, slots=True)
class Overfull:
    """A provider has more allocations than capacity."""

    provider: str
    resource_class: str
    used: int
    capacity: int

    def __str__(self) -> str:
        return (
            f"provider {self.provider} held {self.used} of {self.capacity} {self.resource_class} after a racing write"
        )


def overfull(
    provider: str, asked: Iterable[str], used: Mapping[str, int], capacities: Mapping[str, int]
) -> Overfull | None:
    """The first class of those asked of a provider that is over-committed."""
    for name in asked:
        if used.get(name, 0) > capacities.get(name, 0):
            return Overfull(provider, name, used[name], capacities.get(name, 0))
    return None


def needs_check(course: WriteCourse, code: WriteCode, guarded: bool) -> bool:
    """Whether the usage is read after a write that ends so.

    ``guarded``: the last answer announces that racing writes do not over-commit.  A call without an answer may have
    reached another Placement, which is plain, and what stands may be its work.

    A write that has replaced the same allocations of another scheduler adds nothing, and that scheduler may have
    answered with them."""
    is_guarded = guarded and not course.unsure
    return code is WriteCode.WRITTEN and course.effect.serialise and not (is_guarded or course.adds_nothing)


def may_check_again(effect: WriteAllocation, now: float) -> bool:
    """Whether a check that got no answer is repeated after a wait."""
    return now + CHECK_AGAIN_S < effect.deadline_s


def unchecked(effect: WriteAllocation, now: float) -> WriteCode:
    """The result of a write that is not checked any more, although its usage could not be read."""
    return WriteCode.WRITTEN if may_check_again(effect, now) else WriteCode.UNREACHABLE


def undoing(course: WriteCourse) -> DeleteAllocation:
    """The delete of a write that was carried out."""
    effect, left = course.effect, course.attempt(WriteCode.WRITTEN)
    return DeleteAllocation(
        effect.claim_id, effect.consumer, left.written, effect.cause, left.before, effect.deadline_s, left.generation
    )


def taken_back(found: Overfull, deleted: AllocationDeleted) -> tuple[WriteCode, str]:
    """The result of a write that has over-committed a provider, and why.

    No capacity means that nothing stands.  So if the delete did not succeed, the result is that of a write of which
    nothing is known: the core deletes what it may have written, and repeats that.
    """
    if not deleted.gone:
        return WriteCode.UNREACHABLE, f"{found}; {deleted.detail}"
    return WriteCode.NO_CAPACITY, f"{found}; taken back"


def may_try_again(tries: int) -> bool:
    """Whether a write that was taken back so often is sent again after a wait, if its deadline permits."""
    return tries < MAX_RACES


def next_try(effect: WriteAllocation) -> WriteAllocation:
    """A write that was taken back: its own two writes have changed the generation that is known from before."""
    return replace(effect, standing=None, left=None)
