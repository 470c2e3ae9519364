# SPDX-License-Identifier: Apache-2.0
"""For how long a write is sent again, and with which generations at the end.  Pure.

``consumer_conflicts`` explains the order: null until ``ORPHAN_AFTER_S``, then 0 if an own write may have left the
record as an orphan, then null once more.  While an own write without an answer may still create the record, it is null,
and no other host would help.  So is a write without an answer.  Both are sent again until the deadline, however often.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shared_scheduler.placement.consumer_conflicts import ORPHAN_AFTER_S, ConflictCase
from shared_scheduler.placement.own_records import OwnRecord

#: The generation of a record without allocations.
ORPHAN = 0


class NextWrite(StrEnum):
    """What follows a comparison that does not end the write."""

    AGAIN = "again"  # with the same generation
    TAKE_OVER = "take_over"  # with the generation of an orphan
    LAST = "last"  # with null
    LOST = "lost"  # none: the conflict lasts
    OVERDUE = "overdue"  # none: the deadline has passed


@dataclass(slots=True)
class ConflictPatience:
    """The patience of one write."""

    deadline_s: float
    _conflicts_since_s: float | None = None
    _tried_orphan: bool = False
    _is_last: bool = False

    def after(self, finding: ConflictCase, now: float, answered: bool, record: OwnRecord) -> NextWrite:
        """What follows a write and the comparison after it.

        ``answered``: the last write got an answer, which was a conflict.  ``record``: what the writes of this scheduler
        mean for the record of the consumer.
        """
        if now >= self.deadline_s:
            return NextWrite.OVERDUE
        if not answered:
            self._conflicts_since_s = None
            return NextWrite.AGAIN
        if self._conflicts_since_s is None:
            self._conflicts_since_s = now
        if now - self._conflicts_since_s < ORPHAN_AFTER_S or record is OwnRecord.COMING:
            return NextWrite.AGAIN
        return self._end(record) if finding is ConflictCase.NOTHING else NextWrite.LOST

    def _end(self, record: OwnRecord) -> NextWrite:
        if self._is_last:
            return NextWrite.LOST
        if record is OwnRecord.LEFT and not self._tried_orphan:
            self._tried_orphan = True
            return NextWrite.TAKE_OVER
        self._is_last = True
        return NextWrite.LAST
