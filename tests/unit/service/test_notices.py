# SPDX-License-Identifier: Apache-2.0
"""The counters of the core are logged for operators, but not one line for each message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.model.leaves import AGENT_RELEASE
from shared_scheduler.release import release
from shared_scheduler.service.engine import Engine
from shared_scheduler.service.notices import AGAIN_S, Notices
from tests.unit.core.scheduler_driver import SchedulerDriver, only_claim, request, snapshot


class Clock:
    """Blocks until it is set."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class InspectedEngine:
    """In the engine's place."""

    def __init__(self, core: SchedulerCore) -> None:
        self._core = core

    def inspect(self, question: Callable[[SchedulerCore], Any]) -> Any:
        return question(self._core)


def notices_of(driver: SchedulerDriver, clock: Clock, nodes_max: int = 1) -> Notices:
    return Notices(cast(Engine, InspectedEngine(driver.core)), nodes_max, clock)


def test_rejected_nodes_are_logged_at_intervals_with_the_option(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # given a scheduler that keeps one node, and has it
    clock, driver = Clock(), SchedulerDriver(nodes_max=1).with_agents("node-1")
    notices = notices_of(driver, clock)
    notices.log_new()
    assert caplog.messages == []
    # when a second one speaks, and goes on speaking
    for _ in range(3):
        driver.hear(snapshot("node-2"))
        notices.log_new()
    # then that is one line, which says what to do
    (line,) = caplog.messages
    assert "more compute nodes than this scheduler keeps (1): 1 messages" in line
    assert "Raise [shared_scheduler] nodes_max" in line
    # and another one after a while, with all that came meanwhile
    clock.now += AGAIN_S
    notices.log_new()
    assert "2 messages and rows" in caplog.messages[1]


def test_rejected_rows_of_the_databases_are_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    driver = SchedulerDriver(nodes_max=1).without_agents("node-1", "node-2")
    notices_of(driver, Clock()).log_new()
    assert "1 messages and rows of further nodes were dropped" in caplog.messages[0]


def test_a_node_that_refuses_again_and_again_is_named(caplog: pytest.LogCaptureFixture) -> None:
    # given a node that refuses every claim
    driver = SchedulerDriver(refusals_max=2).with_agents("node-1")
    notices = notices_of(driver, Clock())
    for server in ("server-1", "server-2"):
        driver.refuse(only_claim(driver.ask(request(server))))
    # when it is left alone, it is named, and once
    notices.log_new()
    notices.log_new()
    (line,) = caplog.messages
    assert "refusals_max" in line and line.endswith("at present: node-1")


def test_peers_of_another_release_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    # given two agents of an older release, and one of ours
    clock, driver = Clock(), SchedulerDriver()
    notices = notices_of(driver, clock)
    driver.with_agents("n1", "n2", **{AGENT_RELEASE: "0.0.9"}).with_agents("n3", **{AGENT_RELEASE: release()})

    # when it looks again and again
    for _ in range(3):
        clock.now += AGAIN_S
        notices.log_new()

    # then that is one line
    (line,) = caplog.messages
    assert f"This scheduler has release {release()}, and there are 2 agents 0.0.9" in line


def test_peers_of_one_release_are_not_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    clock, driver = Clock(), SchedulerDriver().with_agents("n3", **{AGENT_RELEASE: release()})
    notices = notices_of(driver, clock)

    clock.now += AGAIN_S
    notices.log_new()

    assert caplog.messages == []
