# SPDX-License-Identifier: Apache-2.0
"""A lock that goes to those who wait in the order in which they came.

One thread applies a burst of increments, slice after slice.  With a plain lock it would take the lock
again before a decision that waits for it has even woken up, and the decision would wait for the burst;
so it waits for the slice under way only.
"""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class FairLock:
    """Used with ``with``; not reentrant."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._queue: deque[threading.Lock] = deque()

    @property
    def waiting(self) -> int:
        """Threads that wait for their turn."""
        return len(self._queue)

    def __enter__(self) -> None:
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Lock()
            mine.acquire()
            self._queue.append(mine)
        self._wait(mine)

    def _wait(self, mine: threading.Lock) -> None:
        try:
            mine.acquire()  # until the thread before this one releases it
        except BaseException:  # a signal handler raised: let the next one go
            with self._guard:
                still_waits = mine in self._queue
                if still_waits:
                    self._queue.remove(mine)
            if not still_waits:
                self._next()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._next()

    def _next(self) -> None:
        with self._guard:
            if self._queue:
                self._queue.popleft().release()
            else:
                self._taken = False
