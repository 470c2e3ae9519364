# SPDX-License-Identifier: Apache-2.0
"""When a source is read again after a failure."""

from __future__ import annotations

from random import Random

from shared_scheduler.model.read_schedule import ReadSchedule, ReadTimes


def test_requests_wait_for_the_pause_after_a_failure_and_a_source_that_answers_does_not() -> None:
    # given a read that failed at 100 s
    schedule = ReadSchedule(ReadTimes(None, 8.0, 64.0), Random(1))
    schedule.ask(100.0)
    assert schedule.begin(100.0)
    schedule.failed(100.0)
    pause_ends_s = schedule.planned_s
    assert pause_ends_s is not None and pause_ends_s > 101.0
    # when it is wanted at once, it waits as before
    schedule.ask(100.5)
    assert schedule.planned_s == pause_ends_s
    # unless the source is known to answer
    schedule.ask_at_once(101.0)
    assert schedule.is_due(101.0)
