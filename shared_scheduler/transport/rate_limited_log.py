# SPDX-License-Identifier: Apache-2.0
"""Log lines about things that repeat: one line for each key within an interval, and a bounded number in all.

A stranger who floods us with bad messages under many names, a database that is away for hours and a hook that
fails a hundred times a second all cost a bounded number of lines and of bytes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

#: The same thing is logged at most once within this time.
LOG_INTERVAL_S = 60.0
#: Different things that are logged within one interval; any other waits for the next one.
LINES_PER_INTERVAL_MAX = 100


class RateLimitedLog:
    """Writes to ``log``.  Any thread may call it."""

    def __init__(
        self,
        log: logging.Logger,
        clock: Callable[[], float] = time.monotonic,
        interval_s: float = LOG_INTERVAL_S,
    ) -> None:
        self._log = log
        self._clock = clock
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._written_at_s: dict[Hashable, float] = {}
        self._failing_since_s: dict[str, float] = {}

    def write(self, level: int, key: Hashable, text: str, *args: Any, exc_info: bool = False) -> None:
        """Log a line unless one with this key was logged within the interval."""
        with self._lock:
            is_due = self._is_due(key, self._clock())
        if is_due:
            self._log.log(level, text, *args, exc_info=exc_info)

    def _is_due(self, key: Hashable, now_s: float) -> bool:
        if now_s - self._written_at_s.get(key, float("-inf")) < self._interval_s:
            return False
        if len(self._written_at_s) >= LINES_PER_INTERVAL_MAX:
            oldest_s = now_s - self._interval_s
            self._written_at_s = {one: at_s for one, at_s in self._written_at_s.items() if at_s > oldest_s}
            if len(self._written_at_s) >= LINES_PER_INTERVAL_MAX:
                return False
        self._written_at_s[key] = now_s
        return True

    # -- outages --------------------------------------------------------------------------------------

    def failed(self, source: str, text: str) -> None:
        """``source`` does not answer, or not as it should; ``text`` says how."""
        with self._lock:
            self._failing_since_s.setdefault(source, self._clock())
        self.write(logging.WARNING, ("failed", source), "%s", text)

    def recovered(self, source: str) -> None:
        """``source`` answers.  Logged if it had failed before."""
        if source not in self._failing_since_s:  # as nearly always
            return
        with self._lock:
            since_s = self._failing_since_s.pop(source, None)
            self._written_at_s.pop(("failed", source), None)
        if since_s is not None:  # or another thread was faster
            self._log.info("%s: works again after %.0f s", source, self._clock() - since_s)

    def failing(self) -> frozenset[str]:
        """The sources that have failed and have not recovered."""
        return frozenset(self._failing_since_s)
