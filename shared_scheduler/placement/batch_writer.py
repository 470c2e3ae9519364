# SPDX-License-Identifier: Apache-2.0
"""Carries out ``WriteAllocation`` and ``DeleteAllocation``: the only module that changes allocations in Placement.

``submit`` never blocks.  Writer threads take the batches of ``core/write_queue.py``; writes that were queued while they
were busy are sent together as one ``POST /allocations``.  A refused batch is split until the consumer that caused the
refusal is alone; ``allocation_writer`` completes single consumers.  While a writer waits between two calls, a spare one
takes its turn.  A further thread takes deletes only, so that they neither wait for writes nor hold them up.  A deadline
thread ends writes that waited too long, and a sweeper thread checks writes with an unknown outcome; neither waits for a
busy writer.

Every effect is answered exactly once, with ``answer``, from one of these threads.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from shared_scheduler.core.effects import DeleteAllocation, ExamineChange, WriteAllocation
from shared_scheduler.core.events import AllocationDeleted, AllocationWritten, WriteCode
from shared_scheduler.core.write_pace import (
    DELETERS,
    FURTHER_WRITER_AFTER_S,
    MAX_WAITING,
    SPARE_WRITERS,
    WRITERS,
    WritePace,
)
from shared_scheduler.core.write_queue import (
    INTERNAL_ERROR,
    Batch,
    Job,
    Work,
    WriteQueue,
    halves,
    job_of,
    not_carried_out,
)
from shared_scheduler.placement.allocation_writer import REFUSED, AllocationWriter
from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.connection import Meaning, Reply, no_reply
from shared_scheduler.placement.consumer_write import ConsumerWrite, first_write
from shared_scheduler.placement.foreign_changes import ForeignChange
from shared_scheduler.placement.reconciler import Locate
from shared_scheduler.transport.rate_limited_log import RateLimitedLog

LOG = logging.getLogger(__name__)

Answer = Callable[[AllocationWritten | AllocationDeleted], None]

LATE = "Placement does not keep up: the write waited until its deadline"
#: Results of single writes for which Placement did not answer.
UNANSWERED = frozenset({WriteCode.UNREACHABLE, WriteCode.NOT_SERVED})
#: Interval at which the deadline thread searches for jobs that waited too long.
DEADLINE_INTERVAL_S = 0.25
#: Time for which ``stop`` lets queued writes be sent.
DRAIN_S = 10.0
#: Time for which ``stop`` waits for a thread in a call.
JOIN_S = 12.0
#: Interval at which the sweeper checks whether a consumer in doubt is due.
SWEEP_INTERVAL_S = 1.0


class BatchWriter:
    """The queue and the threads of all writes.  Start it after the last fork; ``stop`` drains the queue."""

    def __init__(
        self,
        client: PlacementClient,
        answer: Answer,
        locate: Locate,
        *,
        writers: int = WRITERS,
        deleters: int = DELETERS,
        max_waiting: int = MAX_WAITING,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
        merged_moves: Collection[str] = (),
        record_change: Callable[[ForeignChange], None] = lambda change: None,
    ) -> None:
        """``locate`` reads the location of a server from Nova; without Nova it is ``reconciler.without_nova``.
        ``merged_moves`` and ``record_change``: see ``AllocationWriter``."""
        self._client = client
        self._answer = answer
        self._clock = clock
        self._pace = WritePace()  # only used under the lock
        self._queue: WriteQueue[Work] = WriteQueue(self._pace, max_waiting)
        self._turned_away: deque[Work] = deque()
        lock = threading.Lock()
        #: a job may be sent; only one writer is woken for it
        self._ready = threading.Condition(lock)
        #: a delete may be sent
        self._delete_ready = threading.Condition(lock)
        #: a write that has waited until it is sent again may go on
        self._resumed = threading.Condition(lock)
        #: the deadline thread and ``stop`` wait for this condition
        self._changed = threading.Condition(lock)
        self._draining = False
        self._stopped = threading.Event()
        self._is_over = False  # the deadline thread ends, as the last one
        self._waits = threading.local()  # job, waited_s: the write that a thread carries out, and its waits; is_writer
        self._writers, self._writer_threads = writers, writers  # batches at once, and threads
        self._log = RateLimitedLog(LOG)
        self._carrying_out, self._aside = 0, 0  # writers, and those of them that wait between two calls
        self._deleting = 0  # those of them that carry out a delete
        self._standing_by = 0  # writers that look again soon whether a write has waited for too long: one at most
        self._delivering = 0  # threads whose answers the core handles at present
        self._writer = AllocationWriter(
            client,
            clock,
            self._pause,
            rng or random.Random(),
            locate,
            merged_moves=merged_moves,
            record_change=record_change,
        )
        runs = [(f"placement-writer-{number}", self._write) for number in range(writers)]
        runs += [(f"placement-deleter-{number}", self._delete) for number in range(deleters)]
        runs += [("placement-sweeper", self._sweep)]
        self._threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in runs]
        self._deadline = threading.Thread(target=self._watch, name="placement-deadline", daemon=True)

    def start(self) -> None:
        """Start the threads."""
        for thread in (*self._threads, self._deadline):
            thread.start()

    def submit(self, work: Work) -> None:
        """Queue an effect; never blocks.  It is answered later, also if it is refused."""
        with self._changed:
            job = job_of(work, self._clock(), self._client.guards_capacity)
            if self._refuses(job) or not self._queue.add(job):
                self._turned_away.append(work)
                self._changed.notify_all()
            else:
                self._wake()

    def _refuses(self, job: Job[Work]) -> bool:
        """Whether the writer stops.  Before its end it still takes deletes, of what was written meanwhile."""
        return self._stopped.is_set() or (self._draining and not job.deletes)

    def _wake(self) -> None:
        if not (self._writing and self._standing_by):
            self._ready.notify()
        if self._queue.has_deletes:
            self._delete_ready.notify()

    def stop(self, drain_s: float = DRAIN_S) -> None:
        """Refuse new writes, send queued work for a bounded time, and end the rest."""
        with self._changed:
            self._draining = True
            self._changed.notify_all()
            self._changed.wait_for(self._idle, drain_s)
            self._turn_all_away()
            self._stopped.set()
            for condition in (self._changed, self._ready, self._delete_ready, self._resumed):
                condition.notify_all()
        self._join(self._threads)
        with self._changed:  # only now, because a call that ends late may put its writes back
            self._is_over = True
            self._changed.notify_all()
        self._join([self._deadline])

    def _turn_all_away(self) -> None:
        self._turned_away.extend(job.work for job in self._queue.drop(lambda _: True))

    def _join(self, threads: Iterable[threading.Thread]) -> None:
        for thread in threads:
            if thread.ident is not None:
                thread.join(JOIN_S)

    def waiting(self) -> int:
        """The number of effects that are queued and not in flight."""
        with self._changed:
            return self._queue.waiting

    def restore(self, write: ConsumerWrite) -> Reply | None:
        """Restore the allocations of a consumer at once, in the thread of the caller: see ``reconciler.Restore``."""
        return self._writer.restore(write)

    def examine(self, effect: ExamineChange) -> None:
        """Find out what a change means that the core has found; never blocks."""
        self._writer.examiner.found(effect)

    def change_counts(self) -> dict[str, int]:
        """Kind of foreign change -> number."""
        return self._writer.foreign_changes.counts()

    def foreign_changes(self) -> dict[str, Any]:
        """The changes of consumers that other writers made since the last write of this scheduler."""
        return self._writer.foreign_changes.report()

    def in_doubt(self) -> int:
        """The number of consumers whose allocations are in doubt."""
        return self._writer.in_doubt()

    def _idle(self) -> bool:
        return not (self._queue.waiting or self._queue.in_flight or self._turned_away or self._delivering)

    # -- writers and deleters ----------------------------------------------------------------

    def _write(self) -> None:
        self._waits.is_writer = True
        self._work(self._take, self._stand_by)

    def _stand_by(self) -> None:
        """Wait until there is something to take; while writes wait for a call to end, one waits no longer than they
        may, and wakes the next one if it leaves something."""
        if self._standing_by or not (self._queue.waiting and self._at_work < self._writers):
            self._ready.wait()
            return
        self._standing_by += 1
        self._ready.wait(FURTHER_WRITER_AFTER_S)
        self._standing_by -= 1

    @property
    def _at_work(self) -> int:
        """The writers that carry out a batch and do not wait between two calls."""
        return self._carrying_out - self._aside

    @property
    def _writing(self) -> int:
        """The writers at work that carry out writes, to whose next call others may be added."""
        return max(0, self._at_work - self._deleting)

    def _take(self) -> Batch:
        """The next batch of a writer; empty if as many as may are carried out."""
        if self._at_work >= self._writers:
            return ()
        batch = self._queue.take(self._clock(), self._writing)
        self._carrying_out += bool(batch)
        self._deleting += _is_delete(batch)
        return batch

    def _delete(self) -> None:
        self._work(lambda: self._queue.take_delete(self._at_work < self._writers), self._delete_ready.wait)

    def _work(self, take: Callable[[], Batch], wait: Callable[[], object]) -> None:
        while True:
            with self._changed:
                while not (batch := take()):
                    if self._stopped.is_set():
                        return
                    wait()
                if self._queue.waiting:
                    self._wake()  # one job that ends may free the providers of several others
            self._carry_out(batch)

    def _carry_out(self, batch: Batch) -> None:
        try:
            self._settle(batch)
        except Exception:
            LOG.exception("a write to Placement failed with an unexpected error")
            self._give_up(batch, WriteCode.UNREACHABLE, INTERNAL_ERROR)
        finally:
            with self._changed:
                self._carrying_out -= self._is_writer
                self._deleting -= self._is_writer and _is_delete(batch)

    def _settle(self, batch: Batch) -> None:
        if len(batch) > 1:
            self._post(batch)
            return
        work = batch[0].work
        if isinstance(work, DeleteAllocation):
            self._done(batch[0], self._writer.delete(work))
            return
        self._waits.waited_s, began_s = 0.0, self._clock()
        answer = self._write_one(batch[0], work)
        if answer.code is WriteCode.WRITTEN:
            self._measured(1, began_s + self._waits.waited_s, True)
        elif answer.code in UNANSWERED:
            self._measured(1, began_s, False)
        self._done(batch[0], answer)

    def _write_one(self, job: Job[Work], work: WriteAllocation, batch: Reply | None = None) -> AllocationWritten:
        """Write one consumer.  Its waits free the host, unless only the order of the writes prevents over-commit."""
        self._waits.job = None if work.serialise and not self._client.guards_capacity else job
        try:
            return self._writer.write(work, batch)
        finally:
            self._waits.job = None

    def _pause(self, for_s: float) -> bool:
        """Wait between the calls of a write; True if it must end.  It is no time that Placement takes to write."""
        began_s, job = self._clock(), getattr(self._waits, "job", None)
        if job is not None:
            self._free(job)
        self._step_aside()
        try:
            ends = self._stopped.wait(for_s) or (job is not None and not self._resume(job))
        finally:
            with self._changed:
                self._aside -= self._is_writer
        self._waits.waited_s = getattr(self._waits, "waited_s", 0.0) + self._clock() - began_s
        return ends

    @property
    def _is_writer(self) -> bool:
        """Whether this thread is a writer."""
        return bool(getattr(self._waits, "is_writer", False))

    def _step_aside(self) -> None:
        """Let another writer work while this one waits; start one if none is free."""
        with self._changed:
            self._aside += self._is_writer
            free = self._writer_threads - self._aside
            if free < self._writers and self._writer_threads < self._writers + SPARE_WRITERS:
                self._start_one_more()
            if self._queue.waiting:
                self._wake()

    def _start_one_more(self) -> None:
        """Start a spare writer; if that is not possible, other writes wait until this one goes on."""
        if self._stopped.is_set():
            return
        name = f"placement-writer-{self._writer_threads}"
        thread = threading.Thread(target=self._write, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # "can't start new thread"
            self._log.write(logging.WARNING, "spare writer", "no spare writer was started: %s", error)
            return
        self._writer_threads += 1
        self._threads.append(thread)

    def _free(self, job: Job[Work]) -> None:
        with self._changed:
            self._queue.pause(job)
            self._resumed.notify_all()
            if self._queue.waiting:
                self._wake()

    def _resume(self, job: Job[Work]) -> bool:
        """Wait until the host of a write is free again; False if that takes until its deadline, or the writer stops."""
        with self._changed:
            while not self._queue.resume(job):
                left_s = job.deadline_s - self._clock()
                if self._stopped.is_set() or left_s <= 0 or not self._resumed.wait(left_s):
                    return False
        return True

    def _measured(self, consumers: int, began_s: float, answered: bool) -> None:
        with self._changed:
            self._pace.measured(consumers, began_s, self._clock() - began_s, answered)

    def _post(self, batch: Batch) -> None:
        """Write a batch in one call; split it if Placement refuses it."""
        works = [job.work for job in batch if isinstance(job.work, WriteAllocation)]
        began_s = self._clock()
        left_s = max(work.deadline_s for work in works) - began_s
        wait_s = min(self._client.timeout_s, max(left_s, 0.5))
        reply = self._write_many(works, wait_s)
        meaning = reply.meaning
        if meaning in (Meaning.DONE, Meaning.UNKNOWN):
            self._measured(len(works), began_s, meaning is Meaning.DONE)
        if meaning is Meaning.DONE:
            self._all_written(batch, reply)
        elif meaning is Meaning.UNKNOWN:
            self._writer.batch_failed(works, reply)
            self._compare_each(batch, reply)
        elif meaning in REFUSED:
            self._give_up(batch, REFUSED[meaning], reply.describe())
        else:
            self._writer.batch_failed(works, reply)
            self._split(batch, reply)

    def _write_many(self, works: Sequence[WriteAllocation], wait_s: float) -> Reply:
        """Send a batch.  After an unexpected error it may be carried out, like one without an answer."""
        try:
            return self._client.write_many(map(first_write, works), works[0].request_id, wait_s)
        except Exception:
            LOG.exception("a batch of %d writes failed with an unexpected error", len(works))
            return no_reply(INTERNAL_ERROR)

    def _split(self, batch: Batch, reply: Reply) -> None:
        LOG.debug("a batch of %d was refused, splitting it: %s", len(batch), reply.detail)
        with self._changed:
            self._queue.put_back(halves(batch))
            self._resumed.notify_all()
            self._ready.notify_all()
            self._delete_ready.notify()

    def _all_written(self, batch: Batch, reply: Reply) -> None:
        for job in batch:
            if isinstance(job.work, WriteAllocation):
                self._done(job, self._writer.written(job.work, reply))

    def _compare_each(self, batch: Batch, reply: Reply) -> None:
        """Check each consumer of a batch whose outcome is unknown, the last one first.

        Placement makes the records of new consumers in the order of the call.  If it was killed meanwhile, the first
        ones have a record, which may refuse their writes until their deadline; the others need not wait for that.
        Those that wait for their turn free their hosts.
        """
        for job in batch:
            self._free(job)
        for job in reversed(batch):
            if isinstance(job.work, WriteAllocation):
                self._resume(job)
                self._done(job, self._write_one(job, job.work, reply))

    def _give_up(self, jobs: Sequence[Job[Work]], code: WriteCode, why: str) -> None:
        for job in jobs:
            self._done(job, not_carried_out(job.work, code, why))

    def _done(self, job: Job[Work], event: AllocationWritten | AllocationDeleted) -> None:
        with self._changed:
            if not self._queue.done(job):
                return
            self._resumed.notify_all()
            if self._queue.waiting:
                self._wake()  # for jobs that waited for the same providers
            consumer_s = self._pace.filled_consumer_s
            self._delivering += 1  # the core may have more to delete
        self._deliver(replace(event, consumer_s=consumer_s) if isinstance(event, AllocationWritten) else event)
        self._delivered()

    def _delivered(self) -> None:
        with self._changed:
            self._delivering -= 1
            if self._idle():
                self._changed.notify_all()

    def _deliver(self, event: AllocationWritten | AllocationDeleted) -> None:
        try:
            self._answer(event)
        except Exception:
            LOG.exception("the answer %s could not be delivered", event)

    # -- deadlines and checks ------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._is_over:
            with self._changed:
                self._changed.wait_for(lambda: self._turned_away or self._is_over, DEADLINE_INTERVAL_S)
            self._end_the_late()
        self._end_the_late()

    def _sweep(self) -> None:
        while not self._stopped.wait(SWEEP_INTERVAL_S):
            try:
                self._writer.sweep(self._busy)
                self._writer.examiner.examine_due()
            except Exception:
                LOG.exception("checking writes with an unknown outcome failed with an unexpected error")
        self._writer.sweep(self._busy, everything=True)
        self._writer.examiner.end()

    def _end_the_late(self) -> None:
        with self._changed:
            late = self._drop_late()
            if self._stopped.is_set():
                self._turn_all_away()
            away, self._turned_away = self._turned_away, deque()
            self._delivering += 1  # requests fail because of these, and the core may have more to delete
        for job in late:
            self._deliver(not_carried_out(job.work, WriteCode.NEVER_SENT, LATE))
        why = "the scheduler stops" if self._draining else "too many writes wait for Placement"
        for work in away:
            self._deliver(not_carried_out(work, WriteCode.NEVER_SENT, why))
        self._delivered()

    def _drop_late(self) -> Sequence[Job[Work]]:
        late = self._queue.drop_late(self._clock())
        if late:  # other jobs may have waited behind them
            self._ready.notify_all()
            self._delete_ready.notify()
        return late

    def _busy(self, consumer: str) -> bool:
        with self._changed:
            return self._queue.knows(consumer)


def _is_delete(batch: Batch) -> bool:
    return any(job.deletes for job in batch)
