# SPDX-License-Identifier: Apache-2.0
"""Every moment that is shown is in UTC and says so, whatever the zone of the machine."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import pytest

from shared_scheduler.answers.times import timed
from shared_scheduler.cmd.arguments import when
from shared_scheduler.records.moments import iso, moment, second

AT_S = 1_795_541_526.6925


@pytest.fixture(autouse=True)
def a_machine_in_another_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


def test_moments_are_in_utc_with_the_zone() -> None:
    assert moment(AT_S) == "2026-11-24 17:32:06.692Z"
    assert second(AT_S) == "2026-11-24 17:32:06Z"
    assert iso(AT_S) == "2026-11-24T17:32:06.692Z"


def test_a_moment_that_was_shown_can_be_asked_for() -> None:
    assert when(moment(AT_S)) == when(iso(AT_S)) == pytest.approx(AT_S, abs=0.001)
    assert when("2026-11-24T17:32:06") == when("2026-11-24T18:32:06+01:00") == int(AT_S)
    with pytest.raises(argparse.ArgumentTypeError):
        when("2026-11-24T17:32:06 CET")


def test_each_moment_of_an_answer_has_its_text_beside_it() -> None:
    record = {"at": AT_S, "started_at": AT_S, "kind": "decision", "asked": {"at": AT_S}}
    times = {"time": iso(AT_S), "started_time": iso(AT_S)}
    assert timed([record]) == [{**record, **times}]
    assert timed({"name": "x", "records": [record]})["records"] == [{**record, **times}]
    assert timed({"since_at": AT_S, "seen_at_s": AT_S, "format": 1, "rate_at_start": 2}) == {
        "since_at": AT_S, "seen_at_s": AT_S, "format": 1, "rate_at_start": 2,
        "since_time": iso(AT_S), "seen_time": iso(AT_S),
    }  # fmt: skip


def test_what_is_no_moment_is_left_as_it_is() -> None:
    assert timed({"at": "noon", "first_at": None, "records": 5}) == {"at": "noon", "first_at": None, "records": 5}
