# SPDX-License-Identifier: Apache-2.0
"""A window with a clock, and the vocabulary of its stories."""

from __future__ import annotations

from random import Random

from shared_scheduler.protocol.messages import Heartbeat, Hello, Increment, Role, Snapshot
from shared_scheduler.protocol.rate_limits import TokenBucket
from shared_scheduler.protocol.resync_turns import ResyncTurns
from shared_scheduler.protocol.window import MessageWindow, NodeMessage, Outcome, ResyncWish, WindowTimes

NODE = "5a6de3ab-cf6e-4c5e-9a43-7b6ac1a6a9a1"
DIGEST = 4711


def increment(sequence: int, epoch: int = 1) -> Increment:
    return Increment(NODE, epoch, sequence, {"cn.vcpus_used": sequence})


def snapshot(sequence: int, epoch: int = 1) -> Snapshot:
    return Snapshot(NODE, epoch, sequence, "compute-1", {"cn.vcpus_used": sequence}, {}, {}, DIGEST)


def heartbeat(sequence: int, epoch: int = 1, digest: int = DIGEST) -> Heartbeat:
    return Heartbeat(NODE, epoch, sequence, "compute-1", digest)


def hello(epoch: int) -> Hello:
    return Hello(Role.AGENT, "ssched.agent.compute-1", epoch, NODE, "compute-1")


class Receiver:
    """A window and a clock; records applied messages and resync requests."""

    def __init__(self, bucket: TokenBucket | None = None, patient_until_s: float = 0.0) -> None:
        self.now = 100.0
        self.own_digest = DIGEST
        self.digests_computed = 0
        self.applied: list[str] = []
        self.asks: list[ResyncWish] = []
        self.turns = ResyncTurns(str, bucket)
        self.window = MessageWindow(
            NODE,
            Random(7),
            self.turns,
            WindowTimes(silent_after_s=45.0),
            patient_until_s=patient_until_s,
        )

    def take(self, *messages: NodeMessage) -> list[str]:
        """Receive these; returns what was applied, as 'snapshot 1.7' (epoch, sequence)."""
        before = len(self.applied)
        for message in messages:
            self._note(self.window.receive(message, self.now, self._digest))
        return self.applied[before:]

    def wait(self, seconds: float) -> list[ResyncWish]:
        """Let time pass, ticking exactly when the window wants it; returns what was asked."""
        before, end = len(self.asks), self.now + seconds
        while (due := self._due_s()) is not None and due <= end:
            self.now = max(self.now, due)
            self._note(self.window.on_tick(self.now))
            if self.turns.next(self.now) == NODE:
                self._note(self.window.on_turn(self.now))
        self.now = end
        return self.asks[before:]

    def _due_s(self) -> float | None:
        due = (self.window.next_deadline_s(), self.turns.next_s(self.now))
        return min((at_s for at_s in due if at_s is not None), default=None)

    def _digest(self) -> int:
        self.digests_computed += 1
        return self.own_digest

    def _note(self, outcome: Outcome) -> None:
        self.window.validate()
        for message in outcome.apply:
            kind = type(message).__name__.lower()
            self.applied.append(f"{kind} {message.epoch}.{message.sequence}")
        if outcome.resync is not None:
            self.asks.append(outcome.resync)
