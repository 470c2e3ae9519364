# SPDX-License-Identifier: Apache-2.0
"""Builds the servers of a host: nova-compute counts a server, and a while later its build has ended.

Without a simulated conductor, the servers that the agent accepted are counted after a delay.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from compute_agent import events as ev
from shared_scheduler.protocol.messages import Claim, Release, Verdict

PENDING_VERDICTS_MAX = 256
"""Claims that are stored until their verdict, which comes in the same step."""


@dataclass(frozen=True)
class TakeOver:
    """The time at which nova-compute's tracker counts the server."""

    at_s: float
    claim: Claim


class Builds:
    """The accepted claims of one host. `after_s`: the time from an accepted claim to nova-compute's own count."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._claims: dict[str, Claim] = {}
        self._building: deque[TakeOver] = deque()

    @property
    def waiting(self) -> int:
        """Servers that nova-compute does not count yet."""
        return len(self._building)

    def arrived(self, event: ev.Event) -> None:
        """Store claims until their verdict, and remove released ones."""
        for message in event.messages if isinstance(event, ev.MessagesArrived) else ():
            if isinstance(message, Claim) and len(self._claims) < PENDING_VERDICTS_MAX:
                self._claims[message.claim_id] = message
            elif isinstance(message, Release):
                self._building = deque(one for one in self._building if one.claim.claim_id != message.claim_id)

    def judged(self, verdict: Verdict, now: float) -> None:
        """Begin the build of a claim that a verdict accepts."""
        claim = self._claims.pop(verdict.claim_id, None)
        if claim is not None and verdict.accepted:
            self._building.append(TakeOver(now + self._after_s, claim))

    def due(self, now: float) -> list[Claim]:
        """The claims that nova-compute counts from now on."""
        found = []
        while self._building and self._building[0].at_s <= now:
            found.append(self._building.popleft().claim)
        return found

    def deadline_s(self) -> float | None:
        """The time of the next one."""
        return self._building[0].at_s if self._building else None


class Spawns:
    """The servers of one host that nova-compute counts and whose builds have not ended. `after_s`: until their ends."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._at_s: dict[str, float] = {}

    @property
    def waiting(self) -> int:
        """Servers whose builds have not ended."""
        return len(self._at_s)

    def begin(self, consumer: str, now: float) -> None:
        """nova-compute counts the server and begins to spawn it."""
        self._at_s[consumer] = now + self._after_s

    def drop(self, consumer: str) -> None:
        """The server is deleted."""
        self._at_s.pop(consumer, None)

    def due(self, now: float) -> list[str]:
        """The servers whose builds have ended, the oldest first."""
        found = [consumer for consumer, at_s in self._at_s.items() if at_s <= now]
        for consumer in found:
            del self._at_s[consumer]
        return found

    def deadline_s(self) -> float | None:
        """The time of the next end."""
        return min(self._at_s.values(), default=None)
