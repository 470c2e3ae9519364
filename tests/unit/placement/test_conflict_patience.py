# SPDX-License-Identifier: Apache-2.0
"""For how long a write that conflicts is sent again."""

from __future__ import annotations

import pytest

from shared_scheduler.placement.conflict_patience import ConflictPatience, NextWrite
from shared_scheduler.placement.consumer_conflicts import LASTS_AFTER_S, MAX_ATTEMPTS, ConflictCase

DEADLINE_S = 10.0


@pytest.fixture
def patience() -> ConflictPatience:
    return ConflictPatience(DEADLINE_S)


def after_a_conflict(patience: ConflictPatience, now: float, may_be_created: bool = False) -> NextWrite:
    return patience.after(ConflictCase.NOTHING, now, True, may_be_created)


def test_a_conflict_that_lasts_is_lost_after_one_more_write(patience: ConflictPatience) -> None:
    assert after_a_conflict(patience, 0.0) is NextWrite.AGAIN
    assert after_a_conflict(patience, LASTS_AFTER_S) is NextWrite.LAST
    assert after_a_conflict(patience, LASTS_AFTER_S) is NextWrite.LOST


def test_a_conflict_is_not_lost_while_an_own_write_may_create_the_record(patience: ConflictPatience) -> None:
    for now in range(int(DEADLINE_S)):
        assert after_a_conflict(patience, float(now), may_be_created=True) is NextWrite.AGAIN
    assert after_a_conflict(patience, DEADLINE_S, may_be_created=True) is NextWrite.OVERDUE


def test_the_time_begins_again_when_a_write_gets_no_answer(patience: ConflictPatience) -> None:
    after_a_conflict(patience, 0.0)
    assert patience.after(ConflictCase.NOTHING, 1.0, False, False) is NextWrite.AGAIN
    after_a_conflict(patience, 1.5)
    assert after_a_conflict(patience, LASTS_AFTER_S) is NextWrite.AGAIN
    assert after_a_conflict(patience, 1.5 + LASTS_AFTER_S) is NextWrite.LAST


def test_a_conflict_over_existing_allocations_is_lost_without_another_write(patience: ConflictPatience) -> None:
    patience.after(ConflictCase.UNCHANGED, 0.0, True, False)
    assert patience.after(ConflictCase.UNCHANGED, LASTS_AFTER_S, True, False) is NextWrite.LOST


def test_the_number_of_writes_is_bounded(patience: ConflictPatience) -> None:
    patience.sent = MAX_ATTEMPTS
    assert after_a_conflict(patience, 0.0) is NextWrite.OVERDUE
