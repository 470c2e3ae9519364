# SPDX-License-Identifier: Apache-2.0
"""Writes whose outcome nobody knows are looked at until somebody does."""

from __future__ import annotations

from shared_scheduler.placement.doubtful import AGAIN_AFTER_S, UNDER_WAY_MAX_S, Attempt, Doubtful, Look

ONE, TWO = Attempt({"n1": {"VCPU": 1}}), Attempt({"n2": {"VCPU": 1}})


def test_a_doubt_is_looked_at_a_few_times_and_then_forgotten() -> None:
    doubtful = Doubtful(looks_after_s=(2, 8))
    doubtful.add("c", ONE, 100.0)
    assert doubtful.due(101.9) == []
    assert doubtful.due(102.0) == [("c", (ONE,))]
    doubtful.looked("c", 102.0, Look.NOTHING)
    assert doubtful.due(109.9) == []
    doubtful.looked("c", 110.0, Look.NOTHING)
    assert len(doubtful) == 0


def test_a_look_without_an_answer_does_not_count() -> None:
    doubtful = Doubtful(looks_after_s=(2,))
    doubtful.add("c", ONE, 0.0)
    for turn in range(100):
        doubtful.looked("c", float(turn), Look.UNANSWERED)
    assert doubtful.due(99 + AGAIN_AFTER_S) == [("c", (ONE,))]


def test_a_server_that_is_under_way_is_looked_at_for_a_bounded_time() -> None:
    doubtful = Doubtful(looks_after_s=(2,))
    doubtful.add("c", ONE, 0.0)
    assert doubtful.looked("c", 2.0, Look.UNDER_WAY)
    assert doubtful.due(2.0 + AGAIN_AFTER_S) == [("c", (ONE,))]
    assert doubtful.looked("c", 1.9 + UNDER_WAY_MAX_S, Look.UNDER_WAY)
    assert not doubtful.looked("c", 2.0 + UNDER_WAY_MAX_S, Look.UNDER_WAY)
    assert len(doubtful) == 0


def test_a_new_attempt_has_the_whole_time_again() -> None:
    doubtful = Doubtful()
    doubtful.add("c", ONE, 0.0)
    doubtful.looked("c", 2.0, Look.UNDER_WAY)
    doubtful.add("c", TWO, UNDER_WAY_MAX_S)
    assert doubtful.looked("c", UNDER_WAY_MAX_S + 2.0, Look.UNDER_WAY)


def test_what_stands_there_rightly_needs_no_other_look() -> None:
    doubtful = Doubtful(looks_after_s=(2, 8))
    doubtful.add("c", ONE, 0.0)
    doubtful.looked("c", 2.0, Look.RIGHTFUL)
    assert len(doubtful) == 0


def test_every_attempt_of_a_consumer_is_remembered_once() -> None:
    doubtful = Doubtful()
    for attempt in (ONE, TWO, ONE):
        doubtful.add("c", attempt, 0.0)
    assert doubtful.attempts("c") == (ONE, TWO)
    doubtful.settled("c")
    assert doubtful.attempts("c") == ()


def test_memory_is_bounded_and_says_so() -> None:
    doubtful = Doubtful(max_consumers=2)
    assert doubtful.add("a", ONE, 0.0) and doubtful.add("b", ONE, 0.0)
    assert doubtful.add("a", TWO, 1.0)  # young again
    assert not doubtful.add("c", ONE, 2.0)
    assert [consumer for consumer, _ in doubtful.all()] == ["a", "c"]
