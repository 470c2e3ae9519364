# SPDX-License-Identifier: Apache-2.0
"""The queue of writes and deletes of allocations: which go out together, and in which order.

Edges carry the batches out: ``placement/batch_writer.py`` with threads, ``sim/writers.py`` in virtual time.
``write_pace.py`` explains the order, and has the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import Generic, Protocol, TypeVar

from shared_scheduler.core.effects import ConsumerPolicy, DeleteAllocation, WriteAllocation
from shared_scheduler.core.events import AllocationDeleted, AllocationWritten, WriteCode
from shared_scheduler.core.write_pace import FURTHER_WRITER_AFTER_S, MAX_WAITING, OVERLOADED_AFTER_S, WritePace

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Job(Generic[Item]):
    """One write or one delete.  Times are in seconds of the owner's clock."""

    consumer: str
    providers: frozenset[str]
    alone: bool
    work: Item
    queued_s: float = 0.0
    #: when its request arrived
    asked_s: float = 0.0
    #: a write is not sent if it cannot end before this time
    deadline_s: float = float("inf")
    deletes: bool = False

    @property
    def rank(self) -> tuple[tuple[str, ...], str]:
        """The order within a batch: by provider, because rows are locked in this order."""
        return tuple(sorted(self.providers)), self.consumer


Work = WriteAllocation | DeleteAllocation
Batch = tuple[Job[Work], ...]


class Writer(Protocol):
    """Carries out writes and deletes, in threads of its own (``placement/batch_writer.py``)."""

    def start(self) -> None: ...
    def submit(self, work: Work) -> None: ...
    def stop(self) -> None: ...


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


