# SPDX-License-Identifier: Apache-2.0
"""The deletes of one simulated scheduler: what ``AllocationWriter.delete`` does with a thread, in virtual time.
Both follow ``placement/delete_course.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from shared_scheduler.core.effects import DeleteAllocation, ExamineChange, SeenBy
from shared_scheduler.core.events import AllocationDeleted
from shared_scheduler.placement.delete_course import DELETE_PATIENCE_S, DeleteCourse
from shared_scheduler.placement.in_doubt_writes import InDoubtWrites
from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.sim.clock import LocalClock
from shared_scheduler.sim.lone_writes import NovaFacts
from shared_scheduler.sim.surroundings import Surroundings


class Owners(NovaFacts, Protocol):
    """What a scheduler learns of a server before it deletes allocations of it, and what others learn of the delete."""

    def is_needed(self, consumer: str, allocations: Allocations) -> bool | None:
        """What Nova shows of a server: whether it needs these allocations; None while an operation is under way."""

    def taken_back(self, consumer: str, allocations: Allocations) -> None:
        """These allocations, which stand in Placement, are about to be deleted."""

    def change_found(self, effect: ExamineChange) -> None:
        """Another writer has changed allocations."""


class Deletes:
    """Restores the allocations before a write."""

    def __init__(
        self, name: str, around: Surroundings, clock: LocalClock, in_doubt: InDoubtWrites, owners: Owners
    ) -> None:
        self._agenda = around.agenda
        self._placement = around.placement
        self._trace = around.trace
        self._delay_s = around.placement_delay_s
        self._name = name
        self._clock = clock
        self._in_doubt = in_doubt
        self._owners = owners

    def begin(self, effect: DeleteAllocation, ended: Callable[[AllocationDeleted], None]) -> None:
        """Read the consumer, and delete what the effect says; ``ended`` is called once."""
        self._agenda.work(self._delay_s() / 2, self._delete, effect, ended)

    def _delete(self, effect: DeleteAllocation, ended: Callable[[AllocationDeleted], None]) -> None:
        """The read of the consumer is done; the delete follows."""
        takes_s = 2 * self._placement.takes_s(1)
        in_time = takes_s < DELETE_PATIENCE_S
        self._agenda.work(min(takes_s, DELETE_PATIENCE_S), lambda: ended(self._end(effect, in_time)))

    def _end(self, effect: DeleteAllocation, in_time: bool) -> AllocationDeleted:
        """Compare, ask Nova unless it is sole, delete."""
        course = DeleteCourse.begin(effect)
        self._in_doubt.deleting(effect.consumer, effect.claim_id)
        course.compare(self._placement.standing(effect.consumer))
        if not (self._placement.answers and in_time):
            return AllocationDeleted(effect.claim_id, False, "no answer", cause=effect.cause)
        if course.is_removed:
            self._owners.change_found(_removal(effect))
        rest = course.rest
        if rest is None:
            return course.ended()
        needed = False if self._is_sole(course) else self._owners.is_needed(effect.consumer, course.part)
        if needed is not False:
            changed, cause = course.is_changed, effect.cause
            return AllocationDeleted(effect.claim_id, False, "the server needs it", bool(needed), changed, cause=cause)
        self.take_back(effect.consumer, course.part, rest, effect.claim_id)
        self._in_doubt.deleted(effect.consumer, course.attempt)
        return AllocationDeleted(effect.claim_id, True, cause=effect.cause)

    def _is_sole(self, course: DeleteCourse) -> bool:
        """Whether no other operation can rely on what stands."""
        sole = self._clock.now < course.effect.sole_until_s and not course.is_changed
        return sole and not self._is_doubtful(course)

    def _is_doubtful(self, course: DeleteCourse) -> bool:
        """Whether another scheduler, or another claim of this one, may have written what is about to be deleted."""
        effect, attempt, now = course.effect, course.attempt, self._clock.now
        in_doubt = attempt.generation is None or attempt in self._in_doubt.attempts(effect.consumer, now)
        in_doubt |= self._in_doubt.may_be_anothers(effect.consumer, effect.claim_id, attempt, now)
        return in_doubt and effect.is_new and self._owners.is_in_cell(effect.consumer)

    def take_back(self, consumer: str, part: Allocations, rest: Allocations, claim_id: str) -> None:
        """Remove the part of a write, which leaves the rest."""
        self._owners.taken_back(consumer, part)
        if rest:
            generation = self._placement.standing(consumer).generation
            self._placement.end_write(self._placement.begin_write(consumer, rest, generation, self._name))
        else:
            self._placement.delete(consumer, self._name)
        self._trace.note("placement", f"deleted {claim_id} {consumer}")


def _removal(effect: DeleteAllocation) -> ExamineChange:
    """What was written is gone."""
    return ExamineChange(
        effect.consumer, "placement", "", effect.written, effect.generation, {}, None, SeenBy.DELETE, cause=effect.cause
    )
