# SPDX-License-Identifier: Apache-2.0
"""Messages of two epochs of an agent at once: it was restarted, or has lost its memory while its clock was set back."""

from __future__ import annotations

import pytest

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.messages import Leave
from shared_scheduler.protocol.window import NodeMessage, ResyncWish, WindowFreshness
from tests.unit.protocol.window_driver import NODE, Receiver, heartbeat, hello, increment, snapshot


def in_epoch_9_by_a_late_message(late: NodeMessage) -> Receiver:
    """A window that began after the agent had lost its state and gone on in epoch 4; then a message arrives that was
    sent in epoch 9, before that."""
    receiver = Receiver()
    receiver.take(snapshot(1, epoch=4), increment(2, epoch=4), late)
    assert receiver.window.epoch == 9
    return receiver


@pytest.mark.parametrize("message", [increment(3, 4), heartbeat(2, 4), hello(4), snapshot(3, 4)], ids=repr)
def test_an_agent_that_is_still_heard_in_the_epoch_before_is_asked_at_once(message: NodeMessage) -> None:
    # given a copy of a run that the agent has forgotten
    receiver = in_epoch_9_by_a_late_message(snapshot(12, epoch=9))
    # when the agent is heard, then it is asked for what follows the copy
    assert receiver.take(message) == []
    assert receiver.asks == [ResyncWish(9, 12)]
    # and its next epoch is followed
    assert receiver.take(snapshot(1, epoch=10)) == ["snapshot 10.1"]
    assert receiver.window.freshness is WindowFreshness.FRESH


@pytest.mark.parametrize("message", [increment(1, 6), heartbeat(0, 6), hello(6), snapshot(1, 6)], ids=repr)
def test_an_agent_that_was_restarted_since_a_late_message_of_a_forgotten_run_is_asked_as_well(
    message: NodeMessage,
) -> None:
    # given a copy of a run that the agent has forgotten
    receiver = in_epoch_9_by_a_late_message(snapshot(12, epoch=9))
    # when it is restarted, before it was heard in the epoch that was followed before
    assert receiver.take(message) == []
    # then it is asked at once, too
    assert receiver.asks == [ResyncWish(9, 12)]


def test_an_agent_is_asked_after_late_messages_of_two_runs_that_it_has_forgotten() -> None:
    # given a copy of a run that the agent has forgotten, when a message of the one after that arrives late as well
    receiver = in_epoch_9_by_a_late_message(snapshot(12, epoch=9))
    receiver.take(snapshot(3, epoch=10), Leave(NODE, 9, 12))
    assert receiver.window.epoch == 10 and receiver.asks == []
    # then the agent, which goes on in the epoch that was followed first, is asked
    receiver.take(increment(3, epoch=4))
    assert receiver.asks == [ResyncWish(10, 3)]


@pytest.mark.parametrize("late", [False, True], ids=["leaves before", "leaves after"])
def test_an_agent_that_was_stopped_beside_a_late_message_of_a_forgotten_run_is_asked_when_it_starts(late: bool) -> None:
    # given an agent that is stopped in the epoch that is followed, and a late message of a run that it has forgotten
    receiver = Receiver()
    stops, forgotten = Leave(NODE, 4, 2), snapshot(12, epoch=9)
    receiver.take(snapshot(1, epoch=4), increment(2, epoch=4), *([forgotten, stops] if late else [stops, forgotten]))
    assert receiver.window.epoch == 9
    # when the epoch that has ended is heard again, then nobody is asked
    receiver.take(heartbeat(2, epoch=4))
    assert receiver.asks == []
    # and when the agent starts in an epoch between both, then it is asked
    receiver.take(heartbeat(1, epoch=6))
    assert receiver.asks == [ResyncWish(9, 12)]


def test_a_run_that_ended_before_the_one_that_was_followed_is_over() -> None:
    # given an agent that was restarted
    receiver = Receiver()
    receiver.take(snapshot(5, epoch=4), snapshot(1, epoch=9))
    # when a message of a run before both arrives
    receiver.take(heartbeat(7, epoch=3))
    # then nobody is asked
    assert receiver.asks == []


def test_an_epoch_that_only_a_late_message_has_named_is_exceeded_if_a_snapshot_is_not_enough() -> None:
    # given a window without a copy, because a late heartbeat has named a later epoch
    receiver = in_epoch_9_by_a_late_message(heartbeat(12, epoch=9))
    receiver.take(increment(3, epoch=4))
    assert receiver.window.freshness is WindowFreshness.STALE and receiver.asks == []
    # when it has asked for a snapshot as after each restart, and the agent goes on in the epoch before
    receiver.wait(limits.RESYNC_TIMEOUT_S)
    receiver.take(snapshot(3, epoch=4))
    # then the agent is asked to exceed the later one
    assert receiver.asks == [ResyncWish(0, 0), ResyncWish(9, 0)]


def test_an_agent_that_does_not_answer_is_asked_again_but_not_for_each_message() -> None:
    receiver = in_epoch_9_by_a_late_message(snapshot(12, epoch=9))
    receiver.take(increment(3, epoch=4), increment(4, epoch=4))
    assert receiver.asks == [ResyncWish(9, 12)]
    receiver.wait(limits.RESYNC_TIMEOUT_S)
    receiver.take(increment(5, epoch=4))
    assert receiver.asks == [ResyncWish(9, 12)] * 2


def test_late_messages_of_the_epoch_before_a_restart_cause_one_question(fresh: Receiver) -> None:
    # given an agent that was restarted, and a message of its last run that arrives late
    fresh.take(snapshot(1, epoch=2), increment(6, epoch=1))
    assert fresh.asks == [ResyncWish(2, 1)]
    # when the answer comes, then the others are no news
    fresh.take(heartbeat(1, epoch=2))
    fresh.wait(5)
    fresh.take(heartbeat(6, epoch=1), increment(7, epoch=1))
    assert fresh.asks == [ResyncWish(2, 1)]


def test_after_a_leave_the_epoch_before_is_over(fresh: Receiver) -> None:
    # given a run that has ended, as its Leave tells before or after the first message of the next one
    fresh.take(Leave(NODE, 1, 5), snapshot(1, epoch=2), heartbeat(5, epoch=1))
    other = Receiver()
    other.take(snapshot(5), snapshot(1, epoch=2), Leave(NODE, 1, 5), heartbeat(5, epoch=1))
    assert fresh.asks == other.asks == []


def test_patience_holds_for_the_question_which_epoch_is_the_last() -> None:
    receiver = in_epoch_9_by_a_late_message(snapshot(12, epoch=9))
    receiver.window.be_patient(receiver.now + 5)
    receiver.take(increment(3, epoch=4))
    assert receiver.asks == []
