# SPDX-License-Identifier: Apache-2.0
"""Carries out ``WriteAllocation`` and ``DeleteAllocation``: the one way to Placement's allocations.

``submit`` never blocks.  Some worker threads take what ``batches`` lets go; what queued up while they
were busy goes out together as one ``POST /allocations``.  A refused batch is split until the guilty
consumer is alone; ``allocation_writer`` brings single consumers to their end.  A clerk thread ends what waited
beyond its deadline, and a sweeper checks consumers in doubt, so that neither waits for a busy
worker.

Every effect is answered exactly once, through ``answer``, from one of these threads.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from shared_scheduler.core.effects import ConsumerPolicy, DeleteAllocation, WriteAllocation
from shared_scheduler.core.events import AllocationDeleted, AllocationWritten, WriteCode
from shared_scheduler.placement.allocation_writer import AllocationWriter, first_write
from shared_scheduler.placement.batches import MAX_BATCH, MAX_WAITING, Batches, Job, halves
from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.connection import Meaning, Reply
from shared_scheduler.placement.reconciler import Locate

LOG = logging.getLogger(__name__)

Work = WriteAllocation | DeleteAllocation
Batch = tuple[Job[Work], ...]
Answer = Callable[[AllocationWritten | AllocationDeleted], None]

#: Writes in flight: a Placement with a few cores has no use for more.
WORKERS = 4
#: How often the clerk searches for work that waited too long.
CLERK_INTERVAL_S = 0.25
#: How long ``stop`` lets queued writes go out.
DRAIN_S = 10.0
#: How long ``stop`` waits for one thread that is in the middle of a call.
JOIN_S = 12.0
#: How often the sweeper asks whether a doubtful consumer is due.
SWEEP_INTERVAL_S = 1.0


class GroupCommit:
    """Start it after any fork; ``stop`` drains."""

    def __init__(
        self,
        client: PlacementClient,
        answer: Answer,
        locate: Locate,
        *,
        workers: int = WORKERS,
        max_batch: int = MAX_BATCH,
        max_waiting: int = MAX_WAITING,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        """``locate``: what Nova knows of a server; ``reconciler.without_nova`` where there is none."""
        self._client = client
        self._answer = answer
        self._clock = clock
        self._batches: Batches[Work] = Batches(max_batch, max_waiting)
        self._turned_away: deque[Work] = deque()
        lock = threading.Lock()
        #: something may go out; one worker is woken for it, not all of them
        self._ready = threading.Condition(lock)
        #: what clerk and ``stop`` wait for
        self._changed = threading.Condition(lock)
        self._draining = False
        self._stopped = threading.Event()
        self._writer = AllocationWriter(
            client, clock, self._stopped.wait, rng or random.Random(), locate
        )
        names = [f"placement-writer-{number}" for number in range(workers)]
        self._threads = [threading.Thread(target=self._work, name=n, daemon=True) for n in names]
        for name, run in (("placement-clerk", self._watch), ("placement-sweeper", self._sweep)):
            self._threads.append(threading.Thread(target=run, name=name, daemon=True))

    def start(self) -> None:
        """Begin to write."""
        for thread in self._threads:
            thread.start()

    def submit(self, work: Work) -> None:
        """Queue one; never blocks.  Answered later even if it is turned away."""
        with self._changed:
            if self._draining or not self._batches.add(_job(work)):
                self._turned_away.append(work)
                self._changed.notify_all()
            else:
                self._ready.notify()

    def stop(self, drain_s: float = DRAIN_S) -> None:
        """Take nothing new, let what is queued go out for a bounded time, end the rest."""
        with self._changed:
            self._draining = True
            self._changed.notify_all()
            self._changed.wait_for(self._idle, drain_s)
            self._turned_away.extend(job.work for job in self._batches.drop(lambda _: True))
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
            self._ready.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(JOIN_S)

    def waiting(self) -> int:
        """Effects queued and not in flight."""
        with self._changed:
            return self._batches.waiting

    def in_doubt(self) -> int:
        """Consumers whose allocations are not known for sure."""
        return self._writer.in_doubt()

    def _idle(self) -> bool:
        return not (self._batches.waiting or self._batches.in_flight)

    # -- workers -----------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._ready:
                batch = self._batches.take()
                while not batch:
                    if self._stopped.is_set():
                        return
                    self._ready.wait()
                    batch = self._batches.take()
            self._carry_out(batch)

    def _carry_out(self, batch: Batch) -> None:
        try:
            self._settle(batch)
        except Exception:
            LOG.exception("a write to Placement failed in an unforeseen way")
            self._give_up(batch, "internal error, see the log of the scheduler")

    def _settle(self, batch: Batch) -> None:
        if len(batch) > 1:
            self._post(batch)
            return
        work = batch[0].work
        if isinstance(work, DeleteAllocation):
            self._done(batch[0], self._writer.delete(work))
        else:
            self._done(batch[0], self._writer.write(work))

    def _post(self, batch: Batch) -> None:
        """Write several in one go; split where Placement says no to the whole."""
        works = [job.work for job in batch if isinstance(job.work, WriteAllocation)]
        left_s = max(work.deadline_s for work in works) - self._clock()
        wait_s = min(self._client.timeout_s, max(left_s, 0.5))
        reply = self._client.write_many(map(first_write, works), works[0].request_id, wait_s)
        meaning = reply.meaning
        if meaning is Meaning.DONE:
            self._all_written(batch)
        elif meaning is Meaning.UNKNOWN:
            self._compare_each(batch)
        elif meaning in (Meaning.DENIED, Meaning.ODD):
            self._give_up(batch, reply.describe())
        else:
            self._split(batch, reply)

    def _split(self, batch: Batch, reply: Reply) -> None:
        LOG.debug("a batch of %d was refused, splitting it: %s", len(batch), reply.detail)
        with self._changed:
            self._batches.put_back(halves(batch))
            self._ready.notify_all()

    def _all_written(self, batch: Batch) -> None:
        for job in batch:
            if isinstance(job.work, WriteAllocation):
                self._done(job, self._writer.written(job.work))

    def _compare_each(self, batch: Batch) -> None:
        """Nobody knows whether the batch was written: each consumer tells."""
        for job in batch:
            if isinstance(job.work, WriteAllocation):
                self._done(job, self._writer.write(job.work, unsure=True))

    def _give_up(self, jobs: Sequence[Job[Work]], why: str) -> None:
        for job in jobs:
            self._done(job, _not_done(job.work, why))

    def _done(self, job: Job[Work], event: AllocationWritten | AllocationDeleted) -> None:
        with self._changed:
            if not self._batches.done(job):
                return
            if self._batches.waiting:
                self._ready.notify()  # for what waited for this one's providers
            elif self._idle():
                self._changed.notify_all()
        self._tell(event)

    def _tell(self, event: AllocationWritten | AllocationDeleted) -> None:
        try:
            self._answer(event)
        except Exception:
            LOG.exception("nobody took the answer %s", event)

    # -- clerk and sweeper ---------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stopped.is_set():
            with self._changed:
                self._changed.wait_for(self._clerk_wanted, CLERK_INTERVAL_S)
            self._end_the_late()
        self._end_the_late()

    def _sweep(self) -> None:
        while not self._stopped.wait(SWEEP_INTERVAL_S):
            try:
                self._writer.sweep(self._busy)
            except Exception:
                LOG.exception("checking allocations in doubt failed in an unforeseen way")
        self._writer.sweep(self._busy, everything=True)

    def _clerk_wanted(self) -> bool:
        return bool(self._turned_away) or self._stopped.is_set()

    def _end_the_late(self) -> None:
        now = self._clock()
        with self._changed:
            late = self._batches.drop(
                lambda work: isinstance(work, WriteAllocation) and work.deadline_s <= now
            )
            away, self._turned_away = self._turned_away, deque()
            if late:  # others may have waited behind them
                self._ready.notify_all()
                self._changed.notify_all()
        for job in late:
            self._tell(_not_done(job.work, "it waited beyond its deadline and was never sent"))
        why = "the scheduler stops" if self._draining else "too many writes wait for Placement"
        for work in away:
            self._tell(_not_done(work, why))

    def _busy(self, consumer: str) -> bool:
        with self._changed:
            return self._batches.knows(consumer)


def _job(work: Work) -> Job[Work]:
    if isinstance(work, DeleteAllocation):
        return Job(work.consumer, frozenset(work.written), True, work)
    alone = work.serialise or work.policy is ConsumerPolicy.MERGE
    return Job(work.consumer, frozenset(work.allocations), alone, work)


def _not_done(work: Work, why: str) -> AllocationWritten | AllocationDeleted:
    if isinstance(work, DeleteAllocation):
        return AllocationDeleted(work.claim_id, False, why, cause=work.cause)
    return AllocationWritten(work.claim_id, WriteCode.UNREACHABLE, why, cause=work.cause)
