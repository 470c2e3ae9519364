# SPDX-License-Identifier: Apache-2.0
"""The writes of one simulated scheduler: what ``placement/batch_writer.py`` does with threads, in virtual time.

The queue and its pace are those of the product.  A call travels to Placement, takes the time of its consumers there,
and returns.  A call that is not answered before the deadline of its writes is given up, although Placement carries it
out later, unless it takes longer than a proxy in front of it allows.  Its consumers are then in doubt: they are read
at again a few times, as ``placement/in_doubt_writes.py`` does, and what nobody needs is deleted.

A write whose answer is lost is answered with UNREACHABLE at once; the product reads the consumer first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.write_pace import DELETERS, WRITERS, WritePace
from shared_scheduler.core.write_queue import Batch, Job, Work, WriteQueue, halves, job_of, not_carried_out
from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.sim.clock import LocalClock
from shared_scheduler.sim.placement import Write
from shared_scheduler.sim.surroundings import Surroundings

#: part of the calls under way that Placement has not done when it stops; the answers of all are lost
LOST_BEFORE_WRITING = 0.5
#: time after which Placement does not carry out a call any more.  Less than ``CARRIED_OUT_WITHIN_S``, because the
#: clock of a scheduler may jump meanwhile.
PROXY_TIMEOUT_S = 30.0
#: time after which a delete is given up
DELETE_PATIENCE_S = 10.0
#: interval at which writes that waited until their deadline are ended
DEADLINE_INTERVAL_S = 0.25
#: least time for which an answer is awaited
CALL_MIN_S = 0.5
#: when a consumer in doubt is read, after its write was given up; and the pause if an operation is under way
DOUBT_CHECKS_AFTER_S = (2.0, 10.0, 30.0)
DOUBT_CHECK_PAUSE_S = 10.0


class WritersListener(Protocol):
    """Receives the answers of the writers (the scheduler)."""

    def written_or_deleted(self, event: ev.AllocationWritten | ev.AllocationDeleted) -> None:
        """An effect was carried out, or not."""

    def is_needed(self, consumer: str, allocations: Allocations) -> bool | None:
        """What Nova shows of a server: whether it needs these allocations; None while an operation is under way."""

    def taken_back(self, consumer: str, allocations: Allocations) -> None:
        """These allocations, which stand in Placement, are about to be deleted."""


@dataclass(slots=True, eq=False)
class _Call:
    """One call that writes a batch.  ``done`` is called once, when its writer is free again."""

    batch: Batch
    done: Callable[[], None]
    sent_s: float
    arrived_s: float = 0.0
    is_awaited: bool = True
    writes: list[Write] = field(default_factory=list)

    def effects(self) -> list[ef.WriteAllocation]:
        """The writes of the batch."""
        return [job.work for job in self.batch if isinstance(job.work, ef.WriteAllocation)]


class SimWriters:
    """The queue of one scheduler's writes, and the calls under way."""

    def __init__(self, around: Surroundings, clock: LocalClock, rng: Random, listener: WritersListener) -> None:
        self._agenda = around.agenda
        self._placement = around.placement
        self._trace = around.trace
        self._delay_s = around.placement_delay_s
        self._clock = clock
        self._rng = rng
        self._listener = listener
        self._pace = WritePace()
        self._queue: WriteQueue[Work] = WriteQueue(self._pace)
        self._idle_writers, self._idle_deleters = WRITERS, DELETERS
        self._deadline_is_set = False
        self._halted = False

    def submit(self, work: Work) -> None:
        """Queue an effect."""
        if self._queue.add(job_of(work, self._clock.now)):
            self._send()
        else:
            self._reply(not_carried_out(work, ev.WriteCode.NEVER_SENT, "too many writes wait"))

    def halt(self) -> None:
        """Send nothing more: the process is frozen, or has ended."""
        self._halted = True

    def resume(self) -> None:
        """The process continues."""
        self._halted = False
        self._send()

    # -- the queue

    def _send(self) -> None:
        if self._halted:
            return
        while self._idle_writers and (batch := self._queue.take(self._clock.now)):
            self._idle_writers -= 1
            self._begin(batch, self._writer_done)
        while self._idle_deleters and (batch := self._queue.take_delete()):
            self._idle_deleters -= 1
            self._begin(batch, self._deleter_done)
        if self._queue.waiting and not self._deadline_is_set:
            self._deadline_is_set = True
            self._agenda.work(DEADLINE_INTERVAL_S, self._end_the_late)

    def _end_the_late(self) -> None:
        self._deadline_is_set = False
        if self._halted:
            return
        for job in self._queue.drop_late(self._clock.now):
            self._reply(not_carried_out(job.work, ev.WriteCode.NEVER_SENT, "it waited until its deadline"))
        self._send()

    def _writer_done(self) -> None:
        self._idle_writers += 1
        self._send()

    def _deleter_done(self) -> None:
        self._idle_deleters += 1
        self._send()

    # -- writes

    def _begin(self, batch: Batch, done: Callable[[], None]) -> None:
        if batch[0].deletes:
            self._agenda.work(self._delay_s() / 2, self._delete, batch[0], done)
            return
        call = _Call(batch, done, self._clock.now)
        left_s = max(job.deadline_s for job in batch) - call.sent_s
        self._agenda.work(self._delay_s() / 2, self._arrive, call)
        self._agenda.after(max(CALL_MIN_S, left_s), self._give_up, call)

    def _arrive(self, call: _Call) -> None:
        """Placement begins: it checks the capacity."""
        if not self._placement.up:
            self._answer(call, ev.WriteCode.UNREACHABLE, "down", may_arrive=False)
            return
        call.arrived_s = self._agenda.now
        call.writes = self._placement.begin_writes([(one.consumer, one.allocations) for one in call.effects()])
        takes_s = self._delay_s() / 2 + self._placement.takes_s(len(call.batch))
        self._agenda.work(takes_s, self._end, call)

    def _end(self, call: _Call) -> None:
        """Placement commits: all writes of the call, or none."""
        placement = self._placement
        if self._agenda.now - call.arrived_s > PROXY_TIMEOUT_S:
            return
        if not placement.up and self._rng.random() < LOST_BEFORE_WRITING:
            self._answer(call, ev.WriteCode.UNREACHABLE, "died before")
            return
        refusal = next(filter(None, map(placement.refusal, call.writes)), None)
        if refusal is None:
            for write in call.writes:
                placement.end_write(write)
        if not placement.up:
            self._answer(call, ev.WriteCode.UNREACHABLE, "the answer is lost")
        elif refusal is not None and len(call.batch) > 1:
            self._split(call)
        else:
            self._answer(call, *(refusal or (ev.WriteCode.WRITTEN, "")))

    def _split(self, call: _Call) -> None:
        if call.is_awaited:
            call.is_awaited = False
            self._queue.put_back(halves(call.batch))
            call.done()

    def _give_up(self, call: _Call) -> None:
        """No answer came in time."""
        if call.is_awaited:
            for effect in call.effects():
                self._doubt(effect)
            self._answer(call, ev.WriteCode.UNREACHABLE, "Placement did not answer in time")

    def _answer(self, call: _Call, code: ev.WriteCode, detail: str, may_arrive: bool = True) -> None:
        for effect in call.effects():
            self._trace.note("placement", f"{code.value} {effect.claim_id} {effect.consumer}")
        if not call.is_awaited:
            return
        call.is_awaited = False
        if code in (ev.WriteCode.WRITTEN, ev.WriteCode.UNREACHABLE):
            answered = code is ev.WriteCode.WRITTEN
            self._pace.measured(len(call.batch), self._clock.now - call.sent_s, answered)
        for job in call.batch:
            self._queue.done(job)
        call.done()
        for effect in call.effects():
            event = ev.AllocationWritten(effect.claim_id, code, detail, effect.allocations, cause=effect.cause)
            late = may_arrive and code is ev.WriteCode.UNREACHABLE
            self._reply(replace(event, consumer_s=self._pace.consumer_s, may_arrive=late))

    # -- deletes

    def _delete(self, job: Job[Work], done: Callable[[], None]) -> None:
        """The read of the consumer is done; the delete follows."""
        takes_s = 2 * self._placement.takes_s(1)
        in_time = takes_s < DELETE_PATIENCE_S
        self._agenda.work(min(takes_s, DELETE_PATIENCE_S), self._end_delete, job, done, in_time)

    def _end_delete(self, job: Job[Work], done: Callable[[], None], in_time: bool) -> None:
        """What ``placement/allocation_writer.py`` does: compare, ask Nova unless it is sole, delete."""
        effect = job.work
        assert isinstance(effect, ef.DeleteAllocation)
        up = self._placement.up and in_time
        gone, left_alone, detail = up, False, "" if up else "no answer"
        if up and self._placement.holds_exactly(effect.consumer, effect.written):
            sole = self._clock.now < effect.sole_until_s
            needed = False if sole else self._listener.is_needed(effect.consumer, effect.written)
            if needed is False:
                self._take_back(effect.consumer, effect.written, effect.claim_id)
            else:
                gone, left_alone, detail = False, bool(needed), "the server needs it"
        self._queue.done(job)
        done()
        self._reply(ev.AllocationDeleted(effect.claim_id, gone, detail, left_alone, cause=effect.cause))

    def _take_back(self, consumer: str, written: Allocations, claim_id: str) -> None:
        self._listener.taken_back(consumer, written)
        self._placement.delete(consumer)
        self._trace.note("placement", f"deleted {claim_id} {consumer}")

    def _reply(self, event: ev.AllocationWritten | ev.AllocationDeleted) -> None:
        """Deliver the answer of Placement."""
        self._agenda.after(self._delay_s() / 2, self._listener.written_or_deleted, event)

    # -- consumers in doubt

    def _doubt(self, effect: ef.WriteAllocation) -> None:
        for after_s in DOUBT_CHECKS_AFTER_S:
            self._agenda.work(after_s, self._check_in_doubt, effect)

    def _check_in_doubt(self, effect: ef.WriteAllocation) -> None:
        """Delete the allocations of a write that was given up, if they stand and nobody needs them."""
        if self._halted or not self._placement.holds_exactly(effect.consumer, effect.allocations):
            return
        needed = self._listener.is_needed(effect.consumer, effect.allocations)
        if needed is False:
            self._take_back(effect.consumer, effect.allocations, effect.claim_id)
        elif needed is None:
            self._agenda.work(DOUBT_CHECK_PAUSE_S, self._check_in_doubt, effect)
