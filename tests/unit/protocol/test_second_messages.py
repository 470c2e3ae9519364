# SPDX-License-Identifier: Apache-2.0
"""The second time in the life of a window or a pipe."""

from __future__ import annotations

from random import Random

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.pipe import MessagePipe
from shared_scheduler.protocol.window import BEHIND_S, WindowFreshness
from tests.unit.protocol.window_driver import DIGEST, Receiver, heartbeat, increment, snapshot

OTHER = DIGEST + 1


def test_a_copy_that_was_dropped_twice_is_not_begun_again_from_something_older(fresh: Receiver) -> None:
    # given a copy that was dropped at sequence 9, and dropped again before anything was applied
    fresh.take(*map(increment, range(6, 10)))
    fresh.window.forget(fresh.now)
    fresh.window.forget(fresh.now)
    # when a delayed snapshot arrives that is older than the first one
    assert fresh.take(snapshot(7)) == []
    # then only one that is as new is applied
    assert fresh.take(snapshot(9)) == ["snapshot 1.9"]


def test_a_hello_does_not_shorten_the_pause_before_the_next_ask(fresh: Receiver) -> None:
    # given a window whose asks were not answered, so that it pauses for long
    fresh.take(increment(7))
    for _ in range(40):
        fresh.wait(10.0)
        fresh.take(heartbeat(7))
    planned_s = fresh.window.next_deadline_s()
    assert planned_s is not None
    # when a Hello asks all agents to report within a moment
    fresh.window.be_patient(fresh.now)
    # then
    assert fresh.window.next_deadline_s() == planned_s


def test_a_copy_that_was_right_in_between_is_asked_about_as_soon_as_the_first_time() -> None:
    # given a window whose copy differs now and then, and is right in between
    waits_s = []
    for rounds in (1, 8):
        receiver = Receiver()
        receiver.take(snapshot(5))
        for _ in range(rounds):
            differed_s = receiver.now
            receiver.take(heartbeat(5, digest=OTHER))
            assert receiver.window.freshness is WindowFreshness.SUSPECT
            longest_s = (receiver.window.next_deadline_s() or 0.0) - differed_s
            receiver.wait(limits.SILENT_AFTER_S / 2)
            receiver.take(snapshot(5))
            receiver.wait(1.0)
            receiver.take(heartbeat(5))
        waits_s.append(longest_s)
    # then the last time it asks as soon as the first one may
    assert all(wait_s <= limits.HOLD_S + limits.RESYNC_BACKOFF.longest_s(0) for wait_s in waits_s)


def test_late_heartbeats_count_as_behind_only_while_the_copy_stands_still(fresh: Receiver) -> None:
    # given a heartbeat that is behind the copy
    fresh.take(increment(6))
    fresh.take(heartbeat(5))
    fresh.wait(BEHIND_S - 0.1)
    # when the copy moves on, and another late one arrives
    fresh.take(increment(7))
    fresh.wait(0.2)
    # then it is not taken for an agent that uses an epoch twice
    assert fresh.take(heartbeat(6)) == []
    assert fresh.window.counters.resyncs_asked == 0


def test_a_heartbeat_that_is_due_sooner_is_not_put_off() -> None:
    pipe = MessagePipe("node", "host", 1, Random(1), heartbeat_interval_s=1e6)
    pipe.poll(0.0)
    pipe.heartbeat_within(0.0, 0.01)
    soon_s = pipe.next_deadline_s()
    # when other schedulers ask for one within a longer time
    for _ in range(20):
        pipe.heartbeat_within(0.0, 1e5)
    # then
    assert pipe.next_deadline_s() == soon_s
