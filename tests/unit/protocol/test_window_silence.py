# SPDX-License-Identifier: Apache-2.0
"""Nodes that send nothing, leave, or send nothing new; and many windows at once."""

from __future__ import annotations

from random import Random

from shared_scheduler.protocol.messages import Heartbeat, Leave
from shared_scheduler.protocol.rate_limits import TokenBucket
from shared_scheduler.protocol.resync_turns import ResyncTurns
from shared_scheduler.protocol.window import MessageWindow, ResyncWish, WindowFreshness, WindowTimes
from tests.unit.protocol.window_driver import DIGEST, NODE, Receiver, heartbeat, increment, snapshot

# --- silence -------------------------------------------------------------------------------------


def test_an_overdue_node_is_asked_whether_it_is_there_and_then_silent_and_asked_nothing(fresh: Receiver) -> None:
    assert fresh.wait(39) == []
    assert fresh.wait(5) == [ResyncWish(1, 5)] * 3
    assert fresh.window.freshness is WindowFreshness.FRESH
    fresh.wait(2)
    assert fresh.window.freshness is WindowFreshness.SILENT
    assert fresh.wait(10_000) == []


def test_a_lost_heartbeat_is_asked_for_and_makes_no_node_silent(fresh: Receiver) -> None:
    # given a node whose heartbeat is lost
    assert fresh.wait(42) == [ResyncWish(1, 5)] * 2
    # when it answers the second question
    fresh.take(heartbeat(5))
    # then it has as much time again
    assert fresh.wait(39) == []
    assert fresh.window.freshness is WindowFreshness.FRESH
    assert fresh.window.counters.silences == 0


def test_a_window_that_asks_for_a_snapshot_does_not_ask_whether_the_node_is_there(fresh: Receiver) -> None:
    fresh.take(snapshot(1, epoch=1), heartbeat(1, epoch=2))
    fresh.wait(44)
    assert fresh.window.counters.asked_whether_there == 0
    assert set(fresh.asks) == {ResyncWish(0, 0)}


def test_overdue_windows_need_few_ticks_together() -> None:
    # given a hundred nodes that were heard within a second
    windows = [MessageWindow(NODE, Random(1), ResyncTurns(str), WindowTimes(silent_after_s=54.0)) for _ in range(100)]
    for number, window in enumerate(windows):
        window.receive(snapshot(1), 100 + number / 100, lambda: DIGEST)
    # then their next deadlines are few, and none is early
    moments = {window.next_deadline_s() for window in windows}
    assert len(moments) <= 3
    assert min(moment for moment in moments if moment is not None) >= 148.0


def test_a_node_that_returns_unchanged_is_verified_by_its_digest(fresh: Receiver) -> None:
    fresh.take(heartbeat(5))
    fresh.wait(60)
    asked = len(fresh.asks)
    fresh.take(heartbeat(5))
    assert fresh.digests_computed == 2
    assert fresh.window.freshness is WindowFreshness.FRESH
    assert len(fresh.asks) == asked


def test_a_node_that_returns_changed_is_asked(fresh: Receiver) -> None:
    fresh.wait(60)
    fresh.take(heartbeat(9))
    assert fresh.wait(1) == [ResyncWish(1, 5)]


def test_an_old_word_after_silence_proves_life_only(fresh: Receiver) -> None:
    fresh.wait(60)
    fresh.take(increment(4))
    assert fresh.window.freshness is WindowFreshness.SUSPECT
    fresh.take(heartbeat(5))
    assert fresh.window.freshness is WindowFreshness.FRESH


def test_a_copy_that_the_caller_dropped_needs_a_snapshot(fresh: Receiver) -> None:
    fresh.wait(60)
    fresh.window.forget(fresh.now)
    assert fresh.window.freshness is WindowFreshness.SILENT
    fresh.take(heartbeat(5))
    assert fresh.window.freshness is WindowFreshness.STALE
    assert fresh.take(snapshot(5)) == ["snapshot 1.5"]