class WriteQueue(Generic[Item]):
    """Forms batches of queued jobs.

    * Jobs of one consumer are served in the order of their arrival.
    * While Placement keeps up, the same holds for the writes of each provider: a write never overtakes an earlier one
      that shares a provider.  While it does not keep up, the writes of the newest request come first, and those of one
      request in the order of their arrival.
    * Deletes are served in the order of their arrival.  The next one keeps its providers free of new writes, unless it
      waits for a write of its consumer.
    * Writes and deletes take turns on a provider: if its last job was a delete, and a writer is free, a write that can
      be sent goes before the next delete.  Otherwise deletes would stop all writes where all hosts share storage.
    * No two batches in flight share a provider or a consumer, because concurrent writes to one provider may over-commit
      it, or fail the write of more providers without need.
    * While a write waits until it is sent again, others may use its providers, and not its consumer.  It goes on before
      any later batch, when those in flight have freed its providers.
    * A batch has at most ``pace.batch_max()`` jobs; its jobs may share providers.
    * A job that is ``alone``, as each delete is, is a batch of one.
    * A write is sent at once if no writer is at work.  Otherwise it waits for the end of a call, so that writes share
      calls, but at most ``FURTHER_WRITER_AFTER_S``.  A full batch does not wait for that, nor one that is ``alone``,
      nor any while Placement does not keep up.
    * A write that cannot end before its deadline is not sent; its owner drops it.
    * Parts of a refused batch come before all other writes.
    * At most ``max_waiting`` jobs wait; further ones are refused.
    """

    def __init__(self, pace: WritePace, max_waiting: int = MAX_WAITING) -> None:
        self._pace = pace
        self._max_waiting = max_waiting
        self._waiting: list[Job[Item]] = []
        self._parts: list[tuple[Job[Item], ...]] = []  # of refused batches, before all others
        self._in_flight: list[Job[Item]] = []
        self._paused: set[int] = set()  # of those in flight, by ``id``
        self._resuming: list[Job[Item]] = []  # of those in flight: they wait for their providers, in this order
        self._writes_turn: set[str] = set()  # providers whose last job was a delete

    @property
    def waiting(self) -> int:
        """The number of jobs that wait."""
        return len(self._waiting) + sum(map(len, self._parts))

    @property
    def has_deletes(self) -> bool:
        """Whether any delete waits."""
        return any(job.deletes for job in self._waiting)

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

    # -- batches

    def take(self, now: float, at_work: int = 0) -> tuple[Job[Item], ...]:
        """The next batch, sorted by provider: writes or, if none can be sent now, a delete; empty if there is
        neither.  ``at_work``: the writers that carry out writes."""
        busy = self._busy()
        batch = self._pick_part(busy, now) or self._pick_writes(busy, now, at_work)
        if not batch:
            return self.take_delete()
        self._in_flight += batch
        self._writes_turn.difference_update(*(job.providers for job in batch))
        return tuple(sorted(batch, key=lambda job: job.rank))

    def take_delete(self, may_yield: bool = True) -> tuple[Job[Item], ...]:
        """The next delete, as a batch of one; empty if none can be sent now.  ``may_yield``: a writer is free, so a
        write whose turn it is need not wait."""
        job = self._next_delete(self._busy(), may_yield)
        if job is None:
            return ()
        self._remove([job])
        if not (self.waiting or self._in_flight):
            self._writes_turn.clear()  # nobody needs it any more
        self._writes_turn |= job.providers
        self._in_flight.append(job)
        return (job,)

    def _busy(self) -> _Taken:
        busy = _Taken()
        for job in self._in_flight:
            if id(job) in self._paused:
                busy.consumers.add(job.consumer)
            else:
                busy.add(job)
        return busy

    def _next_delete(self, busy: _Taken, may_yield: bool = True) -> Job[Item] | None:
        """The oldest delete that shares nothing with ``busy`` or a write whose turn it is, and whose consumer no other
        job precedes."""
        awaited = self._awaited(busy) if may_yield else set()
        earlier = {job.consumer for part in self._parts for job in part}
        for job in self._waiting:
            is_first = job.deletes and job.consumer not in earlier
            if is_first and not busy.touches(job) and awaited.isdisjoint(job.providers):
                return job
            earlier.add(job.consumer)
        return None

    def _awaited(self, busy: _Taken) -> set[str]:
        """The providers on which it is the turn of a write that could be sent beside ``busy``."""
        if not any(job.deletes and not self._writes_turn.isdisjoint(job.providers) for job in self._waiting):
            return set()  # nothing has to yield
        jobs = [*(job for part in self._parts for job in part), *self._waiting]
        others = _Taken(set(busy.providers), set(busy.consumers))
        batch = self._compatible((job for job in jobs if not job.deletes), _firsts(jobs), others)
        return self._writes_turn.intersection(chain.from_iterable(job.providers for job in batch))

    def _pick_part(self, busy: _Taken, now: float) -> list[Job[Item]]:
        for index, part in enumerate(self._parts):
            timely = self._timely(part, now)
            if timely and not any(map(busy.touches, timely)):
                late = tuple(job for job in part if job not in timely)
                self._parts[index : index + 1] = [late] if late else []
                return timely
            for job in timely:
                busy.add(job)
            busy.consumers.update(job.consumer for job in part)
        return []

    def _timely(self, jobs: Iterable[Job[Item]], now: float) -> list[Job[Item]]:
        """The writes that may end in time."""
        return [job for job in jobs if not (job.deletes or self._pace.is_too_late(job.deadline_s, now))]

    def _pick_writes(self, busy: _Taken, now: float, at_work: int) -> list[Job[Item]]:
        delete = self._next_delete(_Taken(consumers=set(busy.consumers)))
        if delete is not None:
            busy.add(delete)
        firsts = _firsts(self._waiting)
        writes = self._timely(self._waiting, now)
        ready = [job for job in writes if id(job) in firsts]
        keeps_up = not any(now - job.queued_s > OVERLOADED_AFTER_S and not busy.touches(job) for job in ready)
        ordered = writes if keeps_up else _newest_first(ready)
        batch = self._compatible(ordered, firsts, busy)
        gathers = at_work and keeps_up and len(batch) < self._pace.batch_max() and _may_gather(batch, now)
        return [] if gathers else self._remove(batch)

    def _compatible(self, ordered: Iterable[Job[Item]], firsts: set[int], busy: _Taken) -> list[Job[Item]]:
        """The next batch; ``firsts`` are the jobs that no other job of their consumer precedes."""
        batch: list[Job[Item]] = []
        batch_max = self._pace.batch_max()
        for job in ordered:
            if id(job) not in firsts or busy.touches(job) or (batch and job.alone):
                busy.add(job)  # later ones must not overtake it
                continue
            batch.append(job)
            if job.alone or len(batch) == batch_max:
                break
        return batch

    def _remove(self, chosen: list[Job[Item]]) -> list[Job[Item]]:
        ids = set(map(id, chosen))
        self._waiting = [job for job in self._waiting if id(job) not in ids]
        return chosen

    # -- pauses

    def pause(self, job: Job[Item]) -> None:
        """Free the providers of a write in flight, which waits until it is sent again."""
        self._paused.add(id(job))

    def resume(self, job: Job[Item]) -> bool:
        """Take the providers of a paused write again; False: call it again when a batch was ended or paused."""
        if id(job) in self._paused:
            self._paused.remove(id(job))
            self._resuming.append(job)
        waiting = self._paused.union(map(id, self._resuming))
        before = [one for one in self._in_flight if id(one) not in waiting]
        before += takewhile(lambda one: one is not job, self._resuming)
        if not all(one.providers.isdisjoint(job.providers) for one in before):
            return False
        self._resuming = _without(self._resuming, job)
        return True

    # -- endings

    def done(self, ended: Job[Item]) -> bool:
        """End a job and free its providers and consumer; False if it has ended already."""
        before = len(self._in_flight)
        self._in_flight = _without(self._in_flight, ended)
        self._resuming = _without(self._resuming, ended)
        self._paused.discard(id(ended))
        return len(self._in_flight) < before

    def put_back(self, parts: tuple[tuple[Job[Item], ...], ...]) -> None:
        """Queue the parts of a refused batch before all other writes, each as a separate batch."""
        for job in (job for part in parts for job in part):
            self.done(job)
        self._parts = [part for part in parts if part] + self._parts

    def drop(self, unwanted: Callable[[Item], bool]) -> list[Job[Item]]:
        """Remove and return waiting jobs."""
        return self._drop(lambda job: unwanted(job.work))

    def drop_late(self, now: float) -> list[Job[Item]]:
        """Remove and return waiting writes that cannot end before their deadline."""
        return self._drop(lambda job: not job.deletes and self._pace.is_too_late(job.deadline_s, now))

    def _drop(self, unwanted: Callable[[Job[Item]], bool]) -> list[Job[Item]]:
        waiting = [*(job for part in self._parts for job in part), *self._waiting]
        dropped = [job for job in waiting if unwanted(job)]
        if not dropped:
            return dropped
        gone = set(map(id, dropped))
        self._waiting = [job for job in self._waiting if id(job) not in gone]
        left = (tuple(job for job in part if id(job) not in gone) for part in self._parts)
        self._parts = [part for part in left if part]
        return dropped


