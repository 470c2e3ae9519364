# SPDX-License-Identifier: Apache-2.0
"""A lane: the queue of reads from one authority, the earliest first, and the threads that read."""

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
        self._heap: list[tuple[float, int, Flight]] = []  # each entry at its ``queued_s`` or, if superseded, later
        self._numbers = count()
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def put(self, flight: Flight) -> None:
        """Queue a flight at the time at which it is due next.  The caller holds the lock."""
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
        """The next flight that is due, begun; None if none is due.  The caller holds the lock."""
        now = self._clock()
        due_s = self.next_due_s()
        if due_s is None or due_s > now:
            return None
        flight = heapq.heappop(self._heap)[2]
        flight.queued_s = None
        flight.begin(now)
        return flight

    def next_due_s(self) -> float | None:
        """The time at which the next flight may be taken.  The caller holds the lock."""
        while self._heap:
            queued_s, _, flight = self._heap[0]
            due_s = flight.schedule.due_s()
            if queued_s == flight.queued_s and due_s is not None and due_s <= queued_s:
                return queued_s
            heapq.heappop(self._heap)
            if queued_s == flight.queued_s:
                flight.queued_s = None
                if due_s is not None:  # another thread has read it meanwhile
                    self._push(due_s, flight)
        return None

    def wait(self) -> Flight | None:
        """Block until a flight is due, and begin it; None if the lane was stopped.  The caller holds the lock."""
        while not self._stopped:
            if (flight := self.take()) is not None:
                if self._heap:  # ``put`` wakes one thread for the first flight, and this thread is busy from now on
                    self._changed.notify()
                return flight
            due_s = self.next_due_s()
            self._changed.wait(None if due_s is None else max(due_s - self._clock(), 0.001))
        return None

    def start(self, work: Callable[[Lane], None], threads: int) -> None:
        """Start this number of threads, each of which calls ``work``."""
        for number in range(threads):
            thread = threading.Thread(target=work, args=(self,), name=f"read-{self.name}-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Tell the threads to end, and drop the queue.  The caller holds the lock."""
        self._stopped = True
        self._heap.clear()
        self._changed.notify_all()

    def join(self, until_s: float) -> None:
        """Wait for the threads until this time of ``time.monotonic``.  The caller does not hold the lock."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until_s - time.monotonic()))
