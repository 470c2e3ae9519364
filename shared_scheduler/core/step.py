# SPDX-License-Identifier: Apache-2.0
"""What the parts of the core share while one event is handled: the moment, the effects, facts, the timers.

A part that has something to say to another one tells a *fact* (a claim has ended, a row was read).  The
scheduler core hands facts on when the part has returned (``scheduler.py``), so no part calls back into
the one that called it.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

from shared_scheduler.core.effects import Effect
from shared_scheduler.core.events import Event
from shared_scheduler.protocol.causes import cause_of
from shared_scheduler.protocol.messages import Message

#: what a timer is for, and for whom: ("verdict", claim id)
TimerKey = tuple[str, str]


class Fact:
    """What one part of the core tells another one through the core."""

    __slots__ = ()


@dataclass(slots=True)
class Step:
    """One call of ``SchedulerCore.step``: ``now`` in seconds, ``effects`` in the order of emission.

    ``trigger`` is what is handled now: the event, one message of it, a timer, or the cause id of the
    request that it turned out to belong to.
    """

    now: float
    trigger: str | TimerKey | Message | Event
    effects: list[Effect] = field(default_factory=list)
    _facts: deque[Fact] = field(default_factory=deque)
    _last_facts: deque[Fact] = field(default_factory=deque)

    @property
    def cause(self) -> str:
        """The cause id of what is handled now (``protocol/causes.py``); made only when it is wanted."""
        trigger = self.trigger
        if isinstance(trigger, str):
            return trigger
        if isinstance(trigger, tuple):
            return " ".join(("timer", *trigger)).rstrip()
        if isinstance(trigger, Message):
            return cause_of(trigger)
        return trigger.cause

    def emit(self, effect: Effect) -> None:
        """Add one effect."""
        self.effects.append(effect)

    def tell(self, fact: Fact) -> None:
        """Have a fact handed on as soon as the part that is at work returns."""
        self._facts.append(fact)

    def tell_last(self, fact: Fact) -> None:
        """Have a fact handed on at the end of the step, when everything else was handled; equal ones once."""
        if fact not in self._last_facts:
            self._last_facts.append(fact)

    def next_fact(self, last: bool) -> Fact | None:
        """Take the oldest fact; those for the end of the step only if ``last``, and after all others."""
        if self._facts:
            return self._facts.popleft()
        return self._last_facts.popleft() if last and self._last_facts else None


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
