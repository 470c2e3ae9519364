# SPDX-License-Identifier: Apache-2.0
"""Log lines about repeated events: one line for each key within an interval, and a bounded number in total.

A sender that floods the program with bad messages under many names, a database that does not answer for hours, and a
hook that fails a hundred times a second all cause a bounded number of lines and bytes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

#: Lines with the same key are logged at most once within this time.
LOG_INTERVAL_S = 60.0
#: The number of different keys that are logged within one interval; further ones wait for the next one.
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
        """Log that ``source`` does not answer correctly; ``text`` is the reason."""
        with self._lock:
            self._failing_since_s.setdefault(source, self._clock())
        self.write(logging.WARNING, ("failed", source), "%s", text)

    def recovered(self, source: str) -> None:
        """Log that ``source`` works, if it had failed before."""
        if source not in self._failing_since_s:  # the common case
            return
        with self._lock:
            since_s = self._failing_since_s.pop(source, None)
            self._written_at_s.pop(("failed", source), None)
        if since_s is not None:  # otherwise another thread was first
            self._log.info("%s: works again after %.0f s", source, self._clock() - since_s)

    def failing(self) -> frozenset[str]:
        """The sources that have failed and have not recovered."""
        return frozenset(self._failing_since_s)
