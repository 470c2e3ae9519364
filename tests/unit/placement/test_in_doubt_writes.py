# SPDX-License-Identifier: Apache-2.0
"""Writes with an unknown outcome are checked until it is known."""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.placement.in_doubt_writes import (
    AGAIN_AFTER_S,
    UNDER_WAY_MAX_S,
    CheckResult,
    InDoubtWrites,
    WriteAttempt,
)

ONE, TWO = WriteAttempt({"n1": {"VCPU": 1}}), WriteAttempt({"n2": {"VCPU": 1}})


def test_a_doubt_is_checked_a_few_times_and_then_forgotten() -> None:
    in_doubt = InDoubtWrites(checks_after_s=(2, 8))
    in_doubt.add("c", ONE, 100.0)
    assert in_doubt.due(101.9) == []
    assert in_doubt.due(102.0) == [("c", (ONE,))]
    in_doubt.checked("c", 102.0, CheckResult.NOTHING)
    assert in_doubt.due(109.9) == []
    in_doubt.checked("c", 110.0, CheckResult.NOTHING)
    assert len(in_doubt) == 0


def test_a_check_without_an_answer_does_not_count() -> None:
    in_doubt = InDoubtWrites(checks_after_s=(2,))
    in_doubt.add("c", ONE, 0.0)
    for turn in range(100):
        in_doubt.checked("c", float(turn), CheckResult.UNANSWERED)
    assert in_doubt.due(99 + AGAIN_AFTER_S) == [("c", (ONE,))]


def test_a_server_that_is_under_way_is_checked_for_a_bounded_time() -> None:
    in_doubt = InDoubtWrites(checks_after_s=(2,))
    in_doubt.add("c", ONE, 0.0)
    assert in_doubt.checked("c", 2.0, CheckResult.UNDER_WAY)
    assert in_doubt.due(2.0 + AGAIN_AFTER_S) == [("c", (ONE,))]
    assert in_doubt.checked("c", 1.9 + UNDER_WAY_MAX_S, CheckResult.UNDER_WAY)
    assert not in_doubt.checked("c", 2.0 + UNDER_WAY_MAX_S, CheckResult.UNDER_WAY)
    assert len(in_doubt) == 0


def test_a_new_attempt_has_the_whole_time_again() -> None:
    in_doubt = InDoubtWrites()
    in_doubt.add("c", ONE, 0.0)
    in_doubt.checked("c", 2.0, CheckResult.UNDER_WAY)
    in_doubt.add("c", TWO, UNDER_WAY_MAX_S)
    assert in_doubt.checked("c", UNDER_WAY_MAX_S + 2.0, CheckResult.UNDER_WAY)


def test_a_correct_write_is_not_checked_again() -> None:
    in_doubt = InDoubtWrites(checks_after_s=(2, 8))
    in_doubt.add("c", ONE, 0.0)
    in_doubt.checked("c", 2.0, CheckResult.RIGHTFUL)
    assert len(in_doubt) == 0


def test_every_attempt_of_a_consumer_is_remembered_once() -> None:
    in_doubt = InDoubtWrites()
    for attempt in (ONE, TWO, ONE):
        in_doubt.add("c", attempt, 0.0)
    assert in_doubt.attempts("c", 0.0) == (ONE, TWO)
    in_doubt.settled("c", "claim-1", TWO, 60.0)
    assert in_doubt.attempts("c", 0.0) == ()


def test_what_was_answered_for_one_claim_is_in_doubt_for_no_other() -> None:
    # given a claim whose write was answered
    in_doubt = InDoubtWrites()
    in_doubt.settled("c", "claim-1", ONE, 60.0)
    # when the same of another claim gets no answer, that may be the first one's
    in_doubt.add("c", ONE, 0.0)
    assert in_doubt.attempts("c", 0.0) == () and in_doubt.may_be_anothers("c", "claim-2", ONE, 0.0)
    # and another host, or another server, may not
    in_doubt.add("c", TWO, 0.0)
    in_doubt.add("d", ONE, 0.0)
    assert (in_doubt.attempts("c", 0.0), in_doubt.attempts("d", 0.0)) == ((TWO,), (ONE,))
    assert not in_doubt.may_be_anothers("c", "claim-2", TWO, 0.0)
    assert not in_doubt.may_be_anothers("c", "claim-1", ONE, 0.0)


def test_what_was_answered_is_in_doubt_again_when_it_is_not_needed_any_more() -> None:
    in_doubt = InDoubtWrites()
    in_doubt.settled("c", "claim-1", ONE, 60.0)
    in_doubt.deleting("c", "claim-2")
    assert in_doubt.may_be_anothers("c", "claim-2", ONE, 0.0)
    in_doubt.deleting("c", "claim-1")
    in_doubt.add("c", ONE, 0.0)
    assert in_doubt.attempts("c", 0.0) == (ONE,)


