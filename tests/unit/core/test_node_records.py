# SPDX-License-Identifier: Apache-2.0
"""What a scheduler learns of a node, and what it misses, is recorded in order and within bounds."""

from __future__ import annotations

from shared_scheduler.core.effects import NodeChange
from shared_scheduler.core.nodes import NODE_RECORDS_BURST
from shared_scheduler.protocol.limits import SILENT_AFTER_S
from shared_scheduler.protocol.messages import Increment, Snapshot
from tests.unit.core.scheduler_driver import SchedulerDriver


def recorded(driver: SchedulerDriver) -> list[tuple[NodeChange, int, int, int]]:
    """What has been recorded since the last call."""
    found = [(one.change, one.epoch, one.sequence, one.increments) for one in driver.node_records]
    driver.node_records.clear()
    return found


def increment(sequence: int) -> Increment:
    return Increment("node-1", 1, sequence, {}, {}, {})


def test_a_gap_and_the_snapshot_after_it_are_recorded_with_the_increments_before() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    assert [change for change, *_ in recorded(driver)] == [NodeChange.SNAPSHOT]
    driver.hear(increment(2), increment(3))
    assert recorded(driver) == [], "increments are counted"

    driver.hear(increment(7))
    driver.wait(10.0)
    gap, *again = recorded(driver)
    driver.hear(Snapshot("node-1", 1, 9, "host-1", {}, {}, {}, 0))

    assert gap == (NodeChange.RESYNC, 1, 3, 2)
    assert {change for change, *_ in again} <= {NodeChange.RESYNC}, "it may be asked for more than once"
    assert recorded(driver) == [(NodeChange.SNAPSHOT, 1, 9, 0)]


def test_a_silent_agent_is_recorded() -> None:
    driver = SchedulerDriver().with_agents("node-1")

    driver.wait(3 * SILENT_AFTER_S)

    assert recorded(driver)[-1][0] == NodeChange.SILENT


def test_a_fleet_that_reports_at_once_leaves_a_bounded_number_of_records() -> None:
    driver = SchedulerDriver()
    driver.hear(*(Snapshot(f"node-{n}", 1, 1, f"host-{n}", {}, {}, {}, 0) for n in range(NODE_RECORDS_BURST + 20)))

    assert len(recorded(driver)) == NODE_RECORDS_BURST
    assert driver.core.counters()["node_records_left_out"] == 20
