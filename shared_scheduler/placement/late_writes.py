# SPDX-License-Identifier: Apache-2.0
"""Writes that got no answer and may be carried out later.  Pure.

Generations order the writes of a consumer only as long as its record exists.  Placement removes the record with the
last allocation, and the next record of the same consumer begins with generation 1 again.  So a write that was sent
for the earlier record would be carried out on the later one: it would delete or replace the allocations of the next
attempt, which another scheduler may have answered.

Therefore this scheduler does not remove a record while one of its writes with a generation may still be carried out.
The record, with its growing generation, then refuses that write when it arrives.  This includes the deletes of orphaned
allocations (``sync/orphan_sweeper.py``).  The writes of other schedulers without an answer are not known here.

A write of a new consumer (null) is refused by any record (``own_records`` is about the record that it makes).
"""

from __future__ import annotations

from cachetools import FIFOCache

from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S

#: Maximum number of stored consumers; the oldest are dropped first.
MAX_CONSUMERS = 4096
#: Why a record is not removed.
MAY_ARRIVE = "an earlier write of these allocations got no answer and may still be carried out"


class LateWrites:
    """Consumers with a write that may be carried out late, and when it was sent."""

    def __init__(self, max_consumers: int = MAX_CONSUMERS) -> None:
        self._sent_s: FIFOCache[str, float] = FIFOCache(max_consumers)

    def add(self, consumer: str, now: float) -> None:
        """Note that a write with a generation got no answer."""
        self._sent_s.pop(consumer, None)
        self._sent_s[consumer] = now

    def may_arrive(self, consumer: str, now: float) -> bool:
        """Whether a write of the consumer may still be carried out."""
        sent_s = self._sent_s.get(consumer)
        return sent_s is not None and now < sent_s + CARRIED_OUT_WITHIN_S
