# SPDX-License-Identifier: Apache-2.0
"""One key of one source: when it is due, whether a read is in flight, and how old the last read is."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass

from shared_scheduler.sync.read_registry import ReadFrom, Source
from shared_scheduler.sync.shared_read import SharedRead

#: () for the cloud, (cell uuid,), or (cell uuid, node uuid).
Key = tuple[str, ...]
#: Name of the source, and the key.
Place = tuple[str, Key]


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A request to read a key within a number of seconds."""

    source: str
    key: Key
    in_s: float = 0.0

    @property
    def place(self) -> Place:
        """The source and the key."""
        return self.source, self.key


def authority_of(cell: str) -> str:
    """The name of the database of a cell as an authority."""
    return f"cell {cell}"


class Flight(SharedRead):
    """The read of a key, and the threads that wait for it.  Guarded by the revalidator's lock."""

    __slots__ = ("_changed", "key", "queued_s", "requested", "source", "waiting")

    def __init__(self, source: Source, key: Key, rng: random.Random) -> None:
        super().__init__(source.times, rng)
        self.source = source
        self.key = key
        #: The reads that the last read has requested, and those requested before it that are still waiting.
        self.requested: frozenset[Place] = frozenset()
        self.queued_s: float | None = None  # the time at which the lane checks it again
        self._changed: threading.Condition | None = None
        self.waiting = 0  # threads

    @property
    def place(self) -> Place:
        """Its name."""
        return self.source.name, self.key

    @property
    def authorities(self) -> tuple[str, ...]:
        """The authorities that this read needs.  The outcome of the read is evidence about the first one only."""
        match self.source.authority:
            case ReadFrom.CELL:
                return (authority_of(self.key[0]),)
            case ReadFrom.PLACEMENT:
                return (ReadFrom.PLACEMENT,)
            case ReadFrom.CELL_AND_PLACEMENT:
                return (f"nodes of cell {self.key[0]}", authority_of(self.key[0]), ReadFrom.PLACEMENT)
        return (self.source.name,)

    @property
    def is_idle(self) -> bool:
        """Whether it is neither in flight nor due, and may be removed; callers that still wait hold a reference."""
        return not self.schedule.reading and self.schedule.due_s() is None

    def served(self, now: float, succeeded: bool, requested: frozenset[Place]) -> None:
        """Record that the read in flight has ended, and wake those who wait for it."""
        self.end(now, succeeded)
        self.requested = requested
        if self._changed is not None:
            self._changed.notify_all()

    def wait(self, lock: threading.Lock, timeout_s: float) -> None:
        """Wait until a read ends, or for ``timeout_s``.  The caller holds the lock."""
        self._changed = self._changed or threading.Condition(lock)
        self.waiting += 1
        try:
            self._changed.wait(timeout_s)
        finally:
            self.waiting -= 1
