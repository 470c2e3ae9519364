# SPDX-License-Identifier: Apache-2.0
"""The writes of single consumers after a conflict or without an answer: what ``placement/allocation_writer.py`` does
with a thread, in virtual time and with its rules.

The consumer is read, and compared with what the write wants.  Then the write ends, or it is sent again after a pause.
The write of a move is merged with what others have added to the server, if the option names the move.  That of an
evacuation is merged with what the server has from the beginning.
A conflict that lasts is never blamed on the consumer: simulated providers have no generations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from shared_scheduler.core.allocation_merge import MAX_MERGES, merge
from shared_scheduler.core.effects import ConsumerPolicy, DeleteAllocation, WriteAllocation
from shared_scheduler.core.events import WriteCode
from shared_scheduler.placement import consumer_conflicts
from shared_scheduler.placement.conflict_patience import ORPHAN, ConflictPatience, NextWrite
from shared_scheduler.placement.consumer_conflicts import ConflictAction, ConflictCase, ConsumerAllocations
from shared_scheduler.placement.in_doubt_writes import InDoubtWrites, WriteAttempt
from shared_scheduler.placement.own_records import OwnRecord, OwnRecords
from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.sim.clock import LocalClock
from shared_scheduler.sim.surroundings import Surroundings
from shared_scheduler.sim.write_calls import CALL_MIN_S, CallReply, Wanted, WriteCalls

#: pause before a read without an answer is repeated
READ_AGAIN_S = 0.25
#: interval at which a write that has waited looks whether its host is free again
RESUME_AGAIN_S = 0.02

_ENDS = {ConflictAction.DONE: WriteCode.WRITTEN, ConflictAction.REFUSE: WriteCode.CONSUMER_CONFLICT}


class NovaFacts(Protocol):
    """What a scheduler reads of a server in Nova's databases."""

    def is_merged_move(self, consumer: str) -> bool:
        """Whether it moves, and the option names this type of move."""

    def is_in_cell(self, consumer: str) -> bool:
        """Whether the conductor has created it in a cell, which it does after an answer."""


