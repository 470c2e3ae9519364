# SPDX-License-Identifier: Apache-2.0
"""The deletes of one simulated scheduler: what ``AllocationWriter.delete`` does with a thread, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from shared_scheduler.core.effects import DeleteAllocation, ExamineChange, SeenBy
from shared_scheduler.core.events import AllocationDeleted
from shared_scheduler.placement import consumer_conflicts
from shared_scheduler.placement.consumer_conflicts import ConflictCase
from shared_scheduler.placement.in_doubt_writes import InDoubtWrites, WriteAttempt
from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.sim.clock import LocalClock
from shared_scheduler.sim.lone_writes import NovaFacts
from shared_scheduler.sim.surroundings import Surroundings

#: time after which a delete is given up
DELETE_PATIENCE_S = 10.0


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
        up = self._placement.up and in_time
        gone, left_alone, changed, detail = up, False, False, "" if up else "no answer"
        standing = self._placement.standing(effect.consumer)
        finding = consumer_conflicts.find_delete(standing, effect.written, effect.generation)
        if up and effect.stood and finding is ConflictCase.NOTHING:
            self._owners.change_found(_removal(effect))
        part = consumer_conflicts.without(effect.written, effect.before)
        rest = consumer_conflicts.rest_of(standing.allocations, effect.written, effect.before, finding)
        if up and rest is not None:
            sole = self._clock.now < effect.sole_until_s and finding is ConflictCase.AS_WANTED
            sole = sole and not self._is_doubtful(effect)
            needed = False if sole else self._owners.is_needed(effect.consumer, part)
            if needed is False:
                self.take_back(effect.consumer, part, rest, effect.claim_id)
                self._in_doubt.deleted(effect.consumer, WriteAttempt(effect.written, effect.before, effect.generation))
            else:
                gone, left_alone, detail = False, bool(needed), "the server needs it"
                changed = finding is ConflictCase.FOREIGN
        elif up and finding is ConflictCase.FOREIGN:
            left_alone = consumer_conflicts.holds(standing.allocations, part)
            gone, detail = not left_alone, "another writer has changed these allocations"
        return AllocationDeleted(effect.claim_id, gone, detail, left_alone, changed, cause=effect.cause)

    def _is_doubtful(self, effect: DeleteAllocation) -> bool:
        """Whether another scheduler may have written what this one is about to delete."""
        attempt = WriteAttempt(effect.written, effect.before, effect.generation)
        in_doubt = attempt.generation is None or attempt in self._in_doubt.attempts(effect.consumer)
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
