# SPDX-License-Identifier: Apache-2.0
"""An operator distrusts the copy of a node: it is replaced by a snapshot, whatever the window knows."""

from __future__ import annotations

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.messages import Leave
from shared_scheduler.protocol.rate_limits import TokenBucket
from shared_scheduler.protocol.window import ResyncWish, WindowFreshness
from tests.unit.protocol.window_driver import Receiver, heartbeat, increment, snapshot

SNAPSHOT = ResyncWish(0, 0)
#: the agent reads Placement before it answers
FIRST = ResyncWish(0, 0, recheck=True)


def distrusted(receiver: Receiver) -> Receiver:
    receiver._note(receiver.window.distrust(receiver.now))
    return receiver


def test_a_copy_that_misses_nothing_is_asked_for_at_once_and_may_be_used(fresh: Receiver) -> None:
    assert distrusted(fresh).asks == [FIRST]
    assert fresh.window.freshness is WindowFreshness.SUSPECT


def test_the_snapshot_replaces_a_copy_that_is_as_new(fresh: Receiver) -> None:
    fresh.take(increment(6))
    assert distrusted(fresh).take(snapshot(6)) == ["snapshot 1.6"]
    assert fresh.window.freshness is WindowFreshness.FRESH and not fresh.window.is_distrusted
    assert fresh.take(snapshot(6)) == []  # the next one is not needed


def test_an_older_snapshot_is_not_the_answer(fresh: Receiver) -> None:
    fresh.take(increment(6))
    assert distrusted(fresh).take(snapshot(5)) == []
    assert fresh.window.is_distrusted


def test_a_request_that_is_lost_is_repeated(fresh: Receiver) -> None:
    distrusted(fresh)
    assert fresh.wait(limits.RESYNC_TIMEOUT_S + 1) == [SNAPSHOT]


def test_a_heartbeat_with_an_equal_digest_is_not_the_answer(fresh: Receiver) -> None:
    distrusted(fresh).take(heartbeat(5))
    assert fresh.window.freshness is WindowFreshness.SUSPECT
    assert fresh.window.is_distrusted
    assert fresh.take(snapshot(5)) == ["snapshot 1.5"]


def test_in_a_gap_a_snapshot_is_asked_for_instead_of_a_replay(fresh: Receiver) -> None:
    fresh.take(increment(8))
    assert distrusted(fresh).asks == [FIRST]
    # when the missing messages were only late, and arrive first
    fresh.take(increment(6), increment(7))
    # then the snapshot is applied all the same
    assert fresh.take(snapshot(8)) == ["snapshot 1.8"]


def test_a_silent_agent_is_not_asked(fresh: Receiver) -> None:
    fresh.take(Leave(fresh.window.node, 1, 5))
    assert distrusted(fresh).asks == []
    assert not fresh.window.is_distrusted and fresh.window.freshness is WindowFreshness.SILENT


def test_it_needs_a_token_like_each_request() -> None:
    bucket = TokenBucket(1, 1)
    receiver = Receiver(bucket)
    receiver.take(snapshot(5))
    bucket.take(receiver.now)
    assert distrusted(receiver).asks == []
    assert receiver.window.counters.resyncs_delayed == 1
    assert receiver.wait(3)[0] == FIRST


def test_a_request_that_waits_already_keeps_its_turn() -> None:
    # given one that waits for a token, while the agent has been asked to report until later
    receiver = Receiver(TokenBucket(1, 1))
    receiver.take(snapshot(5))
    distrusted(receiver).take(snapshot(5))
    distrusted(receiver)
    receiver.window.be_patient(receiver.now + 5)
    # when
    distrusted(receiver)
    # then
    assert receiver.turns.waiting == {receiver.window.node}
    receiver.window.validate()
    assert receiver.wait(4) == [] and receiver.wait(2) == [FIRST]


def test_a_copy_that_was_behind_before_a_silence_gets_a_snapshot_and_what_follows(fresh: Receiver) -> None:
    # given a node that was silent with a message missing, and is heard again
    fresh.take(heartbeat(7))
    fresh.wait(50)
    fresh.take(heartbeat(4))
    assert fresh.window.freshness is WindowFreshness.SUSPECT and fresh.window.lag == 2
    # when
    assert distrusted(fresh).asks[-1] == FIRST
    # then
    assert fresh.take(snapshot(6), increment(7)) == ["snapshot 1.6", "increment 1.7"]
    assert fresh.window.freshness is WindowFreshness.FRESH


def test_a_request_that_is_lost_is_repeated_although_a_heartbeat_has_an_equal_digest(fresh: Receiver) -> None:
    # given a request that the broker loses
    distrusted(fresh)
    # when the agent, which knows nothing of it, sends its next heartbeat
    fresh.take(heartbeat(5))
    # then
    assert SNAPSHOT in fresh.wait(limits.RESYNC_TIMEOUT_S + 1)


def test_a_request_that_is_lost_is_repeated_although_nothing_is_missing_any_more(fresh: Receiver) -> None:
    fresh.take(increment(8))
    distrusted(fresh).take(increment(6), increment(7))
    assert SNAPSHOT in fresh.wait(limits.RESYNC_TIMEOUT_S + 1)


def test_an_agent_that_was_silent_before_it_answered_is_asked_again(fresh: Receiver) -> None:
    distrusted(fresh).wait(50)
    assert fresh.window.freshness is WindowFreshness.SILENT
    fresh.take(heartbeat(5))
    assert SNAPSHOT in fresh.wait(limits.RESYNC_TIMEOUT_S + 1)


def test_a_snapshot_under_way_is_not_asked_for_twice_because_of_a_heartbeat(fresh: Receiver) -> None:
    distrusted(fresh).take(heartbeat(5))
    fresh.now += limits.HOLD_S * 2
    assert fresh.take(heartbeat(5), snapshot(5)) == ["snapshot 1.5"]
    assert len(fresh.asks) == 1