@dataclass(slots=True, eq=False)
class LoneWrite:
    """One write.  ``ended`` is called once, with the write and its result.  ``pause`` frees its host while it waits,
    ``resume`` takes it again (``WriteQueue``)."""

    effect: WriteAllocation
    ended: Callable[[LoneWrite, WriteCode], None]
    pause: Callable[[], None] = lambda: None
    resume: Callable[[], bool] = lambda: True
    allocations: Allocations = field(init=False)  # what is written next
    generation: int | None = None
    before: ConsumerAllocations | None = None  # set by a merge: what it was merged with
    known: bool = False  # ``before`` is what the table knows, and was not read
    base: Allocations = field(default_factory=dict)  # what remains if the write is taken back
    merges: int = 0
    unsure: bool = False  # a write without an answer may have been carried out
    unclear: bool = False  # another scheduler may have created what stands, which was written again
    stands: int | None = None  # the generation in which it stands, until it is written again
    may_arrive: bool = False  # one of them may be carried out later
    may_change: bool = False  # so may one that changes the generation of what stands
    answered: bool = False  # the last one
    detail: str = ""
    sent: int = 0  # how often
    sent_s: float = 0.0
    patience: ConflictPatience = field(init=False)

    def __post_init__(self) -> None:
        self.allocations = self.effect.allocations
        self.patience = ConflictPatience(self.effect.deadline_s)

    @property
    def made(self) -> int | None:
        """The generation of the consumer after the write.  None: not known."""
        if self.stands is not None:
            return None if self.may_change else self.stands
        return None if self.unclear else consumer_conflicts.generation_after(self.generation)

    @property
    def unfinished(self) -> WriteCode:
        """How the write ends if it is not sent again although it might succeed."""
        if self.stands is not None:
            return WriteCode.WRITTEN
        return WriteCode.PROVIDER_CONFLICT if self.answered else WriteCode.UNREACHABLE

    def replied(self, reply: CallReply) -> None:
        """Note an answer."""
        self.answered = reply.code is not WriteCode.UNREACHABLE
        self.unsure |= not self.answered
        self.may_arrive |= reply.may_arrive
        self.may_change |= reply.may_arrive and self.generation is not None
        self.detail = reply.detail

    def merge_with(self, standing: ConsumerAllocations, attempts: Sequence[WriteAttempt] = ()) -> None:
        """Merge with all that the consumer has, less what an earlier attempt has written; without any allocations, it
        is new."""
        wanted, part = self.effect.allocations, consumer_conflicts.without(self.allocations, self.base)
        kept, self.base = consumer_conflicts.begin_merge(standing, part, attempts, self.unsure)
        self.known, self.generation = False, standing.generation
        self.before = standing if standing.allocations else None
        self.allocations = consumer_conflicts.union(kept, wanted)

    def compare(
        self,
        standing: ConsumerAllocations,
        now: float,
        record: OwnRecord,
        is_merged: bool,
        attempts: Sequence[WriteAttempt] = (),
    ) -> WriteCode | None:
        """How the write ends; None: it is sent again, with the ``allocations`` and the ``generation``.

        ``is_merged``: it is the write of a move that the option names.  ``attempts``: earlier ones of this scheduler.
        """
        finding = self._find(standing, attempts)
        if self.before is not None and consumer_conflicts.begins_anew(finding, self.known):
            self.merge_with(standing, attempts)
            return None
        if finding is ConflictCase.FOREIGN and is_merged and self._merge(standing, now):
            return None
        policy = ConsumerPolicy.NEW if self.before is None else ConsumerPolicy.MERGE
        action = consumer_conflicts.RULES[policy][finding]
        if action in _ENDS:
            return _ENDS[action]
        if action is ConflictAction.MAKE_SURE:
            return self._make_sure(standing, now, record)
        if action is ConflictAction.REPLACE:
            self.generation = standing.generation
        elif finding is ConflictCase.NOTHING and self.generation != ORPHAN:
            self.generation = None
        return self._next(self.patience.after(finding, now, self.answered, record))

    def _make_sure(self, standing: ConsumerAllocations, now: float, record: OwnRecord) -> WriteCode | None:
        """Write once more what another scheduler may have created; without time for that, it counts as written."""
        self.unclear, self.stands, self.generation = True, standing.generation, standing.generation
        is_again = self._next(self.patience.after(ConflictCase.UNCLEAR, now, self.answered, record)) is None
        return None if is_again else WriteCode.WRITTEN

    def _find(self, standing: ConsumerAllocations, attempts: Sequence[WriteAttempt]) -> ConflictCase:
        if self.before is not None:
            return consumer_conflicts.find_merge(standing, self.before, self.allocations, attempts)
        wanted = ConsumerAllocations(self.allocations, consumer_conflicts.generation_after(self.generation))
        return consumer_conflicts.find_new(standing, wanted, attempts, self.unsure)

    def _merge(self, standing: ConsumerAllocations, now: float) -> bool:
        """Merge with what another writer has added, if that is decidable."""
        part = consumer_conflicts.without(self.allocations, self.base)
        merged = merge(self.base, part, standing.allocations)
        if merged is None or self.merges >= MAX_MERGES or now >= self.effect.deadline_s:
            return False
        self.merges += 1
        self.before, self.base = standing, merged.rest
        self.allocations, self.generation = merged.allocations, standing.generation
        return True

    def _next(self, step: NextWrite) -> WriteCode | None:
        if step is NextWrite.OVERDUE:
            return self.unfinished
        if step is NextWrite.LOST:
            return WriteCode.PROVIDER_CONFLICT
        if step is not NextWrite.AGAIN:
            self.generation = ORPHAN if step is NextWrite.TAKE_OVER else None
        return None


