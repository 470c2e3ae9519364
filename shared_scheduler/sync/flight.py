# SPDX-License-Identifier: Apache-2.0
"""One key of one source: when it is due, whether a read is in flight, how old the last one is."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass

from shared_scheduler.model.read_schedule import ReadSchedule
from shared_scheduler.sync.sources import Authority, Source

#: () for the cloud, (cell uuid,), or (cell uuid, node uuid).
Key = tuple[str, ...]
#: Name of the source, and the key.
Place = tuple[str, Key]


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Wants a key read in so many seconds."""

    source: str
    key: Key
    in_s: float = 0.0

    @property
    def place(self) -> Place:
        """What it names."""
        return self.source, self.key


class Flight:
    """At most one read in flight; who comes meanwhile shares the next one.  Guarded by the revalidator's lock.

    ``began_s`` and ``newest_s`` are the times at which the read in flight, and the newest that succeeded, *began*:
    what it found may be as old as that.
    """

    __slots__ = (
        "_changed", "began_s", "begun", "ended", "key", "newest_s", "queued_s", "requested", "schedule", "source",
        "waiting",
    )  # fmt: skip

    def __init__(self, source: Source, key: Key, rng: random.Random) -> None:
        self.source = source
        self.key = key
        self.schedule = ReadSchedule(source.times, rng)
        self.begun = 0  # how many reads have begun, and ended
        self.ended = 0
        self.began_s = float("-inf")
        self.newest_s = float("-inf")
        #: What the last read wants read because of what it found, and what those before it want and has not been.
        self.requested: frozenset[Place] = frozenset()
        self.queued_s: float | None = None  # the lane checks it again at this time
        self._changed: threading.Condition | None = None
        self.waiting = 0  # threads

    @property
    def place(self) -> Place:
        """Its name."""
        return self.source.name, self.key

    @property
    def authorities(self) -> tuple[str, ...]:
        """Who has to answer this read.  How it ends says something of the first one only."""
        match self.source.authority:
            case Authority.CELL:
                return (f"cell {self.key[0]}",)
            case Authority.PLACEMENT:
                return (Authority.PLACEMENT,)
            case Authority.CELL_AND_PLACEMENT:
                return (f"nodes of cell {self.key[0]}", f"cell {self.key[0]}", Authority.PLACEMENT)
        return (self.source.name,)

    @property
    def is_idle(self) -> bool:
        """Neither in flight, nor due at any time: it may be forgotten; who still waits for it has it."""
        return not self.schedule.reading and self.schedule.due_s() is None

    def begin(self, now: float) -> bool:
        """Whether a read begins now."""
        if not self.schedule.begin(now):
            return False
        self.begun += 1
        self.began_s = now
        return True

    def end(self, now: float, succeeded: bool, requested: frozenset[Place]) -> None:
        """The read in flight has ended."""
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
        """Number of the read that a new caller waits for; at most ``ended`` if that read exists already."""
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
        """Until a read ends, or so long.  With the lock held."""
        self._changed = self._changed or threading.Condition(lock)
        self.waiting += 1
        try:
            self._changed.wait(timeout_s)
        finally:
            self.waiting -= 1
