# SPDX-License-Identifier: Apache-2.0
"""Whether a request can end in time: what is left of its time, and what Placement needs for the rest of its servers.

Some time before the deadline its claims have to be released; what comes before that is left for placing.

A request for many servers that cannot be written before its deadline fails when it arrives (``BurstForecast``),
because it would only take the time of other requests, and of the deletes that follow.  If no pace is known then, few
of its servers are claimed until its own first writes show one.  It fails when all answers of ``DOUBT_S`` have said
that it cannot end.  A single answer says little: the first calls of a Placement that has just started take seconds,
and the pace still contains calls of before.  The wait is left out if what is written could not be taken back in time
after it.  All this holds also if Placement becomes slow while a request is written; then, however, it fails only if it
cannot end at the pace that it has had since it arrived either, because Placement may be slow for some seconds only.
"""

from __future__ import annotations

from shared_scheduler.core.effects import FailureCode
from shared_scheduler.core.request_state import InstanceState, RequestState
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.core.write_pace import DOUBT_S, BurstForecast


class TimeLeft:
    """Judges requests.  Since when the answers to the writes of one say that it cannot end is in ``RequestState``."""

    def __init__(self, settings: SchedulerSettings, forecast: BurstForecast) -> None:
        self._settings = settings
        self._forecast = forecast

    def left_s(self, state: RequestState, now: float) -> float:
        """Seconds until the claims of the request have to be released."""
        return state.deadline_s - self.cleanup_s(state) - now

    def cleanup_s(self, state: RequestState) -> float:
        """Seconds before its deadline; a request with little time cleans up in the second half of it."""
        return min(self._settings.cleanup_s, (state.deadline_s - state.arrived_s) / 2)

    def why_too_short(self, state: RequestState, now: float) -> tuple[FailureCode, str] | None:
        """Why a request that arrives fails: its time is over, or too short for Placement to write all instances."""
        if now >= state.deadline_s:
            return FailureCode.TIMED_OUT, "its time was over before it could be decided"
        count, left_s = len(state.instances), self.left_s(state, now)
        needed_s = 0.0 if state.request.dry_run else self._forecast.needed_s(count, now)
        if needed_s <= left_s:
            return None
        text = f"Placement needs about {needed_s:.0f} s to write {count} servers, and {left_s:.0f} s are left"
        return FailureCode.NO_TIME, text

    def why_it_cannot_end(self, state: RequestState, now: float) -> tuple[FailureCode, str] | None:
        """Why a request fails of which a server was written: the answers to its writes have shown that Placement cannot
        write the rest in time, neither at the pace of the last writes, nor at that which the request has had so far."""
        written = state.count_in(InstanceState.WRITTEN)
        left, left_s = len(state.instances) - written, self.left_s(state, now)
        as_before_s = left * (now - state.arrived_s) / written
        needed_s = min(self._forecast.needed_s(left, now), as_before_s)
        if needed_s <= left_s:
            state.doubted_s = None
            return None
        state.doubted_s = now if state.doubted_s is None else state.doubted_s
        if now < state.doubted_s + DOUBT_S and not self._must_be_taken_back(state, written, now):
            return None
        text = f"Placement needs about {needed_s:.0f} s to write {left} more servers, and {left_s:.0f} s are left"
        return FailureCode.NO_TIME, f"{text}; {written} were written"

    def _must_be_taken_back(self, state: RequestState, written: int, now: float) -> bool:
        """Whether what is written can be taken back in time now, and not any more after a wait."""
        claimed = state.count_in(InstanceState.CLAIMING)
        spare_s = self.left_s(state, now) - self._forecast.taken_back_s(written, claimed, now)
        return 0.0 <= spare_s < DOUBT_S
