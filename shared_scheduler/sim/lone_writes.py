# SPDX-License-Identifier: Apache-2.0
"""The writes of single consumers after a conflict or without an answer: what ``placement/allocation_writer.py`` does
with a thread, in virtual time.  Both follow ``placement/write_course.py``.

Simulated providers have no generations, so a conflict that lasts is never blamed on the consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Protocol

from shared_scheduler.core.effects import WriteAllocation
from shared_scheduler.core.events import WriteCode
from shared_scheduler.placement import consumer_conflicts
from shared_scheduler.placement.consumer_conflicts import ConflictCase, ConsumerAllocations
from shared_scheduler.placement.in_doubt_writes import InDoubtWrites, WriteAttempt
from shared_scheduler.placement.own_records import OwnRecords
from shared_scheduler.placement.write_course import READ_AGAIN_S
from shared_scheduler.sim.clock import LocalClock
from shared_scheduler.sim.lone_write import LoneWrite
from shared_scheduler.sim.surroundings import Surroundings
from shared_scheduler.sim.write_calls import CALL_MIN_S, CallReply, Wanted, WriteCalls

#: interval at which a write that has waited looks whether its host is free again
RESUME_AGAIN_S = 0.02


class NovaFacts(Protocol):
    """What a scheduler reads of a server in Nova's databases."""

    def is_merged_move(self, consumer: str) -> bool:
        """Whether it moves, and the option names this type of move."""

    def is_in_cell(self, consumer: str) -> bool:
        """Whether the conductor has created it in a cell, which it does after an answer."""


class LoneWrites:
    """The writes of one scheduler that are under way.  ``run`` runs a step, while its process is frozen later.  ``end``
    ends a write that nothing more is sent for."""

    def __init__(
        self,
        around: Surroundings,
        clock: LocalClock,
        rng: Random,
        calls: WriteCalls,
        run: Callable[[Callable[[], None]], None],
        nova: NovaFacts,
        in_doubt: InDoubtWrites,
        end: Callable[[LoneWrite, WriteCode], None],
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
        self._in_doubt = in_doubt
        self._end = end

    def begin(self, lone: LoneWrite) -> None:
        """Send a write, that of an evacuation after a read unless the table knows what the consumer has."""
        if lone.course.needs_read:
            self._read(lone, self._merge)
        else:
            self._send(lone)

    def _merge(self, lone: LoneWrite) -> None:
        if self._clock.now >= lone.effect.deadline_s:
            self._end(lone, lone.course.unread)
            return
        lone.course.merge_with(self._standing(lone.effect), self._attempts(lone.effect))
        self._send(lone)

    def _standing(self, effect: WriteAllocation) -> ConsumerAllocations:
        """What Placement has of a consumer.  All writers of a simulated world write for its owner."""
        found = self._placement.standing(effect.consumer)
        return replace(found, project_id=effect.project_id, user_id=effect.user_id) if found.allocations else found

    def _attempts(self, effect: WriteAllocation) -> tuple[WriteAttempt, ...]:
        attempts = self._in_doubt.attempts(effect.consumer, self._clock.now)
        return () if attempts and effect.is_new and self._nova.is_in_cell(effect.consumer) else attempts

    def ended(self, lone: LoneWrite, code: WriteCode) -> None:
        """Note that a write has ended: whether it may have been carried out although it got no answer."""
        effect, left = lone.effect, lone.course.attempt(code)
        if code is WriteCode.WRITTEN:
            self._in_doubt.settled(effect.consumer, effect.claim_id, left, effect.nova_knows_s)
        elif lone.course.unsure:
            self._in_doubt.add(effect.consumer, left, self._clock.now)

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
        if in_time and self._placement.answers:
            then(lone)
        elif self._clock.now + READ_AGAIN_S < lone.effect.deadline_s:
            self._wait(lone, READ_AGAIN_S, lambda: self._read(lone, then))
        else:
            self._end(lone, lone.course.unread)

    def _compare(self, lone: LoneWrite) -> None:
        consumer, now = lone.effect.consumer, self._clock.now
        course, standing, attempts = lone.course, self._standing(lone.effect), self._attempts(lone.effect)
        if standing.allocations:
            self._own_records.written(consumer)
        found, record = course.find(standing, attempts), self._own_records.state(consumer, now)
        if course.may_be_answered(found) and self._nova.is_in_cell(consumer):
            found = ConflictCase.FOREIGN
        merges = self._nova.is_merged_move(consumer) and course.may_merge(standing, found, now)
        code = course.compare(standing, found, now, record, merges=merges, attempts=attempts)
        if code is not None:
            self._end(lone, code)
            return
        pause_s = consumer_conflicts.CONFLICT_BACKOFF.wait_s(self._rng, course.sent)
        self._wait(lone, pause_s, lambda: self._send(lone))

    def _wait(self, lone: LoneWrite, for_s: float, then: Callable[[], None]) -> None:
        """Wait between two calls."""
        lone.pause()
        self._agenda.work(for_s, self._run, lambda: self._resume(lone, then))

    def _resume(self, lone: LoneWrite, then: Callable[[], None]) -> None:
        if lone.resume():
            then()
        elif self._clock.now >= lone.effect.deadline_s:
            self._end(lone, lone.course.unfinished)
        else:
            self._agenda.work(RESUME_AGAIN_S, self._run, lambda: self._resume(lone, then))

    def _send(self, lone: LoneWrite) -> None:
        effect, write = lone.effect, lone.course.next
        lone.course.sending()
        lone.sent_s = self._clock.now
        wanted = Wanted(effect.claim_id, effect.consumer, write.allocations, write.generation)
        self._calls.send([wanted], effect.deadline_s - lone.sent_s, lambda reply: self._hear(lone, reply))

    def _hear(self, lone: LoneWrite, reply: CallReply) -> None:
        if lone.course.next.generation is None or reply.code is WriteCode.WRITTEN:
            self.note([lone.effect], reply, lone.sent_s)
        if reply.code in (WriteCode.UNREACHABLE, WriteCode.PROVIDER_CONFLICT, WriteCode.CONSUMER_CONFLICT):
            self._run(lambda: self.go_on(lone, reply))
        else:
            lone.detail = reply.detail
            self._end(lone, reply.code)
