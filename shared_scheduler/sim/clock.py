# SPDX-License-Identifier: Apache-2.0
"""The clocks of one simulated machine: none of them shows the world's time, and both may jump."""

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
        """What the machine's monotonic clock shows."""
        return self._agenda.now + self._offset_s

    @property
    def wall_ms(self) -> int:
        """What its wall clock shows."""
        return EPOCH_BEGINS_MS + int(self._agenda.now * 1000) - self._set_back_ms

    def here(self, world_s: float) -> float:
        """A moment of the world on this machine's monotonic clock."""
        return world_s + self._offset_s

    def in_world(self, local_s: float) -> float:
        """A moment of this machine's monotonic clock in the world's time."""
        return local_s - self._offset_s

    def jump(self, by_s: int) -> None:
        """The monotonic clock runs ahead at once, as after a machine was paused."""
        self._offset_s += by_s

    def set_back(self, by_s: int) -> None:
        """Somebody sets the wall clock back."""
        self._set_back_ms += 1000 * by_s
