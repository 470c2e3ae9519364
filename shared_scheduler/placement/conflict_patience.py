# SPDX-License-Identifier: Apache-2.0
"""For how long a write that conflicts is sent again.  Pure.

``consumer_conflicts`` explains the order: until ``LASTS_AFTER_S``, then once more if the consumer has no allocations.
While an own write without an answer may still create the record of the consumer, until the deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shared_scheduler.placement.consumer_conflicts import LASTS_AFTER_S, MAX_ATTEMPTS, ConflictCase


class NextWrite(StrEnum):
    """What follows a comparison that does not end the write."""

    AGAIN = "again"  # with the same generation
    LAST = "last"  # with the same generation, the last time
    LOST = "lost"  # none: the conflict lasts
    OVERDUE = "overdue"  # none: the deadline has passed, or too many were sent


@dataclass(slots=True)
class ConflictPatience:
    """The patience of one write."""

    deadline_s: float
    sent: int = 0
    _conflicts_since_s: float | None = None
    _is_last: bool = False

    def after(self, finding: ConflictCase, now: float, answered: bool, may_be_created: bool) -> NextWrite:
        """What follows a write and the comparison after it.

        ``answered``: the last write got an answer, which was a conflict.  ``may_be_created``: a write of this scheduler
        without an answer may still create the record.
        """
        if now >= self.deadline_s or self.sent >= MAX_ATTEMPTS:
            return NextWrite.OVERDUE
        if not answered:
            self._conflicts_since_s = None
            return NextWrite.AGAIN
        if self._conflicts_since_s is None:
            self._conflicts_since_s = now
        if now - self._conflicts_since_s < LASTS_AFTER_S or may_be_created:
            return NextWrite.AGAIN
        if finding is not ConflictCase.NOTHING or self._is_last:
            return NextWrite.LOST
        self._is_last = True
        return NextWrite.LAST
