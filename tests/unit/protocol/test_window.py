# SPDX-License-Identifier: Apache-2.0
"""A scheduler's copy of one node while messages arrive, or do not."""

from __future__ import annotations

import itertools

import pytest

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.errors import MisroutedMessage
from shared_scheduler.protocol.messages import Heartbeat, Increment
from shared_scheduler.protocol.window import ResyncWish, WindowFreshness
from tests.unit.protocol.window_driver import DIGEST, NODE, Receiver, heartbeat, increment, snapshot

# --- in order ------------------------------------------------------------------------------------


def test_a_node_of_which_nothing_was_heard_is_new_and_asks_nothing() -> None:
    receiver = Receiver()
    assert receiver.window.freshness is WindowFreshness.NEW
    assert receiver.window.next_deadline_s() is None
    assert receiver.wait(1000) == []


def test_increments_that_follow_are_applied_as_they_come(fresh: Receiver) -> None:
    assert fresh.take(increment(6)) == ["increment 1.6"]
    assert fresh.take(increment(7)) == ["increment 1.7"]
    assert (fresh.window.epoch, fresh.window.sequence, fresh.window.lag) == (1, 7, 0)


def test_a_duplicated_message_is_applied_once(fresh: Receiver) -> None:
    assert fresh.take(increment(6), increment(6), increment(3)) == ["increment 1.6"]
    assert fresh.window.counters.duplicates == 2


def test_a_message_of_another_node_is_the_callers_mistake(fresh: Receiver) -> None:
    with pytest.raises(MisroutedMessage):
        fresh.take(Heartbeat("another-node", 1, 5, "compute-2", DIGEST))


# --- gaps ----------------------------------------------------------------------------------------


def test_reordered_messages_are_applied_in_order_without_a_resync(fresh: Receiver) -> None:
    assert fresh.take(increment(8), increment(7)) == []
    assert fresh.window.freshness is WindowFreshness.SUSPECT
    assert fresh.window.lag == 3
    fresh.wait(limits.HOLD_S / 2)
    assert fresh.take(increment(6)) == ["increment 1.6", "increment 1.7", "increment 1.8"]
    assert fresh.window.freshness is WindowFreshness.FRESH
    assert fresh.wait(10) == []


def test_a_lost_message_is_asked_for_once_and_its_replay_heals(fresh: Receiver) -> None:
    fresh.take(increment(7))
    assert fresh.wait(1.0) == [ResyncWish(1, 5)]
    assert fresh.take(increment(6)) == ["increment 1.6", "increment 1.7"]
    assert fresh.wait(30) == []


def test_a_gap_is_never_skipped(fresh: Receiver) -> None:
    fresh.take(increment(7))
    fresh.wait(limits.GAP_MAX_S + 1)
    assert fresh.window.freshness is WindowFreshness.STALE
    assert fresh.take(increment(8)) == []
    assert fresh.take(snapshot(8)) == ["snapshot 1.8"]
    assert fresh.window.freshness is WindowFreshness.FRESH


def test_a_gap_that_is_filled_late_is_filled_all_the_same(fresh: Receiver) -> None:
    fresh.take(increment(7))
    fresh.wait(limits.GAP_MAX_S + 1)
    # the held one was given up by then, so a replay brings both
    assert fresh.take(increment(6), increment(7)) == ["increment 1.6", "increment 1.7"]
    assert fresh.window.freshness is WindowFreshness.FRESH


def test_unanswered_asks_back_off_with_jitter_up_to_a_minute(fresh: Receiver) -> None:
    fresh.take(increment(7))
    moments = []
    for _ in range(12):
        asks = len(fresh.asks)
        for _ in range(1000):
            fresh.take(heartbeat(7))  # it lives, it only cannot hear us
            fresh.wait(0.5)
            if len(fresh.asks) > asks:
                break
        moments.append(fresh.now)
    waits = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert min(waits) >= limits.RESYNC_TIMEOUT_S - 0.5
    assert max(waits) <= limits.RESYNC_TIMEOUT_S + limits.RESYNC_BACKOFF.max_s + 0.5
    assert sum(waits[6:]) > 2 * sum(waits[:5])


