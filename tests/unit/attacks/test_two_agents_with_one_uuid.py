# SPDX-License-Identifier: Apache-2.0
"""A machine was cloned with its /var/lib/nova: the agents of two hosts speak for one compute node.

Host keys are off.  The database says whose node it is, so the row stays that host's, and the operator is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.protocol.messages import Heartbeat, Hello, Increment, Leave, Resync, Role, agent_address
from shared_scheduler.service.inspection import status_of_core
from shared_scheduler.table.row import Freshness
from tests.unit.core.scheduler_driver import CELL, SchedulerDriver, host_of, only_claim, snapshot
from tests.unit.service.test_notices import Clock, notices_of

NODE, OWN, CLONE = "node-1", host_of("node-1"), "compute-clone"
#: the copy began later
EPOCH, LATER = 5, 9
HEARTBEAT_S = 18.0


def listed() -> SchedulerDriver:
    driver = SchedulerDriver().with_agents(NODE, epoch=EPOCH, vcpus=4)
    driver.give(ev.NodesListed(CELL, {NODE: OWN}, frozenset(), driver.now))
    return driver


def clone_begins(driver: SchedulerDriver) -> None:
    driver.hear(
        Hello(Role.AGENT, agent_address(CLONE), LATER, NODE, CLONE),
        replace(snapshot(NODE, epoch=LATER, vcpus=64), host=CLONE),
        Increment(NODE, LATER, 2, {"cn.vcpus_used": 60}),
    )


def both_speak(driver: SchedulerDriver, for_s: float) -> list[ef.Effect]:
    effects: list[ef.Effect] = []
    for _ in range(int(for_s / HEARTBEAT_S)):
        effects += driver.wait(HEARTBEAT_S)
        known = driver.core.nodes.get(NODE)
        assert known is not None and known.window.sequence is not None
        driver.hear(Heartbeat(NODE, EPOCH, known.window.sequence, OWN, driver.table.digest(NODE)))
        driver.hear(Heartbeat(NODE, LATER, 2, CLONE, 0), Increment(NODE, LATER, 3, {"cn.vcpus_used": 61}))
    return effects


def resyncs(effects: Sequence[ef.Effect]) -> list[Resync]:
    return [each.message for each in effects if isinstance(each, ef.Send) and isinstance(each.message, Resync)]


def test_the_row_stays_that_of_the_host_in_the_database() -> None:
    driver = listed()
    before = driver.table.describe(NODE)

    clone_begins(driver)
    effects = both_speak(driver, 300.0)
    driver.hear(Leave(NODE, LATER, 3))

    assert driver.table.describe(NODE) == before
    assert driver.table.freshness(NODE) is Freshness.FRESH
    assert resyncs(effects) == []
    assert only_claim(driver.ask()).seen_epoch == EPOCH


def test_the_log_names_both_hosts(caplog: pytest.LogCaptureFixture) -> None:
    driver, clock = listed(), Clock()
    notices = notices_of(driver, clock)
    clone_begins(driver)
    both_speak(driver, 60.0)

    for _ in range(3):
        notices.log_new()

    (line,) = caplog.messages
    assert f"node {NODE} of host {OWN}: an agent of host {CLONE}" in line
    (told,) = status_of_core(driver.now, driver.core)["second_agents"]
    assert (told["node"], told["host"], told["other_host"]) == (NODE, OWN, CLONE)
    assert driver.core.counters()["messages_of_second_agents"] == 3 + 2 * 3


def test_the_agent_of_the_host_takes_over_if_the_copy_was_heard_first() -> None:
    """A scheduler that starts hears the copy before it has read the database."""
    driver = SchedulerDriver()
    clone_begins(driver)
    driver.give(ev.NodesListed(CELL, {NODE: OWN}, frozenset(), driver.now - 1))

    effects = driver.hear(Heartbeat(NODE, LATER, 2, CLONE, 0))

    assert resyncs(effects) == []
    driver.hear(snapshot(NODE, epoch=EPOCH, vcpus=4))  # its epoch is older, and nothing of the copy is left
    driver.hear(Increment(NODE, LATER, 3, {"cn.vcpus_used": 61}))
    assert driver.table.describe(NODE)["host"] == OWN
    assert driver.table.freshness(NODE) is Freshness.FRESH


def test_a_copy_with_the_same_host_name_is_logged() -> None:
    driver = listed()
    driver.hear(snapshot(NODE, epoch=LATER))

    for _ in range(5):
        driver.wait(HEARTBEAT_S)
        driver.hear(Heartbeat(NODE, EPOCH, 1, OWN, 0), Heartbeat(NODE, LATER, 1, OWN, driver.table.digest(NODE)))

    (told,) = status_of_core(driver.now, driver.core)["second_agents"]
    assert told["other_host"] == OWN


def test_a_restart_and_a_move_are_not_logged() -> None:
    driver = listed()
    driver.hear(snapshot(NODE, epoch=LATER), Heartbeat(NODE, EPOCH, 1, OWN, 0))
    for _ in range(5):
        driver.wait(HEARTBEAT_S)
        driver.hear(Heartbeat(NODE, LATER, 1, OWN, driver.table.digest(NODE)))

    driver.hear(replace(snapshot(NODE, epoch=LATER + 1), host="compute-new"))
    driver.wait(10.0)
    driver.give(ev.NodesListed(CELL, {NODE: "compute-new"}, frozenset({NODE}), driver.now))
    driver.hear(replace(snapshot(NODE, epoch=LATER + 1), host="compute-new"))
    driver.wait(60.0)

    assert status_of_core(driver.now, driver.core)["second_agents"] == []
    assert driver.table.describe(NODE)["host"] == "compute-new"


def test_after_a_move_the_agent_of_the_old_host_does_not_speak_for_the_node_any_more() -> None:
    driver = listed()
    driver.hear(Heartbeat(NODE, EPOCH, 1, OWN, driver.table.digest(NODE)))
    driver.give(ev.NodesListed(CELL, {NODE: "compute-new"}, frozenset({NODE}), driver.now))

    # when the old one is still up, and publishes a change; increments do not name a host
    driver.hear(Heartbeat(NODE, EPOCH, 1, OWN, driver.table.digest(NODE)), Increment(NODE, EPOCH, 2, {"cn.vcpus": 64}))

    assert driver.table.view(NODE).leaves["cn.vcpus"] == 4
    assert driver.table.freshness(NODE) is not Freshness.FRESH


def test_what_is_remembered_of_copies_is_bounded_and_ends() -> None:
    driver = listed()
    for number in range(1000):
        driver.hear(Heartbeat(NODE, LATER + number, 1, f"compute-{number}", 0))
    assert len(status_of_core(driver.now, driver.core)["second_agents"]) <= 1

    driver.wait(3600.0)

    assert status_of_core(driver.now, driver.core)["second_agents"] == []
