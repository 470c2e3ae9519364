# SPDX-License-Identifier: Apache-2.0
"""The ticks of a core: one action at a time on the agenda, at the deadline of the core."""

from __future__ import annotations

from collections.abc import Callable

from shared_scheduler.sim.agenda import Agenda

#: a deadline that has passed is served this much later, so that virtual time always moves on
LEAST_PAUSE_S = 0.0001


class Ticking:
    """Calls ``tick`` at ``deadline_s`` (in the world's time).

    Call ``reschedule`` after each step of the machine, also after a tick, and when its clock jumped.  Call ``suspend``
    while its process is stopped.
    """

    def __init__(self, agenda: Agenda, deadline_s: Callable[[], float | None], tick: Callable[[], None]) -> None:
        self._agenda = agenda
        self._deadline_s = deadline_s
        self._tick = tick
        self._at_s = float("inf")
        self._stopped = self._suspended = False

    def reschedule(self) -> None:
        """Read the deadline again, because it may have changed."""
        if self._suspended:
            return
        deadline_s = self._deadline_s()
        if deadline_s is not None and deadline_s < self._at_s:
            self._at_s = max(deadline_s, self._agenda.now + LEAST_PAUSE_S)
            self._agenda.at(self._at_s, self._ring, self._at_s)

    def suspend(self) -> None:
        """Suspend the ticks."""
        self._suspended, self._at_s = True, float("inf")

    def resume(self) -> None:
        """Resume the ticks; one that is overdue runs at once."""
        self._suspended = False
        self.reschedule()

    def stop(self) -> None:
        """End the ticks."""
        self._stopped = True

    def _ring(self, at_s: float) -> None:
        if self._stopped or at_s != self._at_s:
            return
        self._at_s = float("inf")
        self._tick()
