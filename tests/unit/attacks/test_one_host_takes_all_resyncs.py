# SPDX-License-Identifier: Apache-2.0
"""All windows share the resyncs of a scheduler.  One host sends heartbeats, each of which made its window ask."""

from __future__ import annotations

from random import Random

import pytest

from shared_scheduler.protocol.messages import Heartbeat, Snapshot
from shared_scheduler.protocol.resync_turns import ResyncTurns
from shared_scheduler.protocol.window import MessageWindow

EVIL, EPOCH = "node-evil", 100
FLOOD_S = 5


def snapshot(sequence: int) -> Snapshot:
    return Snapshot(EVIL, EPOCH, sequence, "host-evil", {}, {}, {}, 0)


def behind(window: MessageWindow) -> tuple[Heartbeat, float]:
    """Heartbeats of a sequence below that of the snapshot, and when they make the window ask."""
    window.receive(snapshot(50), 0.0, lambda: 0)
    beat = Heartbeat(EVIL, EPOCH, 3, "host-evil", 0)
    window.receive(beat, 1.0, lambda: 0)
    return beat, 100.0


def of_the_past(window: MessageWindow) -> tuple[Heartbeat, float]:
    """Heartbeats of a past epoch after a silence."""
    window.receive(snapshot(50), 0.0, lambda: 0)
    window.on_tick(1000.0)
    return Heartbeat(EVIL, EPOCH - 1, 3, "host-evil", 0), 1000.0


@pytest.mark.parametrize("begin", [behind, of_the_past])
def test_resyncs_are_left_for_others(begin: object) -> None:
    turns = ResyncTurns(str)
    window = MessageWindow(EVIL, Random(1), turns)
    beat, from_s = begin(window)  # type: ignore[operator]

    asked = 0
    for tick in range(FLOOD_S * 1000):
        outcome = window.receive(beat, from_s + tick / 1000, lambda: 0)
        asked += outcome.resync is not None

    assert 1 <= asked <= FLOOD_S + 1
    assert turns.take("node-other", from_s + FLOOD_S)
    assert turns.begin("node-other", from_s + FLOOD_S)
