# SPDX-License-Identifier: Apache-2.0
"""A token bucket: how storms are kept small, at the scheduler (resyncs) and the agent (snapshots)."""

from __future__ import annotations

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


def full_jitter_s(chance: float, attempts: int, base_s: float, max_s: float) -> float:
    """The delay before the next attempt: uniform in 0 .. min(max_s, base_s * 2 ** attempts).

    ``chance`` is a draw from 0 .. 1 by the caller's own generator.
    """
    doublings = min(attempts, 30)  # 2 ** 30 passes any sensible max_s, and stays a small number
    return chance * min(max_s, base_s * float(2**doublings))
