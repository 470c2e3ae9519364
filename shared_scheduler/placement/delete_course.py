# SPDX-License-Identifier: Apache-2.0
"""The course of one delete: what the present allocations say of it, and what it leaves of them.  Pure.

``allocation_writer`` carries it out with a thread, and the simulator (``sim/deletes.py``) in virtual time.  The
consumer is read and compared::

    compare --it stands as written---------------> put back what was before it
      |  --others have added to its merge--------> remove its part, if Nova does not need it
      |  --nothing of its part stands------------> gone
      '  --others have changed the rest----------> left alone
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from shared_scheduler.core.effects import DeleteAllocation
from shared_scheduler.core.events import AllocationDeleted
from shared_scheduler.model.resources import same_allocations
from shared_scheduler.placement import consumer_conflicts
from shared_scheduler.placement.consumer_conflicts import ConflictCase, ConsumerAllocations
from shared_scheduler.placement.in_doubt_writes import WriteAttempt
from shared_scheduler.protocol.messages import Allocations

#: Time after which a delete is given up and kept as a write in doubt.
DELETE_PATIENCE_S = 10.0


@dataclass(slots=True)
class DeleteCourse:
    """The state of one delete."""

    effect: DeleteAllocation
    #: the write of the claim
    attempt: WriteAttempt
    #: what was read before the last call, or written
    seen: ConsumerAllocations
    #: what that call leaves, if it was carried out
    left: ConsumerAllocations = field(default_factory=ConsumerAllocations)
    #: what was read last, compared with what the claim wrote
    standing: ConsumerAllocations = field(default_factory=ConsumerAllocations)
    finding: ConflictCase = ConflictCase.NOTHING

    @classmethod
    def begin(cls, effect: DeleteAllocation) -> Self:
        """The state before the consumer is read."""
        attempt = WriteAttempt(effect.written, effect.before, effect.generation, effect.is_new)
        return cls(effect, attempt, ConsumerAllocations(attempt.written, attempt.generation))

    def compare(self, standing: ConsumerAllocations) -> None:
        """Compare what was read."""
        self.standing = standing
        self.finding = consumer_conflicts.find_delete(standing, self.attempt.written, self.attempt.generation)

    def putting_back(self, rest: Allocations) -> None:
        """A call is about to leave ``rest``; it may get no answer."""
        self.seen = self.standing
        self.left = ConsumerAllocations(rest, consumer_conflicts.generation_after(self.standing.generation))

    @property
    def part(self) -> dict[str, dict[str, int]]:
        """What the claim has added."""
        return consumer_conflicts.without(self.attempt.written, self.attempt.before)

    @property
    def rest(self) -> Allocations | None:
        """What the delete leaves; None: nothing is deleted."""
        attempt = self.attempt
        return consumer_conflicts.rest_of(self.standing.allocations, attempt.written, attempt.before, self.finding)

    @property
    def was_called(self) -> bool:
        """Whether a call was made, which may have been carried out."""
        return self.left.generation is not None

    @property
    def is_changed(self) -> bool:
        """Whether others have changed what stands."""
        return self.finding is ConflictCase.FOREIGN

    @property
    def is_news(self) -> bool:
        """Whether they have changed it since it was read, written or recorded last."""
        known = any(consumer_conflicts.is_same(self.standing, one) for one in (self.seen, self.left))
        known |= self.effect.noted is not None and self.standing.generation == self.effect.noted
        return self.is_changed and self._was_written and not known

    @property
    def _was_written(self) -> bool:
        """Whether what stands is younger than the write; it may never have been carried out."""
        made, standing = self.attempt.generation, self.standing
        if made is None:
            return consumer_conflicts.holds(standing.allocations, self.part)
        is_earlier = standing.generation is not None and standing.generation < made
        return not (is_earlier and same_allocations(standing.allocations, self.attempt.before))

    @property
    def is_removed(self) -> bool:
        """Whether others have removed what the claim wrote."""
        return self.effect.stood and self.finding is ConflictCase.NOTHING and not self.was_called

    def ended(self) -> AllocationDeleted:
        """The answer if nothing is deleted: gone, unless others have changed it and it still contains the part."""
        effect = self.effect
        if not consumer_conflicts.holds(self.standing.allocations, self.part):
            return AllocationDeleted(effect.claim_id, True, cause=effect.cause)
        detail = "another writer has changed these allocations; left alone"
        return AllocationDeleted(effect.claim_id, False, detail, left_alone=True, cause=effect.cause)
