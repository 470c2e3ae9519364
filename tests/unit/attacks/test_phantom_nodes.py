# SPDX-License-Identifier: Apache-2.0
"""A host claims nodes that no database has, or the node of another host."""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from tests.unit.core.scheduler_driver import CELL, SchedulerDriver, claims_in, host_of, only_claim, snapshot

REAL = {"node-1": host_of("node-1"), "node-2": host_of("node-2")}


def listed(driver: SchedulerDriver, hosts: dict[str, str]) -> ev.NodesListed:
    """The read of the cell's database begins now."""
    return ev.NodesListed(CELL, hosts, frozenset(), driver.now)


def driver_of_two() -> SchedulerDriver:
    driver = SchedulerDriver().with_agents(*REAL)
    driver.give(listed(driver, REAL))
    return driver


def haunt(driver: SchedulerDriver) -> None:
    """Forty nodes with more room than any other, in the name of a host that exists."""
    driver.hear(*(replace(snapshot(f"phantom-{n}", vcpus=64), host=REAL["node-1"]) for n in range(40)))


def test_a_phantom_is_never_selected() -> None:
    driver = driver_of_two()

    haunt(driver)

    assert only_claim(driver.ask()).node in REAL


def test_phantoms_are_forgotten_when_the_database_was_read() -> None:
    driver = driver_of_two()
    haunt(driver)
    driver.wait(1.0)

    driver.give(listed(driver, REAL))

    assert {known.node for known in driver.core.nodes} == REAL.keys()
    assert len(driver.table) == 2


def test_a_new_node_is_selected_when_the_database_has_it() -> None:
    driver = SchedulerDriver()
    driver.give(listed(driver, {}))
    driver.with_agents("node-3")
    assert not claims_in(driver.ask())

    driver.give(listed(driver, {"node-3": host_of("node-3")}))

    assert only_claim(driver.ask()).node == "node-3"


def test_a_node_that_was_heard_during_the_read_is_not_forgotten() -> None:
    driver = driver_of_two()
    read = listed(driver, REAL)
    driver.wait(1.0)
    driver.hear(snapshot("node-3"))

    driver.give(read)

    assert driver.core.nodes.get("node-3") is not None


def test_the_node_of_another_host_keeps_its_row_and_its_claims() -> None:
    driver = driver_of_two()
    claim = only_claim(driver.ask())
    before = driver.table.row(driver.table.slot_of(claim.node) or 0)

    driver.hear(replace(snapshot(claim.node, epoch=2), host="evil-host"))
    accepted = driver.accept(claim)

    row = driver.table.row(driver.table.slot_of(claim.node) or 0)
    assert row is not None and before is not None and row.host == before.host
    assert [one.cell for one in accepted if isinstance(one, ef.WriteAllocation)] == [CELL]
    assert driver.core.nodes.host_of(claim.node) == REAL[claim.node]
