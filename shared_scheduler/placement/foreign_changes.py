# SPDX-License-Identifier: Apache-2.0
"""Changes of a consumer that another writer made between two actions of this scheduler.

A scheduler knows the allocations and the generation that each of its writes leaves, and those that the table shows
before an evacuation.  Its next action for the same consumer finds others only if somebody else has written in between:
nova-compute, nova-conductor, neutron, cyborg, an operator, or another scheduler.  Nothing of that is changed; it is
recorded, so that an operator can see who else writes.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from shared_scheduler.core.effects import SeenBy
from shared_scheduler.placement.consumer_conflicts import ConsumerAllocations
from shared_scheduler.protocol.messages import Allocations

#: The number of stored changes; the oldest are dropped first.
MAX_CHANGES = 200


@dataclass(frozen=True, slots=True)
class ForeignChange:
    """One change.  ``seen_at_s``: seconds since 1970.  A generation of None: the consumer had no allocations."""

    consumer: str
    before: Allocations
    generation_before: int | None
    after: Allocations
    generation_after: int | None
    seen_by: SeenBy
    seen_at_s: float


class ForeignChanges:
    """The last changes, and how many there were.  Many threads use it."""

    def __init__(self, max_changes: int = MAX_CHANGES) -> None:
        self._lock = threading.Lock()
        self._changes: deque[ForeignChange] = deque(maxlen=max_changes)
        self._count = 0

    def add(
        self, consumer: str, before: ConsumerAllocations, after: ConsumerAllocations, seen_by: SeenBy, at_s: float
    ) -> None:
        """Record a change that was found at ``at_s``."""
        change = ForeignChange(
            consumer, before.allocations, before.generation, after.allocations, after.generation, seen_by, at_s
        )
        with self._lock:
            self._changes.append(change)
            self._count += 1

    def report(self) -> dict[str, Any]:
        """The number of all changes, and the last ones, newest first, as plain data."""
        with self._lock:
            found, count = list(self._changes), self._count
        return {"count": count, "changes": [asdict(change) for change in reversed(found)]}
