# SPDX-License-Identifier: Apache-2.0
"""The clocks of one simulated machine.  Both differ from the time of the world, and both may jump."""

from __future__ import annotations

from random import Random

from shared_scheduler.sim.agenda import Agenda

#: the monotonic clock of a machine starts anywhere
OFFSET_MAX_S = 1_000_000.0
#: the wall clock at the beginning of the world; a machine's may be set back by less than this
EPOCH_BEGINS_MS = 10**9


class LocalClock:
    """Seconds of a monotonic clock, and milliseconds of a wall clock."""

    def __init__(self, agenda: Agenda, rng: Random) -> None:
        self._agenda = agenda
        self._offset_s = round(rng.random() * OFFSET_MAX_S)
        self._set_back_ms = 0

    @property
    def now(self) -> float:
        """The time of the monotonic clock, in seconds."""
        return self._agenda.now + self._offset_s

    @property
    def wall_ms(self) -> int:
        """The time of the wall clock, in milliseconds."""
        return EPOCH_BEGINS_MS + int(self._agenda.now * 1000) - self._set_back_ms

    def here(self, world_s: float) -> float:
        """Convert a time of the world to the monotonic clock of this machine."""
        return world_s + self._offset_s

    def in_world(self, local_s: float) -> float:
        """Convert a time of the monotonic clock of this machine to the time of the world."""
        return local_s - self._offset_s

    def jump(self, by_s: int) -> None:
        """Advance the monotonic clock at once, as after a pause of the machine."""
        self._offset_s += by_s

    def set_back(self, by_s: int) -> None:
        """Set the wall clock back."""
        self._set_back_ms += 1000 * by_s
