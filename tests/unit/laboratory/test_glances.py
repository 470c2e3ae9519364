# SPDX-License-Identifier: Apache-2.0
"""What a drill sees of a scheduler several times a second."""

from __future__ import annotations

from unittest.mock import call, patch

from shared_scheduler.core import events as ev
from tests.unit.core.scheduler_driver import CELL, SchedulerDriver, snapshot
from tools.laboratory.fire.scheduler import glance_at

NODES = [f"node-{number}" for number in range(5)]


def test_a_scheduler_is_whole_when_the_last_agent_was_heard() -> None:
    # given a scheduler that has read its nodes and joined the channel
    driver = SchedulerDriver().without_agents(*NODES)
    driver.give(ev.ChannelChanged(CELL, True))
    for node in NODES:
        assert glance_at(driver.core) == {"nodes": len(NODES), "fresh": False, "live": 1, "gaps": 0}
        driver.hear(snapshot(node))
    assert glance_at(driver.core)["fresh"]


def test_a_glance_at_a_scheduler_that_starts_reads_few_rows() -> None:
    # given a scheduler that has heard all agents but the first
    driver = SchedulerDriver().without_agents(*NODES).with_agents(*NODES[1:])
    with patch.object(driver.table, "freshness", wraps=driver.table.freshness) as read:
        glance_at(driver.core)
    assert read.mock_calls == [call(NODES[0])]
