# SPDX-License-Identifier: Apache-2.0
"""Bad messages are told to operators, whoever sends them, but not at any length."""

from __future__ import annotations

import logging

import pytest

from shared_scheduler.protocol.messages import Beat, Claim, Hello, Release, Resync, Role, Usage
from shared_scheduler.transport.complaints import (
    LINES_PER_INTERVAL_MAX,
    LOG_INTERVAL_S,
    Complaints,
    sender_of,
)

LOG = logging.getLogger("test.complaints")


class Story:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.complaints = Complaints(LOG, "cell-1: ", lambda: self.now_s)

    def say(self, sender: str, kind: str = "BadSignature") -> None:
        self.complaints.say(kind, sender, 7, "not signed")


def test_each_sender_has_a_line_of_its_own_and_only_one(caplog: pytest.LogCaptureFixture) -> None:
    story = Story()
    for sender in ("node-1", "node-1", "node-2", "node-1", ""):
        story.say(sender)
    assert [record.getMessage() for record in caplog.records] == [
        "cell-1: message from node-1 (7 of this kind so far): not signed",
        "cell-1: message from node-2 (7 of this kind so far): not signed",
        "cell-1: message (7 of this kind so far): not signed",
    ]


def test_another_kind_of_trouble_is_news(caplog: pytest.LogCaptureFixture) -> None:
    story = Story()
    story.say("node-1")
    story.say("node-1", "tolerated")
    assert len(caplog.records) == 2


def test_after_a_while_it_is_said_again(caplog: pytest.LogCaptureFixture) -> None:
    story = Story()
    for at_s in (0.0, LOG_INTERVAL_S - 1, LOG_INTERVAL_S, LOG_INTERVAL_S + 1):
        story.now_s = at_s
        story.say("node-1")
    assert len(caplog.records) == 2


def test_a_flood_under_many_names_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    story = Story()
    for number in range(10 * LINES_PER_INTERVAL_MAX):
        story.say(f"node-{number}")
    assert len(caplog.records) == LINES_PER_INTERVAL_MAX


def test_every_message_says_whom_it_is_from() -> None:
    assert sender_of(Beat("node-1", 1, 1, "host-1", 0)) == "node-1"
    assert sender_of(Hello(Role.SCHEDULER, "ssched.scheduler.a", 1)) == "ssched.scheduler.a"
    assert sender_of(Release("c1", "node-1", "ssched.scheduler.b", "vm-1")) == "ssched.scheduler.b"
    assert sender_of(Resync("node-1", "ssched.scheduler.c", 1, 1)) == "ssched.scheduler.c"
    claim = Claim("c1", "node-1", "ssched.scheduler.d", "vm-1", {}, Usage())
    assert sender_of(claim) == "ssched.scheduler.d"
