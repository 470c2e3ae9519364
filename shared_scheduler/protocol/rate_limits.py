# SPDX-License-Identifier: Apache-2.0
"""How storms are kept small: a token bucket, at the scheduler (resyncs) and the agent (snapshots), and
a bound on asks that wait for their answers."""

from __future__ import annotations

from collections import deque

#: Waiting for exactly ``wait_s`` must be enough, whatever floating point makes of it.
ROUNDING = 1e-6


class TokenBucket:
    """``rate_per_s`` tokens a second, of which ``burst`` can be saved up.  Starts full.

    ``now`` is in seconds of a monotonic clock; a clock that jumps back gives nothing and takes
    nothing.
    """

    __slots__ = ("_burst", "_filled_at_s", "_rate_per_s", "_tokens")

    def __init__(self, rate_per_s: float, burst: float) -> None:
        if rate_per_s <= 0 or burst < 1:
            raise ValueError(
                f"a bucket needs a rate above 0 and a burst of 1: {rate_per_s}, {burst}"
            )
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._tokens = burst
        self._filled_at_s: float | None = None

    def take(self, now: float) -> bool:
        """Take one token; False when there is none."""
        self._fill(now)
        if self._tokens < 1 - ROUNDING:
            return False
        self._tokens = max(0.0, self._tokens - 1)
        return True

    def wait_s(self, now: float) -> float:
        """Seconds until the next token, 0 if one is there."""
        self._fill(now)
        return max(0.0, (1 - self._tokens) / self._rate_per_s)

    def _fill(self, now: float) -> None:
        if self._filled_at_s is not None and now > self._filled_at_s:
            gained = (now - self._filled_at_s) * self._rate_per_s
            self._tokens = min(self._burst, self._tokens + gained)
        if self._filled_at_s is None or now != self._filled_at_s:
            self._filled_at_s = now


class InFlight:
    """At most ``places`` asks that wait for an answer: what is answered quickly goes on quickly, and asks
    without an answer (no agent yet, or a slow broker) are limited by their time-out.

    An ask that is not answered gives its place back after ``patience_s``.
    """

    __slots__ = ("_end_s", "_patience_s", "_places")

    def __init__(self, places: int, patience_s: float) -> None:
        self._places = places
        self._patience_s = patience_s
        self._end_s: deque[float] = deque()

    def has_room(self, now: float) -> bool:
        """May one more begin?"""
        while self._end_s and self._end_s[0] <= now:
            self._end_s.popleft()
        return len(self._end_s) < self._places

    def begin(self, now: float) -> bool:
        """Take a place; False when there is none."""
        if not self.has_room(now):
            return False
        self._end_s.append(now + self._patience_s)
        return True

    def end(self) -> None:
        """One was answered; which one does not matter."""
        if self._end_s:
            self._end_s.popleft()
