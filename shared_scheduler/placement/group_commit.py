# SPDX-License-Identifier: Apache-2.0
"""Carries out ``WriteAllocation`` and ``DeleteAllocation``: the only module that changes allocations in Placement.

``submit`` never blocks.  Worker threads take the batches of ``Batches``; writes that were queued while they were busy
are sent together as one ``POST /allocations``.  A refused batch is split until the consumer that caused the refusal is
alone; ``allocation_writer`` completes single consumers.  A clerk thread ends writes that waited beyond their deadline,
and a sweeper thread checks writes with an unknown outcome; neither waits for a busy worker.

Every effect is answered exactly once, with ``answer``, from one of these threads.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from shared_scheduler.core.effects import ConsumerPolicy, DeleteAllocation, WriteAllocation
from shared_scheduler.core.events import AllocationDeleted, AllocationWritten, WriteCode
from shared_scheduler.placement.allocation_writer import AllocationWriter, first_write
from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.connection import Meaning, Reply
from shared_scheduler.placement.reconciler import Locate

#: Consumers in one POST, whose rows stay locked until it commits.
MAX_BATCH = 16
#: Maximum number of waiting jobs; the core's bound of claims is far below.
MAX_WAITING = 4096

Item = TypeVar("Item")
Work = WriteAllocation | DeleteAllocation


@dataclass(frozen=True, slots=True)
class Job(Generic[Item]):
    """One write."""

    consumer: str
    providers: frozenset[str]
    alone: bool
    work: Item

    @property
    def rank(self) -> tuple[tuple[str, ...], str]:
        """The order within a batch: by provider, because rows are locked in this order."""
        return tuple(sorted(self.providers)), self.consumer


@dataclass(slots=True)
class _Taken:
    """Providers and consumers that are in use."""

    providers: set[str] = field(default_factory=set)
    consumers: set[str] = field(default_factory=set)

    def add(self, job: Job[Item]) -> None:
        self.providers |= job.providers
        self.consumers.add(job.consumer)


    def touches(self, job: Job[Item]) -> bool:
        return job.consumer in self.consumers or not self.providers.isdisjoint(job.providers)


class Batches(Generic[Item]):
    """Forms batches of queued writes.

    * For each provider and each consumer, jobs are served in the order of their arrival: a job never overtakes an
      earlier one that shares a provider or the consumer.  Therefore no job starves.
    * No two batches in flight share a provider or a consumer, because concurrent writes to one provider may over-commit
      it, or fail the write of more providers without need.
    * A batch has at most ``max_batch`` jobs; its jobs may share providers.
    * A job that is ``alone`` is a batch of one.
    * A write is sent as soon as a writer is free; writes do not wait to fill a batch.
    * Parts of a refused batch come before all other jobs.
    * At most ``max_waiting`` jobs wait; further ones are refused.
    """

    def __init__(self, max_batch: int = MAX_BATCH, max_waiting: int = MAX_WAITING) -> None:
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._waiting: list[Job[Item]] = []
        self._parts: list[tuple[Job[Item], ...]] = []  # of refused batches, before all others
        self._in_flight: list[Job[Item]] = []

    @property
    def waiting(self) -> int:
        """The number of jobs that wait."""
        return len(self._waiting) + sum(map(len, self._parts))

    @property
    def in_flight(self) -> int:
        """The number of jobs in flight."""
        return len(self._in_flight)

    def knows(self, consumer: str) -> bool:
        """True while a job of this consumer waits or is in flight."""
        parts = (job for part in self._parts for job in part)
        return any(job.consumer == consumer for job in (*self._waiting, *self._in_flight, *parts))

    def add(self, job: Job[Item]) -> bool:
        """Queue a job; False if too many wait."""
        if self.waiting >= self._max_waiting:
            return False
        self._waiting.append(job)
        return True

    def take(self) -> tuple[Job[Item], ...]:
        """The next batch, sorted by provider; empty if no job can be sent now."""
        busy = _Taken()
        for job in self._in_flight:
            busy.add(job)
        batch = self._pick_part(busy) or self._pick(busy)
        self._in_flight += batch
        return tuple(sorted(batch, key=lambda job: job.rank))

    def _pick_part(self, busy: _Taken) -> list[Job[Item]]:
        for index, part in enumerate(self._parts):
            if not any(map(busy.touches, part)):
                return list(self._parts.pop(index))
            for job in part:
                busy.add(job)
        return []

    def _pick(self, busy: _Taken) -> list[Job[Item]]:
        batch: list[Job[Item]] = []
        consumers: set[str] = set()
        for job in self._waiting:
            fits = not batch or not (job.alone or job.consumer in consumers)
            if busy.touches(job) or not fits:
                busy.add(job)  # later ones must not overtake it
                continue
            batch.append(job)
            consumers.add(job.consumer)
            if job.alone or len(batch) == self._max_batch:
                break
        chosen = set(map(id, batch))
        self._waiting = [job for job in self._waiting if id(job) not in chosen]
        return batch

    def done(self, ended: Job[Item]) -> bool:
        """End a job and free its providers and consumer; False if it has ended already."""
        before = len(self._in_flight)
        self._in_flight = [job for job in self._in_flight if job is not ended]
        return len(self._in_flight) < before

    def put_back(self, parts: tuple[tuple[Job[Item], ...], ...]) -> None:
        """Queue the parts of a refused batch before all other jobs, each as a separate batch."""
        for job in (job for part in parts for job in part):
            self.done(job)
        self._parts = [part for part in parts if part] + self._parts

    def drop(self, unwanted: Callable[[Item], bool]) -> list[Job[Item]]:
        """Remove and return waiting jobs (expired ones, or all of them at the end)."""
        waiting = [*(job for part in self._parts for job in part), *self._waiting]
        dropped = [job for job in waiting if unwanted(job.work)]
        gone = set(map(id, dropped))
        self._waiting = [job for job in self._waiting if id(job) not in gone]
        left = (tuple(job for job in part if id(job) not in gone) for part in self._parts)
        self._parts = [part for part in left if part]
        return dropped


def halves(batch: tuple[Job[Item], ...]) -> tuple[tuple[Job[Item], ...], ...]:
    """Split a refused batch, so that finally only the consumer that caused the refusal fails."""
    middle = len(batch) // 2
    return batch[:middle], batch[middle:]


LOG = logging.getLogger(__name__)

Batch = tuple[Job[Work], ...]
Answer = Callable[[AllocationWritten | AllocationDeleted], None]

#: Writes in flight; more are of no use for a Placement with a few cores.
WORKERS = 4
#: Interval at which the clerk searches for jobs that waited too long.
CLERK_INTERVAL_S = 0.25
#: Time for which ``stop`` lets queued writes be sent.
DRAIN_S = 10.0
#: Time for which ``stop`` waits for a thread in a call.
JOIN_S = 12.0
#: Interval at which the sweeper checks whether a consumer in doubt is due.
SWEEP_INTERVAL_S = 1.0


class GroupCommit:
    """The queue and the threads of all writes.  Start it after the last fork; ``stop`` drains the queue."""

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
        """``locate`` reads the location of a server from Nova; without Nova it is ``reconciler.without_nova``."""
        self._client = client
        self._answer = answer
        self._clock = clock
        self._batches: Batches[Work] = Batches(max_batch, max_waiting)
        self._turned_away: deque[Work] = deque()
        lock = threading.Lock()
        #: a job may be sent; only one worker is woken for it
        self._ready = threading.Condition(lock)
        #: the clerk and ``stop`` wait for this condition
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
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def submit(self, work: Work) -> None:
        """Queue an effect; never blocks.  It is answered later, also if it is refused."""
        with self._changed:
            if self._draining or not self._batches.add(_job(work)):
                self._turned_away.append(work)
                self._changed.notify_all()
            else:
                self._ready.notify()

    def stop(self, drain_s: float = DRAIN_S) -> None:
        """Refuse new work, send queued work for a bounded time, and end the rest."""
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
        """The number of effects that are queued and not in flight."""
        with self._changed:
            return self._batches.waiting

    def in_doubt(self) -> int:
        """The number of consumers whose allocations are in doubt."""
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
            LOG.exception("a write to Placement failed with an unexpected error")
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
        """Write a batch in one call; split it if Placement refuses it."""
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
        """Check each consumer of a batch whose outcome is unknown."""
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
                self._ready.notify()  # for jobs that waited for the same providers
            elif self._idle():
                self._changed.notify_all()
        self._tell(event)

    def _tell(self, event: AllocationWritten | AllocationDeleted) -> None:
        try:
            self._answer(event)
        except Exception:
            LOG.exception("the answer %s could not be delivered", event)

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
                LOG.exception("checking writes with an unknown outcome failed with an unexpected error")
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
            if late:  # other jobs may have waited behind them
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
