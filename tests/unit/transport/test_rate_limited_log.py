# SPDX-License-Identifier: Apache-2.0
"""Repeated events are logged for operators in a bounded number of lines."""

from __future__ import annotations

import logging

import pytest

from shared_scheduler.transport.rate_limited_log import LINES_PER_INTERVAL_MAX, LOG_INTERVAL_S, RateLimitedLog


class Story:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.log = RateLimitedLog(logging.getLogger("test"), lambda: self.now_s)

    def write(self, key: str) -> None:
        self.log.write(logging.WARNING, key, "%s fails", key)


@pytest.fixture
def story(caplog: pytest.LogCaptureFixture) -> Story:
    caplog.set_level(logging.INFO, "test")
    return Story()


def test_each_key_has_a_line_of_its_own_and_only_one(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    for key in ("one", "one", "two", "one"):
        story.write(key)
    assert [record.getMessage() for record in caplog.records] == ["one fails", "two fails"]


def test_after_the_interval_it_is_logged_again(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    for at_s in (0.0, LOG_INTERVAL_S - 1, LOG_INTERVAL_S, LOG_INTERVAL_S + 1):
        story.now_s = at_s
        story.write("one")
    assert len(caplog.records) == 2


def test_a_flood_under_many_names_is_bounded_in_each_interval(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    for interval in (1, 2):
        for number in range(10 * LINES_PER_INTERVAL_MAX):
            story.write(f"stranger {number} in interval {interval}")
        assert len(caplog.records) == interval * LINES_PER_INTERVAL_MAX
        story.now_s += LOG_INTERVAL_S


def test_an_outage_is_logged_once_an_interval_and_its_end(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    for story.now_s in (0.0, 1.0, 59.0, 60.0, 61.0):
        story.log.failed("db", "it is away")
    assert story.log.failing() == {"db"}
    story.log.recovered("db")
    story.log.recovered("db")
    story.log.failed("db", "it is away once more")
    assert [record.getMessage() for record in caplog.records] == [
        "it is away", "it is away", "db: works again after 61 s", "it is away once more",
    ]  # fmt: skip
