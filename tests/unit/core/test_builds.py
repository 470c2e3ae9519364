# SPDX-License-Identifier: Apache-2.0
"""The end of a build is recorded by one scheduler."""

from __future__ import annotations

import pytest

from compute_agent.ends_of_builds import AGAIN_AFTER_S
from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.protocol.messages import BuildResult, Heartbeat, Hello, Role, Want
from tests.unit.core.scheduler_driver import CELL, ME, SchedulerDriver, of_kind

OTHER = "scheduler-b"


def ended(scheduler: str, node: str = "node-1", succeeded: bool = False) -> BuildResult:
    return BuildResult(node, 1, "vm-1", succeeded, "No more IP addresses", scheduler)


@pytest.fixture
def driver() -> SchedulerDriver:
    """Two schedulers are alive; the name of this one is the first."""
    driver = SchedulerDriver().with_agents("node-1")
    driver.hear(Hello(Role.SCHEDULER, OTHER, 1, "", "", Want.NOTHING))
    assert min(ME, OTHER) == ME
    return driver


def test_the_scheduler_that_placed_the_server_records_its_end(driver: SchedulerDriver) -> None:
    [record] = of_kind(ef.RecordBuild, driver.hear(ended(ME)))

    assert isinstance(record, ef.RecordBuild)
    assert (record.node, record.host, record.consumer) == ("node-1", "host-1", "vm-1")
    assert (record.succeeded, record.reason) == (False, "No more IP addresses")
    assert driver.core.counters()["builds_recorded"] == 1


def test_another_one_does_not(driver: SchedulerDriver) -> None:
    assert of_kind(ef.RecordBuild, driver.hear(ended(OTHER))) == []


@pytest.mark.parametrize("scheduler", ["", "scheduler-that-has-left"])
def test_without_that_scheduler_the_first_one_does(driver: SchedulerDriver, scheduler: str) -> None:
    assert len(of_kind(ef.RecordBuild, driver.hear(ended(scheduler)))) == 1


def test_a_node_that_is_not_known_has_no_records(driver: SchedulerDriver) -> None:
    assert of_kind(ef.RecordBuild, driver.hear(ended(ME, node="node-9"))) == []


def test_an_end_that_arrives_again_is_recorded_once(driver: SchedulerDriver) -> None:
    first, second = (BuildResult("node-1", 1, "vm-1", False, "full", ME, number) for number in (1, 2))

    found = [len(of_kind(ef.RecordBuild, driver.hear(each))) for each in (first, first, second, first)]

    assert found == [1, 0, 1, 0], "the second end is that of another attempt"


def test_an_end_whose_scheduler_was_lost_is_recorded_by_another_one(driver: SchedulerDriver) -> None:
    end = BuildResult("node-1", 1, "vm-1", True, "", OTHER, 1)
    assert of_kind(ef.RecordBuild, driver.hear(end)) == []

    driver.give(ev.ChannelChanged(CELL, True))
    driver.wait(AGAIN_AFTER_S)

    assert len(of_kind(ef.RecordBuild, driver.hear(end))) == 1


def test_the_ends_that_a_heartbeat_carries_are_recorded_like_those_of_their_own_messages(
    driver: SchedulerDriver,
) -> None:
    # given an end that was recorded, and one whose message was lost
    recorded, lost = (BuildResult("node-1", 1, server, False, "full", ME, n) for n, server in enumerate(("a", "b"), 1))
    driver.hear(recorded)
    # when a heartbeat carries both
    effects = driver.hear(Heartbeat("node-1", 1, 1, "host-1", 0, 0, (recorded, lost)))
    # then the second one is recorded, with a cause of its own
    [record] = of_kind(ef.RecordBuild, effects)
    assert isinstance(record, ef.RecordBuild)
    assert (record.consumer, record.cause) == ("b", "build of b")


def test_ends_in_the_heartbeat_of_a_second_agent_are_not_recorded(driver: SchedulerDriver) -> None:
    # given an agent of another host that reports for the same node
    end = BuildResult("node-1", 1, "vm-1", False, "full", ME, 1)

    effects = driver.hear(Heartbeat("node-1", 1, 1, "another-host", 0, 0, (end,)))

    assert of_kind(ef.RecordBuild, effects) == []
