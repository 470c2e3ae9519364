# SPDX-License-Identifier: Apache-2.0
"""The last ends of builds, which are sent twice because nobody acknowledges them.

A ``BuildResult`` has no sequence, so nobody notices that one is lost: with the connection to the broker, or with the
scheduler that was to record it.  Each is therefore sent again by the next heartbeat that is broadcast after
``AGAIN_AFTER_S``, while the broker is connected, which costs no further message.  Its number in the epoch shows a
scheduler that it has recorded it already.  nova-compute tells the end by the hooks of ``tap/hooks.py``.

The scheduler whose claim placed the instance records the end, so it is cast to that one.  If that scheduler has
stopped, another one records the end, which it gets by a broadcast:

- The broker returns what is cast to a process that has ended, or to a machine that has stopped 90 s ago (AMQP
  heartbeats).  The end is broadcast at once then.
- Heartbeats are broadcasts.  The second time is late enough that the other schedulers know that this one has stopped,
  because they record nothing before; and it does not depend on a queue that a scheduler which hangs may keep.

So an end is recorded although its scheduler has stopped, or although one of these messages is lost.  If both happen to
one end, the other schedulers may miss it.  A scheduler that lives, or is started again, reads from Nova's databases
what it was not told (``shared_scheduler/core/awaited_builds.py``).  Where no scheduler is known, both are broadcasts.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from compute_agent.effects import Broadcast, Cast
from shared_scheduler.protocol import codec
from shared_scheduler.protocol.errors import UnsendableMessage
from shared_scheduler.protocol.limits import HEARTBEAT_ENDS_MAX, HEARTBEAT_ENDS_MAX_BYTES, HEARTBEAT_INTERVAL_S
from shared_scheduler.protocol.messages import BuildResult

#: Time from the end of a build until a heartbeat carries it once more.
AGAIN_AFTER_S: float = 8 * HEARTBEAT_INTERVAL_S
#: Ends that are kept; older ones are not sent again.
ENDS_MAX = 256


@dataclass(frozen=True, slots=True)
class _Kept:
    result: BuildResult
    size_bytes: int
    due_s: float


def first_sent(result: BuildResult) -> Broadcast | Cast:
    """How an end is sent at first: to the scheduler that records it, if that one is known."""
    return Cast(result.scheduler, result) if result.scheduler else Broadcast(result)


class EndsOfBuilds:
    """Numbers the ends of builds, and gives those that are due again to heartbeats."""

    def __init__(self) -> None:
        #: the next one that is due first
        self._kept: deque[_Kept] = deque(maxlen=ENDS_MAX)
        self._last_number = 0

    def next_number(self) -> int:
        """The number of the next end, from 1."""
        self._last_number += 1
        return self._last_number

    def send(self, result: BuildResult, now: float) -> Broadcast | Cast:
        """Send an end for the first time, and keep it, unless a heartbeat with it could not be sent."""
        with suppress(UnsendableMessage):
            self._kept.append(_Kept(result, len(codec.encode(result)), now + AGAIN_AFTER_S))
        return first_sent(result)

    def take_due(self, now: float) -> tuple[BuildResult, ...]:
        """The oldest that are due, as many as a heartbeat has room for; they are not kept any longer."""
        taken: list[BuildResult] = []
        room_bytes = HEARTBEAT_ENDS_MAX_BYTES
        while len(taken) < HEARTBEAT_ENDS_MAX and self._kept and self._kept[0].due_s <= now:
            room_bytes -= self._kept[0].size_bytes
            if room_bytes < 0:
                break
            taken.append(self._kept.popleft().result)
        return tuple(taken)
