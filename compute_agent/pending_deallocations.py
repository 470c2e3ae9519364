# SPDX-License-Identifier: Apache-2.0
"""Consumers whose allocation should soon be deleted from Placement."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from compute_agent.agent_settings import MAX_WATCHED_CONSUMERS, AgentSettings


@dataclass(frozen=True, slots=True)
class _NextRead:
    """When the allocation of a consumer is read next, and how long after the previous read that is."""

    due_s: float
    wait_s: float


class PendingDeallocations:
    """Consumers whose allocation should soon be deleted from Placement.

    They are of two kinds.  For a consumer that left the tracker, nova-compute frees its own numbers first and deletes
    the allocation some 100 ms later.  A consumer that nothing on the node explains may belong to a live migration,
    which holds its source in its own name until it has ended on the other host.  Both stay counted until a read shows
    that they are gone.  Reads are 50, 100, 200 ... ms apart for some minutes; after that only the poll remains.  A
    read before a consumer is due does not lengthen its wait; it can only show that the consumer is gone.
    """

    def __init__(self, settings: AgentSettings) -> None:
        self.settings = settings
        self._next_reads: dict[str, _NextRead] = {}

    def watches(self, consumer: str) -> bool:
        """Whether a read for this consumer is planned."""
        return consumer in self._next_reads

    def add(self, consumer: str, now: float) -> float | None:
        """Watch a consumer.  Return when to read; None if ``MAX_WATCHED_CONSUMERS`` are watched already."""
        if consumer not in self._next_reads and len(self._next_reads) >= MAX_WATCHED_CONSUMERS:
            return None
        first_s = self.settings.deallocation_read_first_s
        self._next_reads[consumer] = _NextRead(now + first_s, first_s)
        return now + first_s

    def note_read(self, held: Container[str], now: float) -> float | None:
        """Take a finished read: ``held`` still have allocations.  Return when to read again, or None."""
        after = {key: _after(planned, now) for key, planned in self._next_reads.items() if key in held}
        max_s = self.settings.deallocation_read_max_s
        self._next_reads = {key: planned for key, planned in after.items() if planned.wait_s <= max_s}
        return min((planned.due_s for planned in self._next_reads.values()), default=None)


def _after(planned: _NextRead, now: float) -> _NextRead:
    """The next read after one at ``now``: after twice the wait, if this one was due."""
    return planned if now < planned.due_s else _NextRead(now + planned.wait_s * 2, planned.wait_s * 2)
