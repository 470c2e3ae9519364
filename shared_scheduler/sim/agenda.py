# SPDX-License-Identifier: Apache-2.0
"""Virtual time: what is to happen when, and the trace of what happened."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any

Action = Callable[..., None]

#: lines of a trace that are kept in memory; the digest covers all of them
TRACE_KEPT_LINES = 20_000
#: the same of a detailed trace, which is asked for when somebody wants to read it
DETAILED_LINES = 2_000_000


class Agenda:
    """Actions by virtual time, in seconds from the beginning.  Same order in, same order out."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Action, tuple[Any, ...]]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def done(self) -> int:
        """How many actions have been done so far."""
        return self._count - len(self._heap)

    def at(self, at_s: float, action: Action, *args: Any) -> None:
        """Do ``action(*args)`` at ``at_s``, or now if that has passed."""
        self._add(max(at_s, self.now), action, args)

    def after(self, delay_s: float, action: Action, *args: Any) -> None:
        """Do it ``delay_s`` from now; that is never less than nothing."""
        self._add(self.now + delay_s, action, args)

    def _add(self, at_s: float, action: Action, args: tuple[Any, ...]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (at_s, self._count, action, args))

    def next_s(self) -> float | None:
        """When the next action is due; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def run_until(self, until_s: float) -> None:
        """Do everything that is due up to ``until_s``, and be there."""
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            self.now, _, action, args = heapq.heappop(heap)
            action(*args)
        self.now = max(self.now, until_s)


class Trace:
    """What happened, one line each: a digest of all of it, and the last lines for people.

    ``detailed_lines``: keep so many, with details (each message, each window's phases); the digest
    does not cover details, so that it is the same with and without them.
    """

    def __init__(self, agenda: Agenda, detailed_lines: int = 0) -> None:
        self._agenda = agenda
        self._hash = blake2b(digest_size=16)
        self._lines: deque[str] = deque(maxlen=detailed_lines or TRACE_KEPT_LINES)
        self.detailed = detailed_lines > 0
        self.count = 0

    def note(self, who: str, what: str) -> None:
        """``who`` did ``what`` now."""
        line = f"{self._agenda.now:.6f} {who} {what}"
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self._lines.append(line)
        self.count += 1

    def detail(self, who: str, what: str) -> None:
        """The same, for those who want to read all of it.  Ask ``detailed`` first."""
        self._lines.append(f"{self._agenda.now:.6f} {who} {what}")

    def digest(self) -> str:
        """32 hex digits over every line so far: equal traces have equal digests."""
        return self._hash.hexdigest()

    def lines(self, about: str = "") -> Iterator[str]:
        """The kept lines, oldest first, that contain ``about``."""
        return (line for line in self._lines if about in line)
