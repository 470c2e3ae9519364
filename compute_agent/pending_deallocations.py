# SPDX-License-Identifier: Apache-2.0
"""Consumers whose allocation should soon be deleted from Placement."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from compute_agent.agent_settings import MAX_WATCHED_CONSUMERS, AgentSettings

#: The first wait grows by this factor when a deletion was seen by one of the next reads only, and shrinks by the other
#: one when the first read has seen it.  So about one first read in nine is too early.
GROWS, SHRINKS = 1.5, 0.95
#: The reads after which a deletion still shows how long nova-compute takes; a later one is of a migration.
MEASURED_READS = 3
#: Bounds of the first wait, as multiples of the one that it begins with.
FIRST_LEAST, FIRST_MOST = 1 / 3, 4.0


@dataclass(frozen=True, slots=True)
class _NextRead:
    """When the allocation of a consumer is read next, how long after the previous read that is, and its number."""

    due_s: float
    wait_s: float
    number: int = 1


class PendingDeallocations:
    """Consumers whose allocation should soon be deleted from Placement.

    They are of two kinds.  For a consumer that left the tracker, nova-compute frees its own numbers first and deletes
    the allocation some 100 ms later.  A consumer that nothing on the node explains may belong to a live migration,
    which holds its source in its own name until it has ended on the other host; it is watched again when an instance
    leaves that held nothing in its own name.  Both stay counted until a read shows that they are gone.  Each wait is
    twice the one before it, for some minutes; after that only the poll remains.  The first wait is as long as deletions
    on this node take.  A read before a consumer is due does not lengthen its wait; it can only show that the consumer
    is gone.
    """

    def __init__(self, settings: AgentSettings) -> None:
        self.settings = settings
        self._next_reads: dict[str, _NextRead] = {}
        self._first = 1.0  # the first wait, as a multiple of ``deallocation_read_first_s``

    @property
    def first_s(self) -> float:
        """The wait before the first read of a consumer."""
        return self._first * self.settings.deallocation_read_first_s

    def watches(self, consumer: str) -> bool:
        """Whether a read for this consumer is planned."""
        return consumer in self._next_reads

    def add(self, consumer: str, now: float) -> float | None:
        """Watch a consumer.  Return when to read; None if ``MAX_WATCHED_CONSUMERS`` are watched already."""
        if consumer not in self._next_reads and len(self._next_reads) >= MAX_WATCHED_CONSUMERS:
            return None
        self._next_reads[consumer] = _NextRead(now + self.first_s, self.first_s)
        return now + self.first_s

    def note_read(self, held: Container[str], now: float) -> float | None:
        """Take a finished read: ``held`` still have allocations, or got them after the read began.

        Return when to read again, or None.
        """
        for key, planned in self._next_reads.items():
            if key not in held and now >= planned.due_s:
                self._learn(planned.number)
        after = {key: _after(planned, now) for key, planned in self._next_reads.items() if key in held}
        max_s = self.settings.deallocation_read_max_s
        self._next_reads = {key: planned for key, planned in after.items() if planned.wait_s <= max_s}
        return min((planned.due_s for planned in self._next_reads.values()), default=None)

    def _learn(self, reads: int) -> None:
        """The n-th read for a consumer has shown that it is gone."""
        if reads == 1:
            self._first = max(self._first * SHRINKS, FIRST_LEAST)
        elif reads <= MEASURED_READS:
            self._first = min(self._first * GROWS, FIRST_MOST)


def _after(planned: _NextRead, now: float) -> _NextRead:
    """The next read after one at ``now``: after twice the wait, if this one was due."""
    if now < planned.due_s:
        return planned
    return _NextRead(now + planned.wait_s * 2, planned.wait_s * 2, planned.number + 1)
