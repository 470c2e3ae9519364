# SPDX-License-Identifier: Apache-2.0
"""Which queued writes go out together.  Pure: the threads are in ``group_commit``.

Rules
-----
* First come, first served, a provider and a consumer at a time: a job never overtakes an earlier one
  that has a provider or the consumer in common with it, so nothing starves and what happens to one
  consumer happens in order.
* No two batches in flight share a provider or a consumer.  Two concurrent writes to one provider are
  what over-commits it, or fails the wider one for nothing.
* A batch holds at most ``max_batch`` jobs; its jobs may share providers.
* A job that is ``alone`` is a batch of its own.
* Nobody lingers: whatever may go, goes as soon as somebody can take it.
* What is put back because its batch was refused goes before everything else.
* At most ``max_waiting`` jobs wait; more are not taken in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

#: Consumers of one POST: rows of all of them stay locked until it commits.
MAX_BATCH = 16
#: Jobs that may wait; the core bounds its claims far below.
MAX_WAITING = 4096

Work = TypeVar("Work")


@dataclass(frozen=True, slots=True)
class Job(Generic[Work]):
    """One write.  ``work`` is opaque here."""

    consumer: str
    providers: frozenset[str]
    alone: bool
    work: Work

    @property
    def rank(self) -> tuple[tuple[str, ...], str]:
        """Order within a batch: locks are taken in it, so it is by provider."""
        return tuple(sorted(self.providers)), self.consumer


@dataclass(slots=True)
class _Taken:
    """Providers and consumers that a job may not touch."""

    providers: set[str] = field(default_factory=set)
    consumers: set[str] = field(default_factory=set)

    def add(self, job: Job[Work]) -> None:
        self.providers |= job.providers
        self.consumers.add(job.consumer)


    def touches(self, job: Job[Work]) -> bool:
        return job.consumer in self.consumers or not self.providers.isdisjoint(job.providers)


class Batches(Generic[Work]):
    """The queue."""

    def __init__(self, max_batch: int = MAX_BATCH, max_waiting: int = MAX_WAITING) -> None:
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._waiting: list[Job[Work]] = []
        self._parts: list[tuple[Job[Work], ...]] = []  # of refused batches, before all others
        self._in_flight: list[Job[Work]] = []

    @property
    def waiting(self) -> int:
        """Jobs that nobody has taken."""
        return len(self._waiting) + sum(map(len, self._parts))

    @property
    def in_flight(self) -> int:
        """Jobs taken and not done."""
        return len(self._in_flight)

    def knows(self, consumer: str) -> bool:
        """True while a job of this consumer waits or is in flight."""
        parts = (job for part in self._parts for job in part)
        return any(job.consumer == consumer for job in (*self._waiting, *self._in_flight, *parts))

    def add(self, job: Job[Work]) -> bool:
        """Queue a job; False if too many wait."""
        if self.waiting >= self._max_waiting:
            return False
        self._waiting.append(job)
        return True

    def take(self) -> tuple[Job[Work], ...]:
        """The next batch, sorted by provider; empty if nothing may go now."""
        busy = _Taken()
        for job in self._in_flight:
            busy.add(job)
        batch = self._pick_part(busy) or self._pick(busy)
        self._in_flight += batch
        return tuple(sorted(batch, key=lambda job: job.rank))

    def _pick_part(self, busy: _Taken) -> list[Job[Work]]:
        for index, part in enumerate(self._parts):
            if not any(map(busy.touches, part)):
                return list(self._parts.pop(index))
            for job in part:
                busy.add(job)
        return []

    def _pick(self, busy: _Taken) -> list[Job[Work]]:
        batch: list[Job[Work]] = []
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

    def done(self, ended: Job[Work]) -> bool:
        """This one has ended, its providers and consumer are free; False if it had already."""
        before = len(self._in_flight)
        self._in_flight = [job for job in self._in_flight if job is not ended]
        return len(self._in_flight) < before

    def put_back(self, parts: tuple[tuple[Job[Work], ...], ...]) -> None:
        """A batch in flight was refused: its parts go next, each as a batch of its own."""
        for job in (job for part in parts for job in part):
            self.done(job)
        self._parts = [part for part in parts if part] + self._parts

    def drop(self, unwanted: Callable[[Work], bool]) -> list[Job[Work]]:
        """Remove waiting jobs (expired, or all of them at the end) and hand them back."""
        waiting = [*(job for part in self._parts for job in part), *self._waiting]
        dropped = [job for job in waiting if unwanted(job.work)]
        gone = set(map(id, dropped))
        self._waiting = [job for job in self._waiting if id(job) not in gone]
        left = (tuple(job for job in part if id(job) not in gone) for part in self._parts)
        self._parts = [part for part in left if part]
        return dropped


def halves(batch: tuple[Job[Work], ...]) -> tuple[tuple[Job[Work], ...], ...]:
    """Split a refused batch, so that in the end only the guilty one fails."""
    middle = len(batch) // 2
    return batch[:middle], batch[middle:]
