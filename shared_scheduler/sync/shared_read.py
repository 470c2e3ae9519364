# SPDX-License-Identifier: Apache-2.0
"""A read that many callers wait for: at most one is in flight, and who may share which.  Pure.

``flight.py`` adds the threads that wait; the simulator has it as it is.
"""

from __future__ import annotations

import random

from shared_scheduler.model.read_schedule import ReadSchedule, ReadTimes


class SharedRead:
    """At most one read in flight; callers that arrive meanwhile share the next one.

    ``began_s`` and ``newest_s`` are the times at which the read in flight, and the newest successful read, *began*:
    their results may be that old.
    """

    __slots__ = ("began_s", "begun", "ended", "newest_s", "schedule")

    def __init__(self, times: ReadTimes, rng: random.Random) -> None:
        self.schedule = ReadSchedule(times, rng)
        self.begun = 0  # the number of reads that have begun; ``ended``: that have ended
        self.ended = 0
        self.began_s = float("-inf")
        self.newest_s = float("-inf")

    def begin(self, now: float) -> bool:
        """Whether a read begins now."""
        if not self.schedule.begin(now):
            return False
        self.begun += 1
        self.began_s = now
        return True

    def end(self, now: float, succeeded: bool) -> None:
        """Record that the read in flight has ended."""
        self.ended = self.begun
        if succeeded:
            self.newest_s = self.began_s
            self.schedule.finished(now)
        else:
            self.schedule.failed(now)

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