def test_a_gap_ends_in_silence_too(fresh: Receiver) -> None:
    fresh.take(increment(9))
    asked = fresh.wait(60)
    assert asked and fresh.window.freshness is WindowFreshness.SILENT
    assert fresh.window.held == 0
    assert fresh.take(increment(6)) == ["increment 1.6"]
    assert fresh.window.freshness is WindowFreshness.SUSPECT  # 9 is still known to exist


def test_leave_ends_an_epoch(fresh: Receiver) -> None:
    fresh.take(Leave(NODE, 1, 5))
    assert fresh.window.freshness is WindowFreshness.SILENT
    assert fresh.take(increment(6), snapshot(9), heartbeat(5)) == []
    assert fresh.window.freshness is WindowFreshness.SILENT
    assert fresh.take(snapshot(1, 2)) == ["snapshot 2.1"]


def test_an_agent_that_returns_in_an_old_epoch_gets_a_resync(fresh: Receiver) -> None:
    fresh.take(snapshot(3, 9))
    fresh.wait(60)
    fresh.take(heartbeat(1, epoch=4))
    assert fresh.asks[-1] == ResyncWish(9, 0)
    assert fresh.take(snapshot(1, epoch=10)) == ["snapshot 10.1"]


def test_a_late_heartbeat_after_a_leave_has_no_effect(fresh: Receiver) -> None:
    fresh.take(Leave(NODE, 1, 5), heartbeat(5))
    assert fresh.asks == []
    fresh.wait(50)
    fresh.take(heartbeat(5))
    assert fresh.asks == [ResyncWish(2, 0)]  # the same epoch lives again: it must be surpassed


def test_after_the_channel_was_away_a_copy_waits_for_proof(fresh: Receiver) -> None:
    fresh.take(heartbeat(5))
    fresh.window.reconnected(fresh.now)
    assert fresh.window.freshness is WindowFreshness.SUSPECT
    fresh.take(heartbeat(5))
    assert fresh.digests_computed == 2
    assert fresh.window.freshness is WindowFreshness.FRESH


def test_after_the_channel_was_away_the_next_in_order_is_proof(fresh: Receiver) -> None:
    fresh.window.reconnected(fresh.now)
    assert fresh.take(increment(6)) == ["increment 1.6"]
    assert fresh.window.freshness is WindowFreshness.FRESH


# --- storms --------------------------------------------------------------------------------------


def test_a_thousand_windows_share_one_budget() -> None:
    # given: 10 asks a second are allowed, and 1,000 nodes lost something at the same moment
    turns = ResyncTurns(str, TokenBucket(rate_per_s=10, burst=5))
    rng = Random(3)
    of_node = {}
    for n in range(1000):
        window = MessageWindow(f"node-{n}", rng, turns)
        window.receive(Heartbeat(f"node-{n}", 1, 5, "h", 1), 0.0, lambda: 0)
        of_node[window.node] = window
    # when: ten seconds pass and nobody answers
    asked = 0
    for step in range(1, 101):
        for window in of_node.values():
            asked += window.on_tick(step / 10).resync is not None
        while (node := turns.next(step / 10)) is not None:
            asked += of_node[node].on_turn(step / 10).resync is not None
    # then: the budget was used, and kept
    assert 50 <= asked <= 105


# --- an epoch that was used twice ------------------------------------------------------------------


def test_an_agent_that_stays_behind_our_copy_is_asked_to_begin_a_new_epoch(fresh: Receiver) -> None:
    """It began again in an epoch that it had used before: all that it says looks old."""
    fresh.take(heartbeat(2))
    assert fresh.asks == []
    fresh.wait(15)
    fresh.take(heartbeat(2))
    assert fresh.asks == [ResyncWish(2, 0)]


def test_a_late_or_duplicated_heartbeat_causes_no_resync(fresh: Receiver) -> None:
    fresh.take(heartbeat(4), heartbeat(4), heartbeat(5))
    fresh.wait(15)
    fresh.take(heartbeat(4), increment(6))
    fresh.wait(15)
    fresh.take(heartbeat(5), heartbeat(6))
    assert fresh.asks == []
