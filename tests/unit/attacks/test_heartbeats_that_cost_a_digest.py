# SPDX-License-Identifier: Apache-2.0
"""A digest of a large row takes ten milliseconds.  One host sends heartbeats of a hundred bytes with wrong digests."""

from __future__ import annotations

from random import Random

from shared_scheduler.protocol.messages import Heartbeat, Snapshot
from shared_scheduler.protocol.phases import WindowFreshness
from shared_scheduler.protocol.resync_turns import ResyncTurns
from shared_scheduler.protocol.window import COMPARISONS_BURST, MessageWindow

NODE = "node-1"


class CountedWindow:
    """A window with a copy, and how often the digest of the copy was computed."""

    def __init__(self) -> None:
        self.window = MessageWindow(NODE, Random(1), ResyncTurns(str))
        self.computed = 0
        self.window.receive(Snapshot(NODE, 1, 1, "host-1", {}, {}, {}, 7), 0.0, self.digest)

    def digest(self) -> int:
        self.computed += 1
        return 7

    def beat(self, digest: int, now: float) -> None:
        self.window.receive(Heartbeat(NODE, 1, 1, "host-1", digest), now, self.digest)


def test_comparisons_are_bounded() -> None:
    counted = CountedWindow()

    for tick in range(5000):
        counted.beat(1000 + tick, 1.0 + tick / 1000)

    assert counted.computed <= COMPARISONS_BURST + 5


def test_the_next_heartbeat_after_a_while_is_compared() -> None:
    counted = CountedWindow()
    for tick in range(100):
        counted.beat(1000 + tick, 1.0)
    counted.window.receive(Snapshot(NODE, 1, 1, "host-1", {}, {}, {}, 7), 2.0, counted.digest)

    counted.beat(7, 16.0)

    assert counted.window.freshness is WindowFreshness.FRESH
