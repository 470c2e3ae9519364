# SPDX-License-Identifier: Apache-2.0
"""The effects of snapshots and epochs on a scheduler's copy of one node."""

from __future__ import annotations

import pytest

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.messages import Leave
from shared_scheduler.protocol.window import NodeMessage, ResyncWish, WindowFreshness
from tests.unit.protocol.window_driver import NODE, Receiver, heartbeat, hello, increment, snapshot

# --- snapshots -----------------------------------------------------------------------------------


def test_messages_before_the_first_snapshot_are_held(fresh: Receiver) -> None:
    receiver = Receiver()
    assert receiver.take(increment(8), increment(9)) == []
    assert receiver.window.freshness is WindowFreshness.STALE
    assert receiver.take(snapshot(8)) == ["snapshot 1.8", "increment 1.9"]
    assert receiver.window.freshness is WindowFreshness.FRESH
    assert receiver.wait(10) == []


def test_a_snapshot_jumps_a_gap(fresh: Receiver) -> None:
    fresh.take(increment(8), increment(9))
    assert fresh.take(snapshot(7)) == ["snapshot 1.7", "increment 1.8", "increment 1.9"]


def test_a_gap_behind_a_snapshot_is_asked_for_by_replay() -> None:
    receiver = Receiver()
    receiver.take(increment(10))
    assert receiver.take(snapshot(8)) == ["snapshot 1.8"]
    assert receiver.window.freshness is WindowFreshness.SUSPECT
    assert receiver.wait(1) == [ResyncWish(1, 8)]


def test_a_snapshot_keeps_the_newest_known_sequence() -> None:
    receiver = Receiver()
    receiver.take(heartbeat(3), heartbeat(9))
    assert receiver.window.lag == 9
    assert receiver.take(snapshot(7)) == ["snapshot 1.7"]
    assert receiver.window.freshness is WindowFreshness.SUSPECT
    assert receiver.wait(1) == [ResyncWish(1, 7)]


def test_a_sequence_that_never_existed_is_forgotten_after_a_while(fresh: Receiver) -> None:
    fresh.take(heartbeat(10**6))  # nobody can give us these
    fresh.wait(limits.GAP_MAX_S + 1)
    assert fresh.window.freshness is WindowFreshness.STALE
    fresh.take(snapshot(6))
    assert fresh.window.freshness is WindowFreshness.FRESH
    assert fresh.take(increment(7)) == ["increment 1.7"]


def test_a_copy_that_was_dropped_is_not_begun_again_from_something_older(fresh: Receiver) -> None:
    """The simulator's seed 413: silence, a read of the databases, and a snapshot that was long under way."""
    fresh.take(increment(6))
    fresh.window.forget(fresh.now)
    assert fresh.take(snapshot(5)) == []
    assert fresh.window.freshness is WindowFreshness.STALE
    assert fresh.take(snapshot(6)) == ["snapshot 1.6"]
    fresh.window.forget(fresh.now)
    assert fresh.take(snapshot(1, epoch=2)) == ["snapshot 2.1"]


def test_an_older_snapshot_does_not_roll_back(fresh: Receiver) -> None:
    fresh.take(increment(6))
    assert fresh.take(snapshot(5), snapshot(6), snapshot(1)) == []
    assert fresh.window.sequence == 6
    assert fresh.window.counters.old_snapshots == 3


def test_waiting_for_the_first_snapshot_keeps_the_newest_messages() -> None:
    receiver = Receiver()
    receiver.take(*(increment(n) for n in range(1, 101)))
    assert receiver.window.held == limits.HELD_MAX_MESSAGES
    assert len(receiver.take(snapshot(90))) == 1 + 10


def test_a_repeated_snapshot_request_drops_the_increments_that_it_covers() -> None:
    receiver = Receiver()
    receiver.take(increment(3))
    assert receiver.wait(0.5) == [ResyncWish(0, 0)]
    assert receiver.window.held == 1
    assert len(receiver.wait(2.0)) >= 1
    assert receiver.window.held == 0


def test_after_a_hello_to_all_no_resync_is_sent_for_a_while() -> None:
    receiver = Receiver(patient_until_s=105.0)
    receiver.take(heartbeat(3))
    assert receiver.wait(4.9) == []
    assert receiver.wait(1.0) == [ResyncWish(0, 0)]


def test_patience_can_be_asked_for_later(fresh: Receiver) -> None:
    fresh.take(heartbeat(8))
    fresh.window.be_patient(fresh.now + 5)
    assert fresh.wait(4.9) == []
    assert len(fresh.wait(0.2)) == 1


# --- epochs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", [increment(1, 2), heartbeat(0, 2), hello(2)], ids=repr)
def test_any_word_of_a_new_epoch_makes_the_copy_useless(fresh: Receiver, message: NodeMessage) -> None:
    assert fresh.take(message) == []
    assert fresh.window.freshness is WindowFreshness.STALE
    assert (fresh.window.epoch, fresh.window.sequence) == (2, None)
    assert fresh.wait(0.5) == [ResyncWish(0, 0)]
    assert fresh.take(snapshot(1, 2)) == ["snapshot 2.1"]
    assert fresh.window.freshness is WindowFreshness.FRESH


def test_a_snapshot_of_a_new_epoch_needs_no_asking(fresh: Receiver) -> None:
    assert fresh.take(snapshot(1, 2), increment(2, 2)) == ["snapshot 2.1", "increment 2.2"]
    assert fresh.wait(10) == []


@pytest.mark.parametrize(
    "message",
    [increment(6, 1), snapshot(9, 1), heartbeat(9, 1), hello(1), Leave(NODE, 1, 9)],
    ids=repr,
)
def test_an_older_epoch_changes_nothing(fresh: Receiver, message: NodeMessage) -> None:
    fresh.take(snapshot(1, 2))
    before = (
        fresh.window.phase,
        fresh.window.epoch,
        fresh.window.sequence,
        fresh.window.heard_at_s,
    )
    fresh.now += 1
    assert fresh.take(message) == []
    window = fresh.window
    assert (window.phase, window.epoch, window.sequence, window.heard_at_s) == before
    assert window.counters.old_epochs == 1


def test_held_messages_of_an_old_epoch_are_dropped(fresh: Receiver) -> None:
    fresh.take(increment(7), increment(2, 2))
    assert fresh.window.held == 1
    assert fresh.take(snapshot(1, 2)) == ["snapshot 2.1", "increment 2.2"]
