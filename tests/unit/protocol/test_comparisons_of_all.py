# SPDX-License-Identifier: Apache-2.0
"""Ten thousand nodes that start together send ten thousand digests within seconds: comparing them is paced."""

from __future__ import annotations

from random import Random

from shared_scheduler.protocol.messages import Heartbeat, Snapshot
from shared_scheduler.protocol.phases import WindowFreshness
from shared_scheduler.protocol.rate_limits import TokenBucket
from shared_scheduler.protocol.resync_turns import ResyncTurns
from shared_scheduler.protocol.window import COMPARISONS_BURST, MessageWindow

NODES, BURST = 50, 10
DIGEST = 7


class Windows:
    """Windows with a copy each, which share a bucket of comparisons, and how often a digest was computed."""

    def __init__(self, digest: int = DIGEST) -> None:
        shared = TokenBucket(1.0, BURST)
        self.windows = [
            MessageWindow(f"node-{n}", Random(n), ResyncTurns(str), all_comparisons=shared) for n in range(NODES)
        ]
        self.computed, self._digest = 0, digest
        for window in self.windows:
            window.receive(Snapshot(window.node, 1, 1, "host", {}, {}, {}, DIGEST), 0.0, self.own_digest)

    def own_digest(self) -> int:
        self.computed += 1
        return self._digest

    def own_digest_becomes(self, digest: int) -> int:
        self._digest = digest
        return digest

    def beat(self, now: float) -> None:
        """A heartbeat of each node."""
        for window in self.windows:
            window.receive(Heartbeat(window.node, 1, 1, "host", DIGEST), now, self.own_digest)

    def count(self, freshness: WindowFreshness) -> int:
        return sum(window.freshness is freshness for window in self.windows)


def test_those_beyond_the_bucket_are_compared_with_a_later_heartbeat() -> None:
    windows = Windows()

    windows.beat(1.0)
    assert windows.computed == BURST
    assert windows.count(WindowFreshness.FRESH) == NODES

    for interval in range(1, 6):
        windows.beat(1.0 + 15.0 * interval)
    assert windows.computed == NODES


def test_a_wrong_copy_is_found_with_one_of_the_next_heartbeats() -> None:
    windows = Windows(digest=DIGEST + 1)

    for interval in range(6):
        windows.beat(1.0 + 15.0 * interval)

    assert windows.count(WindowFreshness.FRESH) == 0


def test_a_node_whose_own_comparisons_are_used_up_leaves_those_of_others() -> None:
    # given a host that changes its row many times a second, and tells each digest
    windows = Windows()
    loud, *others = windows.windows
    for tick in range(100 * BURST):
        digest = windows.own_digest_becomes(1000 + tick)
        loud.receive(Heartbeat(loud.node, 1, 1, "host", digest), 1.0 + tick / 1e6, windows.own_digest)
    assert windows.computed <= COMPARISONS_BURST
    # when
    windows.own_digest_becomes(DIGEST)
    for window in others:
        window.receive(Heartbeat(window.node, 1, 1, "host", DIGEST), 1.1, windows.own_digest)
    # then
    assert windows.computed == BURST


def test_copies_that_have_to_be_verified_wait_for_no_bucket() -> None:
    windows = Windows()
    for window in windows.windows:
        window.reconnected(2.0)

    windows.beat(3.0)

    assert windows.computed == NODES
    assert windows.count(WindowFreshness.FRESH) == NODES
