# SPDX-License-Identifier: Apache-2.0
"""What the parts of the core share while one event is handled: the time, the effects, the facts, the timers.

A part reports a *fact* to other parts (a claim has ended, a row was read).  The scheduler core passes the fact on
when the part has returned (``scheduler.py``).  Therefore no part calls back into its caller.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

from shared_scheduler.core.effects import Effect
from shared_scheduler.core.events import Event
from shared_scheduler.protocol.causes import cause_of
from shared_scheduler.protocol.messages import Message

#: the kind of a timer and the id of its owner: ("verdict", claim id)
TimerKey = tuple[str, str]


class Fact:
    """A report of one part of the core to other parts."""

    __slots__ = ()


@dataclass(slots=True)
class Step:
    """One call of ``SchedulerCore.step``: ``now`` in seconds, ``effects`` in the order of emission.

    ``trigger`` is what is handled now: the event, one of its messages, a timer, or the cause id of the request to
    which it belongs.
    """

    now: float
    trigger: str | TimerKey | Message | Event
    effects: list[Effect] = field(default_factory=list)
    _facts: deque[Fact] = field(default_factory=deque)
    _last_facts: deque[Fact] = field(default_factory=deque)

    @property
    def cause(self) -> str:
        """The cause id of what is handled now (``protocol/causes.py``); computed on demand."""
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

    def report(self, fact: Fact) -> None:
        """Report a fact that is passed on as soon as the current part returns."""
        self._facts.append(fact)

    def report_last(self, fact: Fact) -> None:
        """Report a fact that is passed on at the end of the step, after everything else; equal facts once."""
        if fact not in self._last_facts:
            self._last_facts.append(fact)

    def next_fact(self, last: bool) -> Fact | None:
        """Remove and return the oldest fact.  Facts for the end of the step follow all others, if ``last``."""
        if self._facts:
            return self._facts.popleft()
        return self._last_facts.popleft() if last and self._last_facts else None


class Timers:
    """The timers of the core, one for each key: setting a key again moves its timer.

    They are a heap with lazy deletion: an entry is valid only while it equals the last time that was set for its
    key.  The heap is rebuilt when most entries are invalid, so that memory follows the number of live timers.
    """

    def __init__(self) -> None:
        self._at: dict[TimerKey, float] = {}
        self._heap: list[tuple[float, TimerKey]] = []

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: TimerKey, at_s: float) -> None:
        """Set the timer ``key`` to ring at ``at_s``."""
        self._at[key] = at_s
        heapq.heappush(self._heap, (at_s, key))
        if len(self._heap) > 64 + 4 * len(self._at):
            self._heap = [(at, key) for key, at in self._at.items()]
            heapq.heapify(self._heap)

    def cancel(self, key: TimerKey) -> bool:
        """Cancel the timer ``key``; returns whether it was set."""
        return self._at.pop(key, None) is not None

    def at_s(self, key: TimerKey) -> float:
        """When the timer ``key`` rings; infinity if it is not set."""
        return self._at.get(key, float("inf"))

    def next_s(self) -> float | None:
        """When the next timer rings; None if none is set."""
        self._drop_dead()
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> TimerKey | None:
        """Remove and return the earliest timer that rings at ``now`` or before; None if there is none."""
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
