# SPDX-License-Identifier: Apache-2.0
"""Waits with jitter: the formula for back-off and the formula for intervals, used by both programs.

If many processes fail at the same moment, their retries must be spread over time.  Source: "Exponential
Backoff And Jitter" (AWS Architecture Blog, 2015), which compares full and equal jitter.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

#: bounds the exponent: 2 ** 30 times any sensible base exceeds any sensible maximum
DOUBLINGS_MAX = 30


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off: the longest wait doubles with each attempt, from ``base_s`` up to ``max_s``.

    A wait is random between ``least`` times the longest wait and the longest wait: 0 is full jitter, 0.5 is equal
    jitter.
    """

    base_s: float
    max_s: float
    least: float = 0.0

    def __post_init__(self) -> None:
        """Check the bounds.

        :raises ValueError: when a bound is negative or ``least`` is not between 0 and 1
        """
        if self.base_s < 0 or self.max_s < 0 or not 0 <= self.least <= 1:
            raise ValueError(f"back-off needs bounds of 0 or more, and least between 0 and 1: {self}")

    @classmethod
    def between(cls, min_s: float, max_s: float) -> Backoff:
        """Waits that do not grow, from ``min_s`` to ``max_s``.

        :raises ValueError: when ``max_s`` is not above 0, or is below ``min_s``
        """
        if max_s <= 0:
            raise ValueError(f"the longest wait must be above 0: {max_s}")
        return cls(max_s, max_s, min_s / max_s)

    def longest_s(self, attempts: int) -> float:
        """The upper bound of the wait after ``attempts`` failures."""
        return min(self.max_s, self.base_s * 2.0 ** min(attempts, DOUBLINGS_MAX))

    def wait_s(self, rng: Random, attempts: int = 0) -> float:
        """The wait before the next attempt, after ``attempts`` failures."""
        return self.longest_s(attempts) * (self.least + (1 - self.least) * rng.random())


def jittered_s(interval_s: float, jitter: float, rng: Random) -> float:
    """An interval with jitter of up to ``jitter`` times its length, so that processes do not run in step."""
    return interval_s * (1 + jitter * (2 * rng.random() - 1))
