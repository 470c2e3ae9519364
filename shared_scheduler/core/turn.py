# SPDX-License-Identifier: Apache-2.0
"""What the parts of the core share while one event is handled: the moment, the effects, the timers."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from shared_scheduler.core.effects import Effect

#: what a timer is for, and for whom: ("verdict", claim id)
TimerKey = tuple[str, str]


@dataclass(slots=True)
class Turn:
    """One call of ``SchedulerCore.step``: ``now`` in seconds, ``effects`` in the order of emission."""

    now: float
    effects: list[Effect] = field(default_factory=list)

    def emit(self, effect: Effect) -> None:
        """Add one effect."""
        self.effects.append(effect)


class Timers:
    """The core's alarms.  One a key: setting it again moves it.

    A heap with lazy deletion: an entry counts only while it is what its key was last set to, and the
    heap is rebuilt when most of it is dead, so that memory follows the number of live timers.
    """

    def __init__(self) -> None:
        self._at: dict[TimerKey, float] = {}
        self._heap: list[tuple[float, TimerKey]] = []

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: TimerKey, at_s: float) -> None:
        """Ring ``key`` at ``at_s``."""
        self._at[key] = at_s
        heapq.heappush(self._heap, (at_s, key))
        if len(self._heap) > 64 + 4 * len(self._at):
            self._heap = [(at, key) for key, at in self._at.items()]
            heapq.heapify(self._heap)

    def cancel(self, key: TimerKey) -> bool:
        """Forget ``key``; whether it was set."""
        return self._at.pop(key, None) is not None

    def at_s(self, key: TimerKey) -> float:
        """When ``key`` is to ring; infinity if it is not set."""
        return self._at.get(key, float("inf"))

    def next_s(self) -> float | None:
        """When the next timer rings, None if none is set."""
        self._drop_dead()
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> TimerKey | None:
        """Take one timer that rings at ``now`` or before, earliest first; None if there is none."""
        self._drop_dead()
        if not self._heap or self._heap[0][0] > now:
            return None
        _, key = heapq.heappop(self._heap)
        del self._at[key]
        return key

    def _drop_dead(self) -> None:
        heap = self._heap
        while heap and self._at.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