def test_early_messages_are_bounded_and_the_nearest_are_kept(fresh: Receiver) -> None:
    fresh.take(*(increment(n) for n in range(7, 200)))
    assert fresh.window.held == limits.HELD_MAX_MESSAGES
    assert fresh.window.counters.early_dropped == 193 - limits.HELD_MAX_MESSAGES
    # the replay brings the missing one, then the ones that were dropped
    assert len(fresh.take(increment(6))) == 1 + limits.HELD_MAX_MESSAGES
    assert fresh.window.freshness is WindowFreshness.SUSPECT
    assert len(fresh.take(*(increment(n) for n in range(6, 200)))) == 199 - 6 - 64
    assert fresh.window.freshness is WindowFreshness.FRESH


def test_early_messages_are_bounded_in_bytes_too(fresh: Receiver) -> None:
    for sequence in range(7, 30):
        text = "x" * limits.LEAF_TEXT_MAX_CHARS
        fresh.take(Increment(NODE, 1, sequence, {"a": text, "b": text}))
    assert 0 < fresh.window.held <= limits.HELD_MAX_BYTES // (2 * limits.LEAF_TEXT_MAX_CHARS)


# --- heartbeats ---------------------------------------------------------------------------------------


def test_a_heartbeat_reveals_a_lost_last_message(fresh: Receiver) -> None:
    assert fresh.take(heartbeat(6)) == []
    assert fresh.window.freshness is WindowFreshness.SUSPECT
    assert fresh.wait(1) == [ResyncWish(1, 5)]
    fresh.take(increment(6))
    assert fresh.window.freshness is WindowFreshness.FRESH


def test_the_digest_is_computed_once_for_a_sequence(fresh: Receiver) -> None:
    fresh.take(heartbeat(5), heartbeat(5), heartbeat(5))
    assert fresh.digests_computed == 1
    fresh.take(increment(6), heartbeat(6), heartbeat(6))
    assert fresh.digests_computed == 2


def test_a_copy_that_rots_although_nothing_happens_is_found_out(fresh: Receiver) -> None:
    fresh.take(heartbeat(5))
    fresh.own_digest = 1
    while fresh.now < 100.0 + limits.VERIFY_AGAIN_S:
        fresh.wait(limits.HEARTBEAT_INTERVAL_S)
        fresh.take(heartbeat(5))
    assert fresh.digests_computed == 2
    assert fresh.window.freshness is WindowFreshness.SUSPECT


def test_an_old_heartbeat_has_no_effect(fresh: Receiver) -> None:
    fresh.take(heartbeat(4, digest=1))
    assert fresh.digests_computed == 0
    assert fresh.window.freshness is WindowFreshness.FRESH


def test_a_copy_that_differs_is_replaced_by_a_snapshot_of_the_same_sequence(
    fresh: Receiver,
) -> None:
    fresh.own_digest = 1
    fresh.take(heartbeat(5))
    assert fresh.window.freshness is WindowFreshness.SUSPECT
    assert fresh.wait(1) == [ResyncWish(0, 0)]
    fresh.own_digest = DIGEST
    assert fresh.take(snapshot(5)) == ["snapshot 1.5"]
    fresh.take(heartbeat(5))
    assert fresh.window.freshness is WindowFreshness.FRESH
    assert fresh.window.counters.digests_different == 1


def test_a_copy_that_differs_still_follows_the_node(fresh: Receiver) -> None:
    fresh.own_digest = 1
    fresh.take(heartbeat(5))
    assert fresh.take(increment(6)) == ["increment 1.6"]
    assert fresh.window.freshness is WindowFreshness.SUSPECT
    # the snapshot that was made before cannot roll it back
    assert fresh.take(snapshot(5)) == []
    assert fresh.take(snapshot(6)) == ["snapshot 1.6"]


def test_a_copy_that_always_differs_costs_ever_fewer_snapshots(fresh: Receiver) -> None:
    fresh.own_digest = 1  # as between releases that compute it differently
    asked = []
    for _ in range(200):
        fresh.take(heartbeat(5))
        if fresh.wait(15.0):
            fresh.take(snapshot(5))
            asked.append(fresh.now)
    # back-off ends at a minute, and only a heartbeat of that node reveals it again
    assert len(asked) < 140
    assert fresh.window.freshness is not WindowFreshness.STALE
