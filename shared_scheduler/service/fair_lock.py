# SPDX-License-Identifier: Apache-2.0
"""A lock that threads get in the order in which they asked for it.

One thread applies a burst of increments, one slice after the other.  It would take a plain lock again before a decision
that waits for the lock has woken up, so the decision would wait for the whole burst.  With this lock it waits for one
slice only.
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
        """The number of threads that wait for the lock."""
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
        except BaseException:  # a signal handler raised: pass the lock to the next thread
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
