# SPDX-License-Identifier: Apache-2.0
"""A lane: what waits to be read from one authority, soonest first, and how many threads read it."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count

from shared_scheduler.sync.flight import Flight


class Lane:
    """Its state is guarded by the lock of the revalidator, which is the lock of ``changed``."""

    def __init__(self, name: str, lock: threading.Lock, clock: Callable[[], float]) -> None:
        self.name = name
        self._changed = threading.Condition(lock)
        self._clock = clock
        self._heap: list[tuple[float, int, Flight]] = []  # each at its ``queued_s`` or, overruled, later
        self._numbers = count()
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def put(self, flight: Flight) -> None:
        """Its schedule says when it is due next.  With the lock held."""
        due_s = flight.schedule.due_s()
        if due_s is None or self._stopped or (flight.queued_s is not None and flight.queued_s <= due_s):
            return
        first = not self._heap or due_s < self._heap[0][0]
        self._push(due_s, flight)
        if first:
            self._changed.notify()

    def _push(self, due_s: float, flight: Flight) -> None:
        flight.queued_s = due_s
        heapq.heappush(self._heap, (due_s, next(self._numbers), flight))

    def take(self) -> Flight | None:
        """One that is due, begun; None: none is.  With the lock held."""
        now = self._clock()
        due_s = self.next_due_s()
        if due_s is None or due_s > now:
            return None
        flight = heapq.heappop(self._heap)[2]
        flight.queued_s = None
        flight.begin(now)
        return flight

    def next_due_s(self) -> float | None:
        """When the next one may be taken.  With the lock held."""
        while self._heap:
            queued_s, _, flight = self._heap[0]
            due_s = flight.schedule.due_s()
            if queued_s == flight.queued_s and due_s is not None and due_s <= queued_s:
                return queued_s
            heapq.heappop(self._heap)
            if queued_s == flight.queued_s:
                flight.queued_s = None
                if due_s is not None:  # another thread has read it since
                    self._push(due_s, flight)
        return None

    def wait(self) -> Flight | None:
        """Block until one is due, and begin it; None: the lane has been stopped.  With the lock held."""
        while not self._stopped:
            if (flight := self.take()) is not None:
                if self._heap:  # ``put`` wakes one thread for the first of them, which is busy from now on
                    self._changed.notify()
                return flight
            due_s = self.next_due_s()
            self._changed.wait(None if due_s is None else max(due_s - self._clock(), 0.001))
        return None

    def start(self, work: Callable[[Lane], None], threads: int) -> None:
        """Begin to read, in so many threads that each call ``work``."""
        for number in range(threads):
            thread = threading.Thread(target=work, args=(self,), name=f"read-{self.name}-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Tell the threads to end; what waits is forgotten.  With the lock held."""
        self._stopped = True
        self._heap.clear()
        self._changed.notify_all()

    def join(self, until_s: float) -> None:
        """Wait for the threads, until this time of ``time.monotonic``; not with the lock held."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until_s - time.monotonic()))
