# SPDX-License-Identifier: Apache-2.0
"""The course of one write: what is sent next, and how it ends.  Pure.

``allocation_writer`` carries it out with a thread, and the simulator (``sim/lone_writes.py``) in virtual time.  A write
is sent.  If its answer does not end it, the consumer is read and compared::

    compare --begins anew----------------> merge with what was read, and send
      |  --may be merged (a move)--------> merge with what others have added, and send
      |  --REFUSE------------------------> consumer_conflict
      |  --MAKE_SURE---------------------> send what stands once more; without time for it: written
      '  --AGAIN, REPLACE----------------> send with the generation that fits
           |  the deadline has passed----> written, if it stands | provider_conflict | unreachable | not_served
           '  the conflict lasts---------> provider_conflict
    the consumer is not read in time-----> unreachable, if a call got no answer | provider_conflict | not_served

``consumer_conflicts`` has the theory and the rules, ``conflict_patience`` says for how long a write is sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from shared_scheduler.core.allocation_merge import MAX_MERGES, Merged, merge
from shared_scheduler.core.effects import ConsumerPolicy, WriteAllocation
from shared_scheduler.core.events import WriteCode
from shared_scheduler.placement import consumer_conflicts
from shared_scheduler.placement.conflict_patience import ORPHAN, ConflictPatience, NextWrite
from shared_scheduler.placement.consumer_conflicts import ConflictAction, ConflictCase, ConsumerAllocations
from shared_scheduler.placement.consumer_write import ConsumerWrite, first_write, union_write
from shared_scheduler.placement.in_doubt_writes import WriteAttempt
from shared_scheduler.placement.own_records import OwnRecord
from shared_scheduler.protocol.messages import Allocations

#: Wait before a read without an answer is sent again.
READ_AGAIN_S = 0.25

_GENERATIONS = {NextWrite.TAKE_OVER: ORPHAN, NextWrite.LAST: None}


@dataclass(slots=True)
class WriteCourse:
    """The state of one write."""

    effect: WriteAllocation
    next: ConsumerWrite
    before: ConsumerAllocations | None = None  # set for a merge
    known: bool = False  # ``before`` is what the table knows, and was not read
    rest: Allocations | None = None  # set by a merge with what was read: what remains if the write is taken back
    merges: int = 0  # with another writer
    adds_nothing: bool = False  # it replaces the same allocations of another scheduler
    unsure: bool = False  # a write without an answer may have been carried out
    unclear: bool = False  # what stands may have been created by another scheduler, and was written again
    stands: int | None = None  # the generation in which it stands, until it is written again
    may_arrive: bool = False  # one of them may be carried out later
    may_change: bool = False  # so may one that changes the generation of what stands
    answered: bool = False  # the last one
    awaited: bool = False  # its answer
    made_in_doubt: int | None = None  # the generation of the consumer after the last one without an answer
    sent: int = 0  # how often
    step: NextWrite | None = None  # what followed from the patience after the last comparison
    patience: ConflictPatience = field(init=False)

    def __post_init__(self) -> None:
        self.patience = ConflictPatience(self.effect.deadline_s)

    @classmethod
    def begin(cls, effect: WriteAllocation, *, unsure: bool = False, may_arrive: bool = False) -> Self:
        """A write that begins with what the table knows.  ``unsure``: it was sent in a batch without an answer.
        ``may_arrive``: that batch may still be carried out."""
        course = cls(effect, first_write(effect), unsure=unsure, may_arrive=may_arrive)
        if effect.policy is ConsumerPolicy.MERGE and effect.standing is not None:
            known = ConsumerAllocations(effect.standing.allocations, effect.standing.generation)
            course.before, course.known = known, True
            course.next = union_write(effect, known.allocations, known.generation)
        course.made_in_doubt = course.generation if unsure else None
        return course

    # -- what it is

    @property
    def consumer(self) -> str:
        return self.effect.consumer

    @property
    def needs_read(self) -> bool:
        """Whether a merge must read what the consumer has before it is sent."""
        return self.effect.policy is ConsumerPolicy.MERGE and not self.known

    @property
    def generation(self) -> int:
        """The generation of the consumer after the write."""
        return consumer_conflicts.generation_after(self.next.generation)

    @property
    def policy(self) -> ConsumerPolicy:
        """The policy of the write: a merge that finds no allocations becomes *new*."""
        return ConsumerPolicy.NEW if self.before is None else ConsumerPolicy.MERGE

    @property
    def base(self) -> Allocations:
        """The allocations that remain if the write is taken back."""
        if self.rest is not None:
            return self.rest
        return self.before.allocations if self.before else {}

    @property
    def part(self) -> Allocations:
        """What the write adds to ``base``."""
        return consumer_conflicts.without(self.next.allocations, self.base)

    @property
    def is_found(self) -> bool:
        """Whether it is only known to stand, and another request may have written it."""
        return self.stands is not None

    @property
    def unfinished(self) -> WriteCode:
        """The result if the write is not sent again although it might succeed."""
        if self.is_found:
            return WriteCode.WRITTEN
        return WriteCode.PROVIDER_CONFLICT if self.answered else self.unread

    @property
    def unread(self) -> WriteCode:
        """The result if what stands cannot be read.  What every call was refused leaves nothing: the same allocations
        are another scheduler's, and must not be deleted."""
        if self.unsure:
            return WriteCode.UNREACHABLE
        return WriteCode.PROVIDER_CONFLICT if self.answered else WriteCode.NOT_SERVED

    def refused_as(self, code: WriteCode) -> WriteCode:
        """The result if the last call was refused so; an earlier one may have been carried out."""
        return WriteCode.UNREACHABLE if self.unsure else code

    def made(self, code: WriteCode) -> int | None:
        """The generation of the consumer after a write that ends so.  None: not known which was carried out last."""
        if self.stands is not None:
            return None if self.may_change else self.stands
        if code is WriteCode.WRITTEN:
            return self.generation
        if self.unclear:
            return None
        return self.generation if self.made_in_doubt is None else self.made_in_doubt

    def attempt(self, code: WriteCode) -> WriteAttempt:
        """What a write that ends so may have left."""
        return WriteAttempt(self.next.allocations, self.base, self.made(code), self.effect.is_new)

    def shows_in(self, standing: ConsumerAllocations) -> bool:
        """Whether the last write was carried out, and another writer has changed its allocations since."""
        is_there = bool(self.part) and consumer_conflicts.contains(standing.allocations, self.part)
        return is_there and standing.generation is not None and standing.generation > self.generation

    # -- what happens

    def sending(self) -> None:
        """Note that it is sent."""
        self.stands = None
        self.sent += 1
        self.awaited = True

    def replied(self, answered: bool, may_arrive: bool, was_sent: bool = True) -> None:
        """Note that the last call has an answer, or that it got none, perhaps because it ``was_sent`` never."""
        self.answered, self.awaited = answered, False
        if was_sent and not answered:
            self.unsure, self.made_in_doubt = True, self.generation
        self.may_arrive |= may_arrive
        self.may_change |= may_arrive and self.next.generation is not None

    def broken(self) -> WriteCode:
        """The result after an unexpected error; a call under way may be carried out."""
        if self.awaited:
            self.replied(answered=False, may_arrive=True)
        return self.unread

    def merge_with(self, standing: ConsumerAllocations, attempts: Sequence[WriteAttempt] = ()) -> None:
        """Merge with allocations that were read, less what an earlier attempt has written; without any, the consumer is
        new."""
        kept, self.rest = consumer_conflicts.begin_merge(standing, self.part, attempts, self.unsure)
        self.known, self.before = False, standing if standing.allocations else None
        is_union = bool(standing.allocations)
        self.next = union_write(self.effect, kept, standing.generation) if is_union else first_write(self.effect)

    def find(self, standing: ConsumerAllocations, attempts: Sequence[WriteAttempt] = ()) -> ConflictCase:
        """Compare what stands with what is written.  ``attempts``: earlier ones of this scheduler."""
        if self.before is not None:
            return consumer_conflicts.find_merge(standing, self.before, self.next.allocations, attempts)
        wanted = ConsumerAllocations(
            self.next.allocations, self.generation, self.next.project_id, self.next.user_id
        )  # fmt: skip
        return consumer_conflicts.find_new(standing, wanted, attempts, self.unsure)

    def may_be_answered(self, found: ConflictCase) -> bool:
        """Whether another scheduler may have answered with what stands.  Then Nova has the new server in a cell, and it
        must not be written: the server may begin to move, and its record begin anew with the same generation."""
        return self.effect.is_new and found in (ConflictCase.TWIN, ConflictCase.UNCLEAR)

    def may_merge(self, standing: ConsumerAllocations, found: ConflictCase, now: float) -> bool:
        """Whether what another writer has added can be merged, if the type of the move permits it.

        If two schedulers were asked for the build of a server, it may move by now, but its build is no move."""
        is_foreign = found is ConflictCase.FOREIGN and not self._begins_anew(found) and not self.effect.is_new
        in_time = self.merges < MAX_MERGES and now < self.effect.deadline_s
        return is_foreign and in_time and self._is_owner(standing) and self._merged(standing) is not None

    def compare(
        self,
        standing: ConsumerAllocations,
        found: ConflictCase,
        now: float,
        record: OwnRecord,
        *,
        merges: bool = False,
        attempts: Sequence[WriteAttempt] = (),
    ) -> WriteCode | None:
        """How the write ends; None: ``next`` is sent.

        ``found``: what ``find`` says of what stands.  ``merges``: it ``may_merge``, and the option names the move.
        """
        self.step = None
        if self._begins_anew(found):
            if now >= self.effect.deadline_s:
                return self.unfinished
            self.merge_with(standing, attempts)
            return None
        if merges:
            self._merge(standing)
            return None
        action = consumer_conflicts.RULES[self.policy][found]
        if action is ConflictAction.REFUSE:
            return WriteCode.CONSUMER_CONFLICT
        if action is ConflictAction.MAKE_SURE:
            return self._make_sure(standing, now, record)
        self._fit(action, found, standing)
        return self._again(found, now, record)

    def _fit(self, action: ConflictAction, found: ConflictCase, standing: ConsumerAllocations) -> None:
        """Take the generation with which the write may succeed."""
        self.adds_nothing = found is ConflictCase.TWIN
        if action is ConflictAction.REPLACE:
            self._send_with(standing.generation)
        elif found is ConflictCase.NOTHING and self.next.generation != ORPHAN:
            self._send_with(None)

    def _begins_anew(self, found: ConflictCase) -> bool:
        return self.before is not None and consumer_conflicts.begins_anew(found, self.known, self.unsure)

    def _make_sure(self, standing: ConsumerAllocations, now: float, record: OwnRecord) -> WriteCode | None:
        """Write once more what another scheduler may have created; without time for that, it counts as written."""
        self.unclear, self.stands = True, standing.generation
        self._send_with(standing.generation)
        return None if self._again(ConflictCase.UNCLEAR, now, record) is None else WriteCode.WRITTEN

    def _again(self, found: ConflictCase, now: float, record: OwnRecord) -> WriteCode | None:
        """The result of a write that is not sent again; None: send it again."""
        self.step = self.patience.after(found, now, self.answered, record)
        if self.step is NextWrite.OVERDUE:
            return self.unfinished
        if self.step is NextWrite.LOST:
            return WriteCode.PROVIDER_CONFLICT
        if self.step in _GENERATIONS:
            self._send_with(_GENERATIONS[self.step])
        return None

    def _send_with(self, generation: int | None) -> None:
        self.next = replace(self.next, generation=generation)

    def _is_owner(self, standing: ConsumerAllocations) -> bool:
        owner = (self.effect.project_id, self.effect.user_id)
        return not standing.allocations or (standing.project_id, standing.user_id) == owner

    def _merged(self, standing: ConsumerAllocations) -> Merged | None:
        return merge(self.base, self.part, standing.allocations)

    def _merge(self, standing: ConsumerAllocations) -> None:
        merged = self._merged(standing)
        assert merged is not None, "may_merge says whether it can be merged"
        self.merges += 1
        self.before, self.rest = standing, merged.rest
        self.next = replace(
            self.next, allocations=merged.allocations, generation=standing.generation, mappings={}
        )  # fmt: skip