def test_what_was_answered_hides_nothing_after_a_delete_for_another_claim_has_taken_it() -> None:
    in_doubt = InDoubtWrites()
    in_doubt.settled("c", "claim-1", ONE, 60.0)
    in_doubt.deleting("c", "claim-2")
    in_doubt.deleted("c", ONE)
    in_doubt.add("c", ONE, 0.0)
    assert in_doubt.attempts("c", 0.0) == (ONE,)
    assert not in_doubt.may_be_anothers("c", "claim-2", ONE, 0.0)


def test_what_was_answered_long_ago_hides_no_later_write() -> None:
    # given a server that was built on a host, and shelved since
    in_doubt = InDoubtWrites()
    in_doubt.settled("c", "claim-1", ONE, 60.0)
    # when it is unshelved to the same host, and that write gets no answer
    in_doubt.add("c", ONE, 600.0)
    # then it is in doubt, and the next host of the request may take it over
    assert in_doubt.attempts("c", 600.0) == (ONE,)
    assert not in_doubt.may_be_anothers("c", "claim-2", ONE, 600.0)


def test_what_is_hidden_is_checked_when_nova_knows_of_the_answer() -> None:
    # given a write that may have left the same as one that was answered, and one for another host
    in_doubt = InDoubtWrites()
    in_doubt.settled("c", "claim-1", ONE, 60.0)
    for attempt in (ONE, TWO):
        in_doubt.add("c", attempt, 0.0)
    # then they are not checked before, not even at a stop
    assert in_doubt.due(59.9) == in_doubt.checkable(59.9) == []
    assert in_doubt.due(60.0) == in_doubt.checkable(60.0) == [("c", (ONE, TWO))]
    assert in_doubt.attempts("c", 60.0) == (ONE, TWO)


def test_the_answer_to_a_build_hides_no_write_of_a_later_operation() -> None:
    in_doubt = InDoubtWrites()
    in_doubt.settled("c", "claim-1", replace(ONE, is_new=True), 60.0)
    in_doubt.add("c", ONE, 0.0)
    assert in_doubt.attempts("c", 0.0) == (ONE,)
    assert in_doubt.due(2.0) == in_doubt.checkable(0.0) == [("c", (ONE,))]


def test_an_attempt_that_was_deleted_is_only_checked() -> None:
    in_doubt = InDoubtWrites()
    for attempt in (ONE, TWO):
        in_doubt.add("c", attempt, 0.0)
    for consumer in ("c", "d"):
        in_doubt.deleted(consumer, ONE)
    assert in_doubt.attempts("c", 0.0) == (TWO,)
    assert in_doubt.all() == [("c", (ONE, TWO))]
    in_doubt.add("c", ONE, 1.0)
    assert in_doubt.attempts("c", 0.0) == (ONE, TWO)


def test_an_attempt_that_was_deleted_twice_and_made_again_is_in_doubt() -> None:
    in_doubt = InDoubtWrites()
    in_doubt.add("c", ONE, 0.0)
    for _ in range(2):
        in_doubt.deleted("c", ONE)
    in_doubt.add("c", ONE, 1.0)
    assert in_doubt.attempts("c", 0.0) == (ONE,)


def test_the_memory_is_bounded_and_a_drop_is_reported() -> None:
    in_doubt = InDoubtWrites(max_consumers=2)
    assert in_doubt.add("a", ONE, 0.0) and in_doubt.add("b", ONE, 0.0)
    assert in_doubt.add("a", TWO, 1.0)  # young again
    assert not in_doubt.add("c", ONE, 2.0)
    assert [consumer for consumer, _ in in_doubt.all()] == ["a", "c"]


def test_what_was_answered_after_a_doubt_about_another_host_is_checked_when_nova_knows_of_the_answer() -> None:
    in_doubt, left = InDoubtWrites(), replace(TWO, is_new=True)
    in_doubt.add("c", ONE, 0.0)
    in_doubt.settled("c", "claim-1", left, 60.0)
    assert in_doubt.due(59.9) == []
    assert in_doubt.checkable(59.9) == []
    assert in_doubt.due(60.0) == [("c", (replace(left, answered=True),))]
    # and it is no write in doubt, which a later operation may replace
    assert in_doubt.attempts("c", 60.0) == ()


def test_what_was_answered_is_not_checked_after_a_doubt_about_the_same_or_for_a_later_operation() -> None:
    in_doubt = InDoubtWrites()
    for consumer, left in (("new", replace(ONE, is_new=True)), ("moves", TWO)):
        in_doubt.add(consumer, ONE, 0.0)
        in_doubt.settled(consumer, "claim-1", left, 60.0)
    assert len(in_doubt) == 0
