# SPDX-License-Identifier: Apache-2.0
"""For how long a write that conflicts is sent again."""

from __future__ import annotations

import pytest

from shared_scheduler.placement.conflict_patience import ConflictPatience, NextWrite
from shared_scheduler.placement.consumer_conflicts import ORPHAN_AFTER_S, ConflictCase
from shared_scheduler.placement.own_records import OwnRecord

DEADLINE_S = 10.0


@pytest.fixture
def patience() -> ConflictPatience:
    return ConflictPatience(DEADLINE_S)


def after_a_conflict(patience: ConflictPatience, now: float, record: OwnRecord = OwnRecord.NONE) -> NextWrite:
    return patience.after(ConflictCase.NOTHING, now, True, record)


def test_an_own_orphan_is_taken_over_once_and_then_null_is_sent_once_more(patience: ConflictPatience) -> None:
    assert after_a_conflict(patience, 0.0, OwnRecord.LEFT) is NextWrite.AGAIN
    assert after_a_conflict(patience, ORPHAN_AFTER_S, OwnRecord.LEFT) is NextWrite.TAKE_OVER
    assert after_a_conflict(patience, ORPHAN_AFTER_S, OwnRecord.LEFT) is NextWrite.LAST
    assert after_a_conflict(patience, ORPHAN_AFTER_S, OwnRecord.LEFT) is NextWrite.LOST


def test_a_record_that_no_own_write_has_left_is_not_taken_over(patience: ConflictPatience) -> None:
    assert after_a_conflict(patience, 0.0) is NextWrite.AGAIN
    assert after_a_conflict(patience, ORPHAN_AFTER_S) is NextWrite.LAST
    assert after_a_conflict(patience, ORPHAN_AFTER_S) is NextWrite.LOST


def test_a_record_that_an_own_write_may_create_is_never_taken_over(patience: ConflictPatience) -> None:
    for now in range(int(DEADLINE_S)):
        assert after_a_conflict(patience, float(now), OwnRecord.COMING) is NextWrite.AGAIN
    assert after_a_conflict(patience, DEADLINE_S, OwnRecord.COMING) is NextWrite.OVERDUE


def test_the_time_begins_again_when_a_write_gets_no_answer(patience: ConflictPatience) -> None:
    after_a_conflict(patience, 0.0)
    assert patience.after(ConflictCase.NOTHING, 1.0, False, OwnRecord.LEFT) is NextWrite.AGAIN
    after_a_conflict(patience, 1.5)
    assert after_a_conflict(patience, ORPHAN_AFTER_S, OwnRecord.LEFT) is NextWrite.AGAIN
    assert after_a_conflict(patience, 1.5 + ORPHAN_AFTER_S, OwnRecord.LEFT) is NextWrite.TAKE_OVER


def test_a_conflict_over_existing_allocations_is_lost_without_a_take_over(patience: ConflictPatience) -> None:
    patience.after(ConflictCase.UNCHANGED, 0.0, True, OwnRecord.LEFT)
    assert patience.after(ConflictCase.UNCHANGED, ORPHAN_AFTER_S, True, OwnRecord.LEFT) is NextWrite.LOST


def test_a_write_without_an_answer_is_sent_until_the_deadline(patience: ConflictPatience) -> None:
    for now in range(int(DEADLINE_S)):
        assert patience.after(ConflictCase.NOTHING, float(now), False, OwnRecord.NONE) is NextWrite.AGAIN
    assert patience.after(ConflictCase.NOTHING, DEADLINE_S, False, OwnRecord.NONE) is NextWrite.OVERDUE
