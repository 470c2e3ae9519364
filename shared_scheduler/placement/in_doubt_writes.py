# SPDX-License-Identifier: Apache-2.0
"""Writes whose outcome is not known, and allocations that could not be deleted.  Pure.

A request that timed out may still be carried out later.  Each one is stored and checked a few times; allocations that
are exactly ours are then deleted.  A check does not count if it has no answer, or if another operation may rely on the
allocations.  While a write is stored, a conflict with it is recognised as a conflict with our own write, until what it
wrote was deleted: another scheduler may write the same from then on.

A write that may have left the same allocations as one that was answered shortly before is hidden: another request for
the server may have been answered with them.  It is checked when Nova knows whether the server needs them.

If a new server is answered after a write in doubt for another host, what was answered is checked then too.  Another
scheduler, which got the same request, may have written and answered what this one took for its write in doubt, deleted
or replaced it.  The server is on the other host then, and nothing else would remove these allocations as long as it
lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from cachetools import FIFOCache

from shared_scheduler.model.resources import same_allocations
from shared_scheduler.protocol.messages import Allocations

#: Seconds from the write to the first check, and from each check to the next.
CHECKS_AFTER_S = (2.0, 8.0, 20.0)
#: Wait after a check that does not count.
AGAIN_AFTER_S = 10.0
#: Time after which the consumer of a server with an operation under way is forgotten; most moves take less.
UNDER_WAY_MAX_S = 600.0
#: Maximum number of stored consumers, and of those with an answer; the oldest are dropped first.
MAX_CONSUMERS = 4096


class CheckResult(StrEnum):
    """The result of one check."""

    NOTHING = "nothing"  # no allocations of ours, or they were deleted
    RIGHTFUL = "rightful"  # the server is on this host: its allocations are correct
    UNDER_WAY = "under_way"  # an operation may use the allocations
    UNANSWERED = "unanswered"


@dataclass(frozen=True, slots=True)
class WriteAttempt:
    """Allocations that may have been written, and those before.

    ``generation``: the consumer's generation after the write.  A later writer of the same allocations has given it
    another one.  None: not known.  ``is_new``: of a new server, which no later operation is.  ``answered``: a request
    was answered with them, after an earlier write of this scheduler in doubt.
    """

    written: Allocations
    before: Allocations = field(default_factory=dict)
    generation: int | None = None
    is_new: bool = False
    answered: bool = False


@dataclass(frozen=True, slots=True)
class _Answered:
    """What the last write with an answer has left, and its claim; until Nova knows whether the server needs it."""

    claim_id: str
    left: WriteAttempt
    until_s: float

    def hides(self, other: WriteAttempt, now: float) -> bool:
        """Whether another write has left the same, and may be taken for this one."""
        left = self.left
        return now < self.until_s and left.is_new == other.is_new and same_allocations(left.written, other.written)


@dataclass(slots=True)
class _Case:
    attempts: list[WriteAttempt]
    check_at_s: float
    deleted: list[WriteAttempt] = field(default_factory=list)  # of the attempts
    checks: int = 0
    under_way_since_s: float | None = None


class InDoubtWrites:
    """All writes in doubt, by consumer."""

    def __init__(self, checks_after_s: Sequence[float] = CHECKS_AFTER_S, max_consumers: int = MAX_CONSUMERS) -> None:
        self._checks_after_s = tuple(checks_after_s)
        self._max_consumers = max_consumers
        self._cases: dict[str, _Case] = {}
        self._answered: FIFOCache[str, _Answered] = FIFOCache(max_consumers)

    def __len__(self) -> int:
        return len(self._cases)

    def add(self, consumer: str, attempt: WriteAttempt, now: float) -> bool:
        """Store an attempt; False if an older consumer was dropped for it."""
        case = self._cases.pop(consumer, None) or _Case([], 0.0)
        if attempt not in case.attempts:
            case.attempts.append(attempt)
        if attempt in case.deleted:
            case.deleted.remove(attempt)
        case.checks, case.check_at_s = 0, max(now + self._checks_after_s[0], self._hidden_until_s(consumer, case, now))
        case.under_way_since_s = None
        self._cases[consumer] = case
        if len(self._cases) <= self._max_consumers:
            return True
        del self._cases[next(iter(self._cases))]
        return False

    def _hidden_until_s(self, consumer: str, case: _Case, now: float) -> float:
        """Until when an attempt is hidden."""
        answered = self._answered.get(consumer)
        is_hidden = answered is not None and any(answered.hides(one, now) for one in case.attempts)
        return answered.until_s if answered is not None and is_hidden else now

    def attempts(self, consumer: str, now: float) -> tuple[WriteAttempt, ...]:
        """The attempts of one consumer that may have been carried out, are not hidden, and were neither deleted nor
        answered; oldest first."""
        case, answered = self._cases.get(consumer), self._answered.get(consumer)
        left = [one for one in case.attempts if one not in case.deleted and not one.answered] if case else []
        return tuple(one for one in left if answered is None or not answered.hides(one, now))

    def deleted(self, consumer: str, attempt: WriteAttempt) -> None:
        """Note that what an attempt wrote was deleted.  It was sent perhaps twice, so it is still checked."""
        self._answered.pop(consumer, None)
        case = self._cases.get(consumer)
        if case is not None and attempt in case.attempts and attempt not in case.deleted:
            case.deleted.append(attempt)

    def settled(self, consumer: str, claim_id: str, left: WriteAttempt, nova_knows_s: float) -> None:
        """Remove a consumer whose allocations are known: the write of this claim was answered.  ``nova_knows_s``: when
        Nova knows of an answer with it.  A new server with a write in doubt for another host is checked then."""
        case = self._cases.pop(consumer, None)
        self._answered.pop(consumer, None)
        self._answered[consumer] = _Answered(claim_id, left, nova_knows_s)
        attempts = case.attempts if case is not None else ()
        if left.is_new and not all(same_allocations(one.written, left.written) for one in attempts):
            self._cases[consumer] = _Case([replace(left, answered=True)], nova_knows_s)

    def deleting(self, consumer: str, claim_id: str) -> None:
        """Note that what a claim wrote is not needed any more."""
        answered = self._answered.get(consumer)
        if answered is not None and answered.claim_id == claim_id:
            del self._answered[consumer]

    def may_be_anothers(self, consumer: str, claim_id: str, attempt: WriteAttempt, now: float) -> bool:
        """Whether the write of another claim was answered with the same allocations, which are not deleted yet."""
        answered = self._answered.get(consumer)
        return answered is not None and answered.claim_id != claim_id and answered.hides(attempt, now)

    def due(self, now: float) -> list[tuple[str, tuple[WriteAttempt, ...]]]:
        """The consumers whose check is due."""
        return [(consumer, tuple(case.attempts)) for consumer, case in self._cases.items() if case.check_at_s <= now]

    def all(self) -> list[tuple[str, tuple[WriteAttempt, ...]]]:
        """All consumers."""
        return [(consumer, tuple(case.attempts)) for consumer, case in self._cases.items()]

    def checkable(self, now: float) -> list[tuple[str, tuple[WriteAttempt, ...]]]:
        """The consumers that may be checked before they are due: no attempt is hidden."""
        return [(one, found) for one, found in self.all() if self._hidden_until_s(one, self._cases[one], now) <= now]

    def checked(self, consumer: str, now: float, result: CheckResult) -> bool:
        """Note the result of a check; False if the consumer was forgotten with an unknown outcome."""
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
    """Whether an operation of the server has taken too long, counted from the first check that found one."""
    if case.under_way_since_s is None:
        case.under_way_since_s = now
    return now - case.under_way_since_s >= UNDER_WAY_MAX_S
