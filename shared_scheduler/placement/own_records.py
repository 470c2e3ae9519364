# SPDX-License-Identifier: Apache-2.0
"""Consumer records that failed writes of this scheduler may have made.  Pure.

A write of a new consumer makes its record before the allocations (``consumer_conflicts``).  If it fails, the record is
in one of these states for this scheduler:

=======  ====================================================  =====================================
state    the last failed write of the consumer                 if the record shows no allocations
=======  ====================================================  =====================================
NONE     there was none, it ended with a conflict, or the      another writer has made it
         consumer has shown allocations since
COMING   has no answer and may still be carried out            Placement deletes it if the write fails
LEFT     was answered with a failure that leaves records, or   it may be taken over
         cannot be carried out any more
=======  ====================================================  =====================================

A conflict (409) leaves no record: Placement deletes the records that the write has made.
"""

from __future__ import annotations

from enum import StrEnum

from cachetools import FIFOCache

from shared_scheduler.placement.late_writes import MAX_CONSUMERS
from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S


class OwnRecord(StrEnum):
    """What the writes of this scheduler mean for a record that shows no allocations."""

    NONE = "none"
    COMING = "coming"
    LEFT = "left"


class OwnRecords:
    """The consumers of failed writes, and until when the last of these may be carried out.

    ``max_consumers``: the maximum number of stored consumers; the oldest are dropped first.
    """

    def __init__(self, max_consumers: int = MAX_CONSUMERS) -> None:
        self._until_s: FIFOCache[str, float] = FIFOCache(max_consumers)

    def failed(self, consumer: str, sent_s: float, may_arrive: bool) -> None:
        """Note a write of a new consumer that may have made its record.  ``may_arrive``: it has no answer yet."""
        until_s = sent_s + (CARRIED_OUT_WITHIN_S if may_arrive else 0.0)
        self._until_s[consumer] = max(until_s, self._until_s.pop(consumer, until_s))

    def written(self, consumer: str) -> None:
        """Note that the record of the consumer has allocations, by whichever writer: no failed write has left it."""
        self._until_s.pop(consumer, None)

    def state(self, consumer: str, now: float) -> OwnRecord:
        """The state of the record of a consumer."""
        until_s = self._until_s.get(consumer)
        if until_s is None:
            return OwnRecord.NONE
        return OwnRecord.COMING if now < until_s else OwnRecord.LEFT
