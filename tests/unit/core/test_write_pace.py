# SPDX-License-Identifier: Apache-2.0
"""How large the next batch is, and which writes are not worth sending."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from shared_scheduler.core.write_pace import (
    CALL_S,
    DELETERS,
    FORECAST_VALID_S,
    MAX_BATCH,
    UNPACED_MAX,
    UNWRITTEN_MAX,
    WRITERS,
    BurstForecast,
    WritePace,
)


def paced(*measured: tuple[int, float]) -> WritePace:
    pace = WritePace()
    for consumers, took_s in measured:
        pace.measured(consumers, 0.0, took_s)
    return pace


def test_before_anything_was_measured_batches_are_full_and_nothing_is_late() -> None:
    pace = paced()
    assert pace.batch_max() == MAX_BATCH
    assert not pace.is_too_late(10.0, 9.99) and pace.is_too_late(10.0, 10.0)


@pytest.mark.parametrize(
    ("measured", "size"),
    [((1, 0.02), 16), ((16, 0.5), 16), ((16, 4.0), 8), ((1, 1.0), 2), ((1, 5.0), 1), ((16, 10.0), 3)],
)
def test_a_batch_holds_what_placement_writes_in_two_seconds(measured: tuple[int, float], size: int) -> None:
    assert paced(measured).batch_max() == size


def test_one_second_for_a_call_of_any_size_results_in_full_batches() -> None:
    pace, size = paced((1, 1.0)), 1
    for _ in range(12):
        size = pace.batch_max()
        pace.measured(size, 0.0, 1.0)
    assert size == MAX_BATCH


def test_a_few_calls_of_a_placement_that_is_well_again_are_enough() -> None:
    pace = paced(*[(2, 20.0)] * 20)
    for _ in range(7):
        pace.measured(1, 0.0, 0.02)
    assert pace.batch_max() == MAX_BATCH


def test_a_refused_connection_is_no_fast_write() -> None:
    pace = paced((1, 1.0))
    pace.measured(16, 0.0, 0.001, answered=False)
    assert pace.consumer_s == 1.0
    pace.measured(1, 0.0, 3.0, answered=False)
    assert pace.consumer_s == 2.0


@pytest.mark.parametrize("answered", [True, False])
def test_a_call_of_the_time_when_placement_was_slow_is_not_believed_when_a_later_one_was_fast(answered: bool) -> None:
    # given a call that began while Placement was slow, and one that was answered since
    pace = paced()
    pace.measured(1, 5.8, 0.02)
    # when the first one ends
    pace.measured(1, 5.0, 10.0, answered)
    # then it is of the same seconds, and counts; but one that began long before does not
    assert pace.consumer_s == pytest.approx(5.01)
    pace = paced()
    pace.measured(1, 11.7, 0.02)
    pace.measured(1, 5.0, 10.0, answered)
    assert (pace.consumer_s, pace.filled_consumer_s) == (0.02, 0.02 / MAX_BATCH)


def test_calls_without_an_answer_do_not_show_that_placement_is_well() -> None:
    pace = paced()
    pace.measured(1, 20.0, 3.0, answered=False)
    pace.measured(1, 5.0, 17.0)
    assert pace.consumer_s == pytest.approx(10.0)


def test_what_has_the_time_of_a_call_left_is_always_sent() -> None:
    # or nothing would be sent after a standstill, and nothing would show that it is over
    pace = paced((1, 600.0))
    assert not pace.is_too_late(10.0 + CALL_S + 0.01, 10.0)


@given(st.lists(st.tuples(st.integers(1, MAX_BATCH), st.floats(0.0, 600.0)), max_size=20))
def test_a_batch_is_never_empty_nor_too_large(measured: list[tuple[int, float]]) -> None:
    assert 1 <= paced(*measured).batch_max() <= MAX_BATCH


# -- requests for many servers


def test_a_burst_needs_its_share_of_all_writers() -> None:
    forecast = BurstForecast()
    forecast.heard(0.5, 10.0)
    assert forecast.needed_s(80, 11.0) == 80 * 0.5 / WRITERS


def test_what_a_burst_leaves_is_written_to_its_end_and_deleted_by_two_calls_each() -> None:
    forecast = BurstForecast()
    assert forecast.taken_back_s(8, 4, 10.0) == 0.0
    forecast.heard(0.5, 10.0)
    expected_s = 4 * 0.5 / WRITERS + 12 * 2 * 0.5 / (WRITERS + DELETERS)
    assert forecast.taken_back_s(8, 4, 10.0) == pytest.approx(expected_s)


def test_an_answer_without_a_pace_and_an_old_pace_change_nothing() -> None:
    forecast = BurstForecast()
    assert forecast.needed_s(1_000, 10.0) == 0.0
    forecast.heard(0.5, 10.0)
    forecast.heard(0.0, 11.0)
    assert forecast.needed_s(1, 10.0 + FORECAST_VALID_S) > 0.0
    assert forecast.needed_s(1_000, 10.1 + FORECAST_VALID_S) == 0.0


def test_writes_one_by_one_do_not_refuse_a_burst_that_full_batches_write_in_time() -> None:
    # given a busy Placement, and requests for one server each, whose writes took 0.36 s
    pace, forecast = paced(*[(1, 0.36)] * 8), BurstForecast()
    # when a request for 1,404 servers arrives
    forecast.heard(pace.filled_consumer_s, 10.0)
    # then it is tried, because nobody knows what a full batch takes: at least 0.36 s, for 5 consumers or more
    assert forecast.needed_s(1_404, 10.0) == pytest.approx(1_404 * 0.36 / 5 / WRITERS)


@pytest.mark.parametrize(("consumers", "took_s"), [(16, 1.6), (2, 2.0), (1, 1.0)])
def test_calls_as_large_as_possible_tell_what_a_burst_needs(consumers: int, took_s: float) -> None:
    pace = paced(*[(consumers, took_s)] * 8)
    assert pace.filled_consumer_s == pytest.approx(took_s / max(consumers, pace.batch_max()))
    assert pace.consumer_s / 2 <= pace.filled_consumer_s <= pace.consumer_s


@given(st.lists(st.tuples(st.integers(1, MAX_BATCH), st.floats(0.0, 600.0), st.booleans()), max_size=20))
def test_a_full_batch_is_never_slower_than_the_calls_that_were_measured(
    measured: list[tuple[int, float, bool]],
) -> None:
    pace = WritePace()
    for consumers, took_s, answered in measured:
        pace.measured(consumers, 0.0, took_s, answered)
        assert 0.0 <= pace.filled_consumer_s <= pace.consumer_s * 1.000001


def test_no_more_claims_wait_than_are_written_in_half_of_their_time() -> None:
    forecast = BurstForecast()
    assert forecast.unwritten_max(10.0) == UNPACED_MAX
    for consumer_s, expected in ((0.01, UNWRITTEN_MAX), (1.0, 5 * WRITERS), (100.0, WRITERS)):
        forecast.heard(consumer_s, 10.0)
        assert forecast.unwritten_max(10.0) == expected
