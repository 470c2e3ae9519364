# SPDX-License-Identifier: Apache-2.0
"""Many agents that fall silent together, as when a broker stops, do not make each scheduler read all nodes at once.

Each read costs Nova's database, Placement and the scheduler milliseconds, and most of these agents are heard again.
"""

from __future__ import annotations

from collections.abc import Sequence

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.protocol.limits import SILENT_READS_BURST, SILENT_READS_PER_S
from tests.unit.core.scheduler_driver import SchedulerDriver, host_of, of_kind

SECONDS = 5
NODES = [f"node-{number}" for number in range(int(SILENT_READS_BURST + SECONDS * SILENT_READS_PER_S))]


def with_silent_agents() -> tuple[SchedulerDriver, Sequence[ef.RefreshNode]]:
    """A scheduler whose agents have all fallen silent, and the reads that it wants."""
    driver = SchedulerDriver(silent_after_s=10.0).without_agents(*NODES).with_agents(*NODES)
    return driver, of_kind(ef.RefreshNode, driver.wait(10.1))


def test_few_are_read_at_once_and_the_others_in_turn() -> None:
    _, reads = with_silent_agents()

    assert {read.node for read in reads} == set(NODES)
    due_s = [read.in_s for read in reads]
    assert due_s == sorted(due_s)
    assert sum(in_s == 0 for in_s in due_s) == SILENT_READS_BURST
    for second in range(SECONDS):
        assert sum(second < in_s <= second + 1 for in_s in due_s) == SILENT_READS_PER_S


def test_agents_that_fall_silent_later_are_read_at_once_again() -> None:
    driver, _ = with_silent_agents()
    driver.wait(SECONDS + SILENT_READS_BURST / SILENT_READS_PER_S)

    reads = of_kind(ef.RefreshNode, driver.with_agents("node-late").wait(10.1))

    assert [(read.node, read.in_s) for read in reads] == [("node-late", 0)]


def test_a_node_that_waits_for_its_turn_is_read_at_once_for_another_reason() -> None:
    driver, reads = with_silent_agents()
    last = reads[-1]
    assert last.in_s > 1

    reads = of_kind(ef.RefreshNode, driver.give(ev.ResyncOrdered(host_of(last.node), cause="order 1")))

    assert [(read.node, read.in_s) for read in reads] == [(last.node, 0)]
