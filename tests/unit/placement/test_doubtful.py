# SPDX-License-Identifier: Apache-2.0
"""Writes whose outcome nobody knows are looked at until somebody does."""

from __future__ import annotations

from shared_scheduler.placement.doubtful import AGAIN_AFTER_S, Attempt, Doubtful

ONE, TWO = Attempt({"n1": {"VCPU": 1}}), Attempt({"n2": {"VCPU": 1}})


def test_a_doubt_is_looked_at_a_few_times_and_then_forgotten() -> None:
    doubtful = Doubtful(looks_after_s=(2, 8))
    doubtful.add("c", ONE, 100.0)
    assert doubtful.due(101.9) == []
    assert doubtful.due(102.0) == [("c", (ONE,))]
    doubtful.looked("c", 102.0, answered=True)
    assert doubtful.due(109.9) == []
    doubtful.looked("c", 110.0, answered=True)
    assert len(doubtful) == 0


def test_a_look_without_an_answer_does_not_count() -> None:
    doubtful = Doubtful(looks_after_s=(2,))
    doubtful.add("c", ONE, 0.0)
    for turn in range(100):
        doubtful.looked("c", float(turn), answered=False)
    assert doubtful.due(99 + AGAIN_AFTER_S) == [("c", (ONE,))]


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
