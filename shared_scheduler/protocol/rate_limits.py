# SPDX-License-Identifier: Apache-2.0
"""Limits of rates, against storms of messages, reads and records: token buckets."""

from __future__ import annotations

from shared_scheduler.protocol.memo import Memo

#: A tolerance for floating point errors, so that a wait of exactly ``wait_s`` is sufficient, also if the clock counts
#: years and a bucket adds hundreds of tokens a second.
ROUNDING = 1e-4


class TokenBucket:
    """Adds ``rate_per_s`` tokens per second, and holds at most ``burst`` of them.  Starts full.

    ``now`` is in seconds of a monotonic clock; if the clock jumps back, the number of tokens does not change.
    """

    __slots__ = ("_burst", "_filled_at_s", "_rate_per_s", "_tokens")

    def __init__(self, rate_per_s: float, burst: float) -> None:
        if rate_per_s <= 0 or burst < 1:
            raise ValueError(f"a bucket needs a rate above 0 and a burst of 1: {rate_per_s}, {burst}")
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._tokens = burst
        self._filled_at_s: float | None = None

    def take(self, now: float, tokens: float = 1) -> bool:
        """Take so many tokens, at most ``burst``; False if there are not as many."""
        self._fill(now)
        if self._tokens < tokens - ROUNDING:
            return False
        self._tokens = max(0.0, self._tokens - tokens)
        return True

    def wait_s(self, now: float) -> float:
        """Seconds until there is a token; 0 if there is one."""
        self._fill(now)
        missing = 1 - self._tokens
        return missing / self._rate_per_s if missing > ROUNDING else 0.0

    def _fill(self, now: float) -> None:
        if self._filled_at_s is not None and now > self._filled_at_s:
            gained = (now - self._filled_at_s) * self._rate_per_s
            self._tokens = min(self._burst, self._tokens + gained)
        if self._filled_at_s is None or now != self._filled_at_s:
            self._filled_at_s = now


class TokenBuckets:
    """A bucket for each of at most ``keys_max`` keys; when there are more, all begin again."""

    __slots__ = ("_burst", "_of", "_rate_per_s")

    def __init__(self, rate_per_s: float, burst: float, keys_max: int) -> None:
        self._rate_per_s, self._burst = rate_per_s, burst
        self._of: Memo[str, TokenBucket] = Memo(keys_max)

    def wait_s(self, key: str, now: float) -> float:
        """Seconds until there is a token of a key; 0 if there is one."""
        bucket = self._of.get(key)
        return 0.0 if bucket is None else bucket.wait_s(now)

    def take(self, key: str, now: float, tokens: float = 1) -> bool:
        """Take tokens of a key; False if there are not as many."""
        bucket = self._of.get(key)
        if bucket is None:
            bucket = self._of.learn(key, TokenBucket(self._rate_per_s, self._burst))
        return bucket.take(now, tokens)