def _firsts(jobs: Iterable[Job[Item]]) -> set[int]:
    """The ``id`` of each job that no other job of its consumer precedes."""
    first: dict[str, Job[Item]] = {}
    for job in jobs:
        first.setdefault(job.consumer, job)
    return set(map(id, first.values()))


def _newest_first(jobs: Iterable[Job[Item]]) -> list[Job[Item]]:
    """The writes of the newest request first."""
    return sorted(jobs, key=lambda job: job.asked_s, reverse=True)


def _may_gather(batch: list[Job[Item]], now: float) -> bool:
    """Whether further writes may join these before they are sent."""
    return not any(job.alone or now - job.queued_s >= FURTHER_WRITER_AFTER_S for job in batch)


def _without(jobs: list[Job[Item]], job: Job[Item]) -> list[Job[Item]]:
    return [one for one in jobs if one is not job]


def halves(batch: tuple[Job[Item], ...]) -> tuple[tuple[Job[Item], ...], ...]:
    """Split a refused batch, so that finally only the consumer that caused the refusal fails."""
    middle = len(batch) // 2
    return batch[:middle], batch[middle:]


def job_of(work: Work, now: float, guards_capacity: bool = False) -> Job[Work]:
    """The job of an effect that is queued now.  ``guards_capacity``: Placement lets no racing writes over-commit, so a
    write that is to be serialised need not be alone."""
    if isinstance(work, DeleteAllocation):
        return Job(work.consumer, frozenset(work.written), True, work, now, deletes=True)
    alone = (work.serialise and not guards_capacity) or work.policy is ConsumerPolicy.MERGE
    return Job(work.consumer, frozenset(work.allocations), alone, work, now, work.asked_s, work.deadline_s)


#: why an effect was not carried out after an unexpected error
INTERNAL_ERROR = "internal error, see the log of the scheduler"


def not_carried_out(work: Work, code: WriteCode, why: str) -> AllocationWritten | AllocationDeleted:
    """The answer to an effect that was not carried out, or whose result is not known; ``code`` is that of a write."""
    if isinstance(work, DeleteAllocation):
        return AllocationDeleted(work.claim_id, False, why, cause=work.cause)
    return AllocationWritten(work.claim_id, code, why, cause=work.cause)
