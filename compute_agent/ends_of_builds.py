# SPDX-License-Identifier: Apache-2.0
"""The last ends of builds, which are sent several times because nobody acknowledges them.

A ``BuildResult`` has no sequence, so nobody notices that one is lost: with the connection to the broker, or with the
scheduler that was to record it.  Each is therefore sent again after ``AGAIN_AFTER_S``.  Its number in the epoch shows a
scheduler that it has recorded it already.  nova-compute tells the end by the hooks of ``tap/hooks.py``.

The scheduler whose claim placed the instance records the end, so it is cast to that one.  If that scheduler has
stopped, another one records the end, which it gets by a broadcast:

- The broker returns what is cast to a process that has ended, or to a machine that has stopped 90 s ago (AMQP
  heartbeats).  The end is broadcast at once then, and so is each repetition.
- The first repetition is late enough that the other schedulers know that this one has stopped; they record nothing
  before.  The queue of a machine that has stopped may still take it, but not the second one.
- The last repetition is always a broadcast, because a scheduler that hangs may keep its queue.

So an end is recorded although its scheduler has stopped and any one of these messages is lost.  If that scheduler hangs
and keeps its queue, it is the last message that must not be lost.  A scheduler that lives, or is started again, reads
from Nova's databases what it was not told (``shared_scheduler/core/awaited_builds.py``).  Where no scheduler is known,
each message is a broadcast.
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
    """``returned``: the broker has returned it, so its scheduler is not connected."""

    result: BuildResult
    ended_s: float
    repeated: int = 0
    returned: bool = False

    def sent_again(self) -> Broadcast | Cast:
        """The next repetition."""
        self.repeated += 1
        to_all = self.returned or self.repeated == len(AGAIN_AFTER_S)
        return Broadcast(self.result) if to_all else first_sent(self.result)

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

    def returned(self, result: BuildResult) -> list[Broadcast]:
        """Send to all what the broker has returned."""
        for kept in self._kept:
            if kept.result == result:
                kept.returned = True
        return [Broadcast(result)]

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
