# SPDX-License-Identifier: Apache-2.0
"""One key of one source: when it is due, whether a read is in flight, and how old the last read is."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass

from shared_scheduler.model.read_schedule import ReadSchedule
from shared_scheduler.sync.read_registry import ReadFrom, Source

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


class Flight:
    """At most one read in flight; callers that arrive meanwhile share the next one.  Guarded by the revalidator's lock.

    ``began_s`` and ``newest_s`` are the times at which the read in flight, and the newest successful read, *began*:
    their results may be that old.
    """

    __slots__ = (
        "_changed", "began_s", "begun", "ended", "key", "newest_s", "queued_s", "requested", "schedule", "source",
        "waiting",
    )  # fmt: skip

    def __init__(self, source: Source, key: Key, rng: random.Random) -> None:
        self.source = source
        self.key = key
        self.schedule = ReadSchedule(source.times, rng)
        self.begun = 0  # the number of reads that have begun; ``ended``: that have ended
        self.ended = 0
        self.began_s = float("-inf")
        self.newest_s = float("-inf")
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

    def begin(self, now: float) -> bool:
        """Whether a read begins now."""
        if not self.schedule.begin(now):
            return False
        self.begun += 1
        self.began_s = now
        return True

    def end(self, now: float, succeeded: bool, requested: frozenset[Place]) -> None:
        """Record that the read in flight has ended."""
        self.ended = self.begun
        self.requested = requested
        if succeeded:
            self.newest_s = self.began_s
            self.schedule.finished(now)
        else:
            self.schedule.failed(now)
        if self._changed is not None:
            self._changed.notify_all()

    def wanted(self, now: float, max_age_s: float) -> int:
        """Number of the read that a new caller waits for; at most ``ended`` if that read has ended already."""
        if now - self.newest_s < max_age_s:
            return self.ended
        if self.schedule.reading and now - self.began_s < max_age_s:
            return self.begun
        self.schedule.ask(now)
        return self.begun + 1

    def pending(self, now: float) -> int:
        """Number of the read that serves every request that is due by now."""
        planned_s = self.schedule.planned_s
        return self.begun + (planned_s is not None and planned_s <= now)

    def wait(self, lock: threading.Lock, timeout_s: float) -> None:
        """Wait until a read ends, or for ``timeout_s``.  The caller holds the lock."""
        self._changed = self._changed or threading.Condition(lock)
        self.waiting += 1
        try:
            self._changed.wait(timeout_s)
        finally:
            self.waiting -= 1
