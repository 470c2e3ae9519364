# SPDX-License-Identifier: Apache-2.0
"""The last ends of builds, which are sent several times because nobody acknowledges them.

A ``BuildResult`` has no sequence, so nobody notices that one is lost: with the connection to the broker, or with the
scheduler that was to record it.  Each is therefore sent again after ``AGAIN_AFTER_S``.  Its number in the epoch shows a
scheduler that it has recorded it already.  nova-compute tells the end by the hooks of ``tap/hooks.py``.

The scheduler whose claim placed the instance records the end, so it is cast to that one at first, and every second
time.  The other times it is broadcast, so that another one records it if that scheduler has stopped.  By the second
time, the others know that.  Where no scheduler is known, each is a broadcast.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from compute_agent.effects import Broadcast, Cast
from shared_scheduler.protocol.limits import HEARTBEAT_INTERVAL_S
from shared_scheduler.protocol.messages import BuildResult

#: Time from the end of a build to each repetition.
AGAIN_AFTER_S: tuple[float, ...] = (2 * HEARTBEAT_INTERVAL_S, 8 * HEARTBEAT_INTERVAL_S, 32 * HEARTBEAT_INTERVAL_S)
#: Ends that are kept; an older one is not sent again.
ENDS_MAX = 256


@dataclass(slots=True)
class _Kept:
    result: BuildResult
    ended_s: float
    repeated: int = 0

    def sent_again(self) -> Broadcast | Cast:
        """The next repetition."""
        self.repeated += 1
        return Broadcast(self.result) if self.repeated % 2 else first_sent(self.result)

    @property
    def due_s(self) -> float:
        return self.ended_s + AGAIN_AFTER_S[self.repeated]


def first_sent(result: BuildResult) -> Broadcast | Cast:
    """How an end is sent at first: to the scheduler that records it, if that one is known."""
    return Cast(result.scheduler, result) if result.scheduler else Broadcast(result)


class EndsOfBuilds:
    """Numbers the ends of builds, and returns which ones are due again."""

    def __init__(self) -> None:
        self._kept: deque[_Kept] = deque(maxlen=ENDS_MAX)
        self._last_number = 0

    def next_number(self) -> int:
        """The number of the next end, from 1."""
        self._last_number += 1
        return self._last_number

    def send(self, result: BuildResult, now: float) -> Broadcast | Cast:
        """Send an end for the first time, and keep it."""
        self._kept.append(_Kept(result, now))
        return first_sent(result)

    def due(self, now: float) -> list[Broadcast | Cast]:
        """What to send again now."""
        again = [kept.sent_again() for kept in self._kept if kept.due_s <= now]
        if again:
            left = (kept for kept in self._kept if kept.repeated < len(AGAIN_AFTER_S))
            self._kept = deque(left, maxlen=ENDS_MAX)
        return again

    def next_due_s(self) -> float | None:
        """When the next one is due; None if nothing is kept."""
        return min((kept.due_s for kept in self._kept), default=None)
