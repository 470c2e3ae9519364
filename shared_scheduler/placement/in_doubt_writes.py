# SPDX-License-Identifier: Apache-2.0
"""Writes whose outcome is not known, and allocations that could not be deleted.  Pure.

A request that timed out may still be carried out later.  Each one is remembered and checked a few times; allocations
that are exactly ours are then deleted.  A check without an answer does not count, and neither does one while another
writer may rely on the allocations.  Until then a conflict with such a write is known to be with ourselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from shared_scheduler.protocol.messages import Allocations

#: Seconds from the write to the first check, and from each check to the next.
CHECKS_AFTER_S = (2.0, 8.0, 20.0)
#: How long to wait after a check that does not count.
AGAIN_AFTER_S = 10.0
#: How long a server may be under way before its consumer is forgotten: longer than most moves take.
UNDER_WAY_MAX_S = 600.0
#: Consumers remembered; the oldest are dropped first.
MAX_CONSUMERS = 4096


class CheckResult(StrEnum):
    """What one check found."""

    NOTHING = "nothing"  # nothing of ours, or it is taken back
    RIGHTFUL = "rightful"  # the server is on this host: its allocations are right
    UNDER_WAY = "under_way"  # an operation may use the allocations
    UNANSWERED = "unanswered"


@dataclass(frozen=True, slots=True)
class Attempt:
    """What may have been written, over what."""

    written: Allocations
    before: Allocations = field(default_factory=dict)


@dataclass(slots=True)
class _Case:
    attempts: list[Attempt]
    check_at_s: float
    checks: int = 0
    under_way_since_s: float | None = None


class InDoubtWrites:
    """The memory of them, by consumer."""

    def __init__(
        self, checks_after_s: Sequence[float] = CHECKS_AFTER_S, max_consumers: int = MAX_CONSUMERS
    ) -> None:
        self._checks_after_s = tuple(checks_after_s)
        self._max_consumers = max_consumers
        self._cases: dict[str, _Case] = {}

    def __len__(self) -> int:
        return len(self._cases)

    def add(self, consumer: str, attempt: Attempt, now: float) -> bool:
        """Remember one; False if an older consumer had to be forgotten for it."""
        case = self._cases.pop(consumer, None) or _Case([], 0.0)
        if attempt not in case.attempts:
            case.attempts.append(attempt)
        case.checks, case.check_at_s = 0, now + self._checks_after_s[0]
        case.under_way_since_s = None
        self._cases[consumer] = case
        if len(self._cases) <= self._max_consumers:
            return True
        del self._cases[next(iter(self._cases))]
        return False

    def attempts(self, consumer: str) -> tuple[Attempt, ...]:
        """Those of one consumer, oldest first."""
        case = self._cases.get(consumer)
        return tuple(case.attempts) if case else ()

    def settled(self, consumer: str) -> None:
        """The existing allocations are known, and are either needed or deleted."""
        self._cases.pop(consumer, None)

    def due(self, now: float) -> list[tuple[str, tuple[Attempt, ...]]]:
        """Consumers to be checked."""
        return [
            (consumer, tuple(case.attempts))
            for consumer, case in self._cases.items()
            if case.check_at_s <= now
        ]

    def all(self) -> list[tuple[str, tuple[Attempt, ...]]]:
        """Every one of them, due or not."""
        return [(consumer, tuple(case.attempts)) for consumer, case in self._cases.items()]

    def checked(self, consumer: str, now: float, result: CheckResult) -> bool:
        """A check has ended; False if the consumer was forgotten with an unknown outcome."""
        case = self._cases.get(consumer)
        if case is None:
            return True
        if result is CheckResult.UNDER_WAY and _is_over(case, now):
            del self._cases[consumer]
            return False
        if result in (CheckResult.UNDER_WAY, CheckResult.UNANSWERED):
            case.check_at_s = now + AGAIN_AFTER_S
            return True
        case.checks += 1
        if result is CheckResult.RIGHTFUL or case.checks >= len(self._checks_after_s):
            del self._cases[consumer]
        else:
            case.check_at_s = now + self._checks_after_s[case.checks]
        return True


def _is_over(case: _Case, now: float) -> bool:
    """Whether the server has been under way for too long; the time begins with the first such check."""
    if case.under_way_since_s is None:
        case.under_way_since_s = now
    return now - case.under_way_since_s >= UNDER_WAY_MAX_S