class LoneWrites:
    """The writes of one scheduler that are under way.  ``run`` runs a step, while its process is frozen later."""

    def __init__(
        self,
        around: Surroundings,
        clock: LocalClock,
        rng: Random,
        calls: WriteCalls,
        run: Callable[[Callable[[], None]], None],
        nova: NovaFacts,
    ) -> None:
        self._agenda = around.agenda
        self._placement = around.placement
        self._delay_s = around.placement_delay_s
        self._clock = clock
        self._rng = rng
        self._calls = calls
        self._run = run
        self._nova = nova
        self._own_records = OwnRecords()
        self._in_doubt = InDoubtWrites()

    def begin_merge(self, lone: LoneWrite) -> None:
        """Send the write of an evacuation, after a read unless the table knows what the consumer has."""
        known = lone.effect.standing
        if known is None:
            self._read(lone, self._merge)
            return
        lone.merge_with(ConsumerAllocations(known.allocations, known.generation))
        lone.known = True
        self._send(lone)

    def _merge(self, lone: LoneWrite) -> None:
        consumer = lone.effect.consumer
        lone.merge_with(self._placement.standing(consumer), self._attempts(lone.effect))
        self._send(lone)

    def _attempts(self, effect: WriteAllocation) -> tuple[WriteAttempt, ...]:
        attempts = self._in_doubt.attempts(effect.consumer)
        return () if attempts and effect.is_new and self._nova.is_in_cell(effect.consumer) else attempts

    def ended(self, lone: LoneWrite, code: WriteCode) -> None:
        """Note that a write has ended: whether it may have been carried out although it got no answer."""
        consumer = lone.effect.consumer
        if code is WriteCode.WRITTEN:
            self._in_doubt.settled(consumer)
        elif lone.unsure:
            self._in_doubt.add(consumer, WriteAttempt(lone.allocations, lone.base, lone.made), self._clock.now)

    def is_doubtful(self, effect: DeleteAllocation) -> bool:
        """Whether another scheduler may have written what this one is about to delete."""
        attempt = WriteAttempt(effect.written, effect.before, effect.generation)
        in_doubt = attempt in self._in_doubt.attempts(effect.consumer)
        return in_doubt and effect.is_new and self._nova.is_in_cell(effect.consumer)

    def deleted(self, consumer: str, attempt: WriteAttempt) -> None:
        """Note that what a write left was deleted."""
        self._in_doubt.deleted(consumer, attempt)

    def go_on(self, lone: LoneWrite, reply: CallReply) -> None:
        """Go on after the answer to a call that has sent the write."""
        lone.replied(reply)
        self._read(lone, self._compare)

    def note(self, effects: Iterable[WriteAllocation], reply: CallReply, sent_s: float) -> None:
        """Note what the answer to a write of new consumers means for their records."""
        for effect in effects:
            if reply.code is WriteCode.WRITTEN:
                self._own_records.written(effect.consumer)
            elif reply.code is WriteCode.UNKNOWN_PROVIDER or reply.may_arrive:
                self._own_records.failed(effect.consumer, sent_s, reply.may_arrive)

    def _read(self, lone: LoneWrite, then: Callable[[LoneWrite], None]) -> None:
        takes_s = self._delay_s() + self._placement.takes_s(1)
        left_s = max(CALL_MIN_S, lone.effect.deadline_s - self._clock.now)
        self._agenda.work(min(takes_s, left_s), self._run, lambda: self._end_read(lone, then, takes_s <= left_s))

    def _end_read(self, lone: LoneWrite, then: Callable[[LoneWrite], None], in_time: bool) -> None:
        if in_time and self._placement.up:
            then(lone)
        elif self._clock.now + READ_AGAIN_S < lone.effect.deadline_s:
            self._wait(lone, READ_AGAIN_S, lambda: self._read(lone, then))
        else:
            lone.ended(lone, WriteCode.UNREACHABLE)

    def _compare(self, lone: LoneWrite) -> None:
        consumer, now = lone.effect.consumer, self._clock.now
        standing, is_merged = self._placement.standing(consumer), self._nova.is_merged_move(consumer)
        if standing.allocations:
            self._own_records.written(consumer)
        record = self._own_records.state(consumer, now)
        code = lone.compare(standing, now, record, is_merged, self._attempts(lone.effect))
        if code is not None:
            lone.ended(lone, code)
            return
        pause_s = consumer_conflicts.CONFLICT_BACKOFF.wait_s(self._rng, lone.sent)
        self._wait(lone, pause_s, lambda: self._send(lone))

    def _wait(self, lone: LoneWrite, for_s: float, then: Callable[[], None]) -> None:
        """Wait between two calls."""
        lone.pause()
        self._agenda.work(for_s, self._run, lambda: self._resume(lone, then))

    def _resume(self, lone: LoneWrite, then: Callable[[], None]) -> None:
        if lone.resume():
            then()
        elif self._clock.now >= lone.effect.deadline_s:
            lone.ended(lone, lone.unfinished)
        else:
            self._agenda.work(RESUME_AGAIN_S, self._run, lambda: self._resume(lone, then))

    def _send(self, lone: LoneWrite) -> None:
        effect, lone.stands = lone.effect, None
        lone.sent_s = self._clock.now
        lone.sent += 1
        wanted = Wanted(effect.claim_id, effect.consumer, lone.allocations, lone.generation)
        self._calls.send([wanted], effect.deadline_s - lone.sent_s, lambda reply: self._hear(lone, reply))

    def _hear(self, lone: LoneWrite, reply: CallReply) -> None:
        if lone.generation is None or reply.code is WriteCode.WRITTEN:
            self.note([lone.effect], reply, lone.sent_s)
        if reply.code in (WriteCode.UNREACHABLE, WriteCode.PROVIDER_CONFLICT, WriteCode.CONSUMER_CONFLICT):
            self._run(lambda: self.go_on(lone, reply))
        else:
            lone.detail = reply.detail
            lone.ended(lone, reply.code)
