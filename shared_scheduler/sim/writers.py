# SPDX-License-Identifier: Apache-2.0
"""The writes of one simulated scheduler: what ``placement/batch_writer.py`` does with threads, in virtual time.

The queue and its pace are those of the product.  A refused batch is split.  A consumer whose write gets no answer, or a
conflict, is completed by ``lone_writes.py``, and a write that no agent has judged by ``unjudged_writes.py``; their
writer is not free until then.  A write that was given up is in doubt (``in_doubt_sweep.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Protocol

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.write_pace import DELETERS, FURTHER_WRITER_AFTER_S, WRITERS, WritePace
from shared_scheduler.core.write_queue import Batch, Job, Work, WriteQueue, halves, job_of, not_carried_out
from shared_scheduler.placement.in_doubt_writes import InDoubtWrites
from shared_scheduler.placement.write_course import WriteCourse
from shared_scheduler.sim.clock import LocalClock
from shared_scheduler.sim.deletes import Deletes, Owners
from shared_scheduler.sim.in_doubt_sweep import InDoubtSweep
from shared_scheduler.sim.lone_write import LoneWrite
from shared_scheduler.sim.lone_writes import LoneWrites
from shared_scheduler.sim.surroundings import Surroundings
from shared_scheduler.sim.unjudged_writes import UnjudgedWrites
from shared_scheduler.sim.write_calls import CallReply, Wanted, WriteCalls

#: interval at which writes that have waited for a call to end, or until their deadline, are found
CHECK_INTERVAL_S = FURTHER_WRITER_AFTER_S


class WritersListener(Owners, Protocol):
    """Receives the answers of the writers (the scheduler)."""

    def written_or_deleted(self, event: ev.AllocationWritten | ev.AllocationDeleted) -> None:
        """An effect has ended: it was carried out, or it was not."""


#: answers after which the consumer is read
UNSETTLED = frozenset({ev.WriteCode.UNREACHABLE, ev.WriteCode.PROVIDER_CONFLICT, ev.WriteCode.CONSUMER_CONFLICT})


class SimWriters:
    """The queue of one scheduler's writes, and the calls under way."""

    def __init__(
        self, name: str, around: Surroundings, clock: LocalClock, rng: Random, listener: WritersListener
    ) -> None:
        self._agenda = around.agenda
        self._placement = around.placement
        self._delay_s = around.placement_delay_s
        self._clock = clock
        self._listener = listener
        self._pace = WritePace()
        self._queue: WriteQueue[Work] = WriteQueue(self._pace)
        self._idle_writers, self._idle_deleters = WRITERS, DELETERS
        self._writing = 0  # writers that carry out writes
        self._deadline_is_set = False
        self._halted = False
        self._parked: list[Callable[[], None]] = []  # steps of a frozen process
        self._calls = WriteCalls(around, rng, name)
        in_doubt = InDoubtWrites()
        self._deletes = Deletes(name, around, clock, in_doubt, listener)
        self._sweep = InDoubtSweep(around, clock, in_doubt, self._deletes, listener, self._queue.knows, self._run)
        self._unjudged = UnjudgedWrites(around, clock, rng, self._deletes, self._run, self._begin_again)
        self._lone = LoneWrites(around, clock, rng, self._calls, self._run, listener, in_doubt, self._unjudged.end)

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
        """The process continues, unless one of the steps that waited stops it again."""
        self._halted = False
        parked, self._parked = self._parked, []
        for step in parked:
            self._run(step)
        self._send()

    def _run(self, step: Callable[[], None]) -> None:
        if self._halted:
            self._parked.append(step)
        else:
            step()

    # -- the queue

    def _send(self) -> None:
        if self._halted:
            return
        while self._idle_writers and (batch := self._queue.take(self._clock.now, self._writing)):
            self._idle_writers -= 1
            self._writing += not batch[0].deletes
            self._begin(batch, partial(self._writer_done, not batch[0].deletes))
        while self._idle_deleters and (batch := self._queue.take_delete(self._idle_writers > 0)):
            self._idle_deleters -= 1
            self._begin(batch, self._deleter_done)
        if self._queue.waiting and not self._deadline_is_set:
            self._deadline_is_set = True
            self._agenda.work(CHECK_INTERVAL_S, self._end_the_late)

    def _end_the_late(self) -> None:
        self._deadline_is_set = False
        if self._halted:
            return
        for job in self._queue.drop_late(self._clock.now):
            self._reply(not_carried_out(job.work, ev.WriteCode.NEVER_SENT, "it waited until its deadline"))
        self._send()

    def _writer_done(self, wrote: bool) -> None:
        self._idle_writers += 1
        self._writing -= wrote
        self._send()

    def _deleter_done(self) -> None:
        self._idle_deleters += 1
        self._send()

    # -- writes

    def _begin(self, batch: Batch, done: Callable[[], None]) -> None:
        if batch[0].deletes:
            self._delete(batch[0], done)
            return
        if _effects(batch)[0].policy is ef.ConsumerPolicy.MERGE:
            (lone,) = self._alone(batch, done)
            self._lone.begin(lone)
            return
        sent_s = self._clock.now
        left_s = max(job.deadline_s for job in batch) - sent_s
        wanted = [Wanted(one.claim_id, one.consumer, one.allocations) for one in _effects(batch)]
        self._calls.send(wanted, left_s, partial(self._replied, batch, done, sent_s))

    def _replied(self, batch: Batch, done: Callable[[], None], sent_s: float, reply: CallReply) -> None:
        """A call has ended."""
        code = reply.code
        self._lone.note(_effects(batch), reply, sent_s)
        if code in (ev.WriteCode.WRITTEN, ev.WriteCode.UNREACHABLE):
            self._pace.measured(len(batch), sent_s, self._clock.now - sent_s, code is ev.WriteCode.WRITTEN)
        elif len(batch) > 1:
            self._queue.put_back(halves(batch))
            done()
            return
        if code in UNSETTLED:
            self._complete(batch, done, reply)
            return
        if batch[0].alone:
            (lone,) = self._alone(batch, done)
            lone.detail = reply.detail
            self._unjudged.end(lone, code)
            return
        for job in batch:
            self._queue.done(job)
        done()
        for effect in _effects(batch):
            lone = LoneWrite(WriteCourse.begin(effect), _ignore, detail=reply.detail)
            self._lone.ended(lone, code)
            self._answer(lone, code)

    def _complete(self, batch: Batch, done: Callable[[], None], reply: CallReply) -> None:
        """Read each consumer, and go on with it alone."""
        for lone in self._alone(batch, done):
            self._lone.go_on(lone, reply)

    def _alone(self, batch: Batch, done: Callable[[], None]) -> list[LoneWrite]:
        """The writes of a batch, each alone; the writer is free when all have ended."""
        left = list(batch)

        def ended(job: Job[Work], lone: LoneWrite, code: ev.WriteCode) -> None:
            left.remove(job)
            self._queue.done(job)
            if not left:
                done()
            self._lone.ended(lone, code)
            if lone.course.unsure and code is not ev.WriteCode.WRITTEN:
                self._sweep.begin(lone.effect)
            self._answer(lone, code)

        pairs = zip(batch, _effects(batch), strict=True)
        lone_writes = [
            LoneWrite(WriteCourse.begin(effect), partial(ended, job), sent_s=self._clock.now) for job, effect in pairs
        ]
        for job, lone in zip(batch, lone_writes, strict=True):
            if not lone.effect.serialise:  # the others keep their host: only their order prevents over-commit
                lone.pause, lone.resume = partial(self._pause, job), partial(self._queue.resume, job)
        return lone_writes

    def _begin_again(self, lone: LoneWrite) -> None:
        self._lone.begin(lone)

    def _pause(self, job: Job[Work]) -> None:
        self._queue.pause(job)
        self._send()

    def _answer(self, lone: LoneWrite, code: ev.WriteCode) -> None:
        effect, course, left = lone.effect, lone.course, lone.course.attempt(code)
        self._reply(ev.AllocationWritten(
            effect.claim_id, code, lone.detail, left.written, left.before, left.generation, cause=effect.cause,
            consumer_s=self._pace.filled_consumer_s, may_arrive=course.may_arrive, found=course.is_found,
        ))  # fmt: skip

    # -- deletes

    def _delete(self, job: Job[Work], done: Callable[[], None]) -> None:
        effect = job.work
        assert isinstance(effect, ef.DeleteAllocation)

        def ended(event: ev.AllocationDeleted) -> None:
            self._queue.done(job)
            done()
            self._reply(event)

        self._deletes.begin(effect, ended)

    def _reply(self, event: ev.AllocationWritten | ev.AllocationDeleted) -> None:
        """Deliver the answer of Placement."""
        self._agenda.after(self._delay_s() / 2, self._listener.written_or_deleted, event)


def _ignore(_lone: LoneWrite, _code: ev.WriteCode) -> None:
    """A write that ends with its first answer."""


def _effects(batch: Batch) -> list[ef.WriteAllocation]:
    """The writes of a batch."""
    return [job.work for job in batch if isinstance(job.work, ef.WriteAllocation)]
