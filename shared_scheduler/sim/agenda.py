# SPDX-License-Identifier: Apache-2.0
"""Virtual time: the agenda of actions, and the trace of events."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any

Action = Callable[..., None]

#: newest lines of a trace that are kept in memory; the digest covers all lines
TRACE_KEPT_LINES = 20_000
#: newest lines of a detailed trace that are kept in memory
DETAILED_LINES = 2_000_000


class Agenda:
    """A queue of actions by virtual time, in seconds since the beginning.  Actions of the same time run in the order
    in which they were added."""

    def __init__(self) -> None:
        self.now = 0.0
        #: pieces of work that are not done, and when the last one was done
        self.open_work = 0
        self.worked_s = 0.0
        self._heap: list[tuple[float, int, Action, tuple[Any, ...]]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def done(self) -> int:
        """Number of actions that have run."""
        return self._count - len(self._heap)

    def at(self, at_s: float, action: Action, *args: Any) -> None:
        """Run ``action(*args)`` at ``at_s``, or now if that time has passed."""
        self._add(max(at_s, self.now), action, args)

    def after(self, delay_s: float, action: Action, *args: Any) -> None:
        """Run ``action(*args)`` after ``delay_s``; a negative delay counts as 0."""
        self._add(self.now + delay_s, action, args)

    def work(self, delay_s: float, action: Action, *args: Any) -> None:
        """As ``after``, for an action that changes the state of the world, which is not at rest before it is done."""
        self.open_work += 1
        self._add(self.now + delay_s, self._do_work, (action, args))

    def _do_work(self, action: Action, args: tuple[Any, ...]) -> None:
        self.open_work -= 1
        self.worked()
        action(*args)

    def worked(self) -> None:
        """The state of the world has changed now."""
        self.worked_s = self.now

    def _add(self, at_s: float, action: Action, args: tuple[Any, ...]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (at_s, self._count, action, args))

    def next_s(self) -> float | None:
        """When the next action is due; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def do_next(self, until_s: float) -> bool:
        """Run the next action.  If it is due after ``until_s``, advance to ``until_s`` and return False."""
        if not self._heap or self._heap[0][0] > until_s:
            self.now = max(self.now, until_s)
            return False
        self.now, _, action, args = heapq.heappop(self._heap)
        action(*args)
        return True

    def run_until(self, until_s: float) -> None:
        """Run all actions that are due until ``until_s``, and advance to it."""
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            self.now, _, action, args = heapq.heappop(heap)
            action(*args)
        self.now = max(self.now, until_s)


class Trace:
    """The events, one line each: a digest of all lines, and the text of the last ones.

    ``detailed_lines``: keep this many, with details (each message, each window's phases); the digest
    does not cover details, so that it is the same with and without them.
    """

    def __init__(self, agenda: Agenda, detailed_lines: int = 0) -> None:
        self._agenda = agenda
        self._hash = blake2b(digest_size=16)
        self._lines: deque[str] = deque(maxlen=detailed_lines or TRACE_KEPT_LINES)
        self.detailed = detailed_lines > 0
        self.count = 0

    def note(self, who: str, what: str) -> None:
        """Record that ``who`` did ``what`` now."""
        line = f"{self._agenda.now:.6f} {who} {what}"
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self._lines.append(line)
        self.count += 1

    def detail(self, who: str, what: str) -> None:
        """Record an event of the detailed trace.  Check ``detailed`` first."""
        self._lines.append(f"{self._agenda.now:.6f} {who} {what}")

    def digest(self) -> str:
        """32 hex digits over every line so far: equal traces have equal digests."""
        return self._hash.hexdigest()

    def lines(self, about: str = "") -> Iterator[str]:
        """The kept lines, oldest first, that contain ``about``."""
        return (line for line in self._lines if about in line)
