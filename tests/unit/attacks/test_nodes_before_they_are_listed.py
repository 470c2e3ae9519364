# SPDX-License-Identifier: Apache-2.0
"""Until the database was read, only messages say which nodes there are.  A host names nodes that it does not have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.unlisted_nodes import PER_HOST_MAX
from shared_scheduler.model.leaf_validation import CLASSES_PER_NODE_MAX, TRAITS_PER_NODE_MAX
from shared_scheduler.protocol.limits import EPOCH_ASKED_MAX
from shared_scheduler.protocol.messages import Heartbeat, Increment, Leaf, Snapshot
from shared_scheduler.table.host_columns import CLASSES_MAX
from shared_scheduler.table.row import Freshness
from tests.unit.core.scheduler_driver import (
    CELL,
    SchedulerDriver,
    host_of,
    node_leaves,
    node_read,
    of_kind,
    only_claim,
    resyncs_in,
    snapshot,
)

EVIL = host_of("node-1")
REAL = {"node-1": EVIL, "node-2": host_of("node-2")}


def listed(driver: SchedulerDriver, hosts: Mapping[str, str]) -> ev.NodesListed:
    return ev.NodesListed(CELL, dict(hosts), frozenset(), driver.now)


def driver_of_two(**settings: int) -> SchedulerDriver:
    driver = SchedulerDriver(**settings).with_agents(*REAL)
    driver.give(listed(driver, REAL))
    return driver


def phantom(number: int, host: str = EVIL, **root: list[str] | dict[str, Leaf]) -> Snapshot:
    """A node that is in no database, whose root provider has these facts."""
    node = f"phantom-{number}"
    leaves = node_leaves(node, 4, 8192)
    provider = leaves[f"rp.{node}"]
    assert isinstance(provider, dict)
    leaves[f"rp.{node}"] = provider | root  # type: ignore[operator]
    return replace(snapshot(node), host=host, leaves=leaves)


def of_node_2(**root: Leaf) -> Snapshot:
    """A new snapshot of the honest node."""
    provider = snapshot("node-2").leaves["rp.node-2"]
    assert isinstance(provider, dict)
    return snapshot("node-2", epoch=2, **{"rp__node-2": provider | root})


def test_traits_of_phantoms_leave_room_for_those_of_others() -> None:
    driver = driver_of_two()

    for number in range(20):
        driver.hear(phantom(number, traits=[f"CUSTOM_{number}_{n}" for n in range(TRAITS_PER_NODE_MAX - 1)]))
    driver.hear(of_node_2(traits=["CUSTOM_GPU"]))

    columns = driver.table.columns
    assert columns.traits.having_all(frozenset({"CUSTOM_GPU"}), columns.high).sum() == 1


def test_classes_of_phantoms_leave_room_for_those_of_others() -> None:
    driver = driver_of_two()
    inventories = snapshot("node-2").leaves["rp.node-2"]["inventories"]  # type: ignore[index, call-overload]
    some: Leaf = inventories["VCPU"]  # type: ignore[index, call-overload]

    for number in range(2 * CLASSES_MAX // CLASSES_PER_NODE_MAX):
        driver.hear(phantom(number, inventories={f"CUSTOM_{number}_{n}": some for n in range(CLASSES_PER_NODE_MAX)}))
    driver.hear(of_node_2(inventories=inventories | {"CUSTOM_GPU": some}))  # type: ignore[operator]

    assert driver.table.freshness("node-2") is Freshness.FRESH
    assert "CUSTOM_GPU" in driver.table.columns.rooms


def test_a_node_is_not_in_thousands_of_aggregates() -> None:
    driver = driver_of_two()
    provider = snapshot("node-1").leaves["rp.node-1"]
    assert isinstance(provider, dict)

    many: Leaf = [f"aggregate-{n}" for n in range(4000)]
    driver.hear(snapshot("node-1", epoch=2, **{"rp__node-1": provider | {"aggregates": many}}))

    assert driver.core.counters()["messages_unusable"] == 1
    assert len(driver.table.columns.aggregates) == 0


def test_a_node_of_the_database_finds_a_place_among_phantoms() -> None:
    driver = driver_of_two(nodes_max=100)
    for number in range(200):
        driver.hear(phantom(number, host=f"invented-{number}"))

    driver.give(node_read("node-3"))

    assert driver.core.nodes.get("node-3") is not None
    assert "node-3" in driver.table


def test_phantoms_make_decisions_read_the_database_once_in_a_while() -> None:
    driver = driver_of_two()
    driver.hear(phantom(1))
    assert driver.core.nodes.has_unlisted  # it may be a new node: the next decision reads the database

    driver.wait(1.0)
    driver.give(listed(driver, REAL))
    for number in range(100):
        driver.hear(phantom(number), Increment(f"phantom-{number}", 1, 2))

    assert not driver.core.nodes.has_unlisted


def test_messages_that_name_no_host_bring_no_new_nodes() -> None:
    driver = driver_of_two()

    driver.hear(*(Increment(f"phantom-{number}", 1, 2) for number in range(100)))

    assert len(driver.core.nodes) == len(REAL)


@pytest.mark.parametrize("epoch", [1, 7, EPOCH_ASKED_MAX])
def test_an_impostor_that_speaks_first_leaves_nothing_behind(epoch: int) -> None:
    # given a host that speaks of a node before the database was read, with another amount of everything
    driver = SchedulerDriver().with_agents("node-1")
    driver.hear(replace(snapshot("node-2", epoch=epoch, sequence=50, vcpus=64, free_mb=8000), host=EVIL))
    # when the database tells whose node it is
    driver.with_agents()
    driver.give(listed(driver, REAL))
    # then the row of the impostor is gone, and its host is never answered
    assert "node-2" not in driver.table
    # and the agent of the node is believed at once, although its epoch is older
    driver.with_agents("node-2", vcpus=1, free_mb=1024)
    row = driver.table.row(driver.table.slot_of("node-2") or 0)
    assert row is not None
    assert (row.host, row.freshness, row.leaves["cn.vcpus"]) == (REAL["node-2"], Freshness.FRESH, 1)


def test_the_agent_of_a_claimed_node_is_asked_when_it_is_heard() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    driver.hear(replace(snapshot("node-2", epoch=7), host=EVIL))
    driver.give(listed(driver, REAL))

    driver.hear(Heartbeat("node-2", 3, 9, REAL["node-2"], 0))

    assert "node-2" in resyncs_in(driver.wait(1.0))


def test_the_host_of_a_node_that_no_database_has_shown_is_not_known() -> None:
    """Otherwise the true agent would be called compromised."""
    driver = SchedulerDriver().with_agents("node-1")
    driver.hear(replace(snapshot("node-2"), host=EVIL))

    assert driver.core.nodes.owner_of("node-2") == ""
    driver.give(listed(driver, REAL))
    assert driver.core.nodes.owner_of("node-2") == REAL["node-2"]


def test_a_new_node_is_selected_when_the_database_has_it_although_others_were_invented() -> None:
    driver = driver_of_two()
    driver.hear(phantom(1))
    driver.wait(1.0)
    driver.give(listed(driver, REAL))

    driver.with_agents("node-3", vcpus=8, free_mb=8192)
    driver.give(listed(driver, {**REAL, "node-3": host_of("node-3")}))

    assert only_claim(driver.ask()).node == "node-3"


def test_a_new_node_is_looked_for_at_once_and_selectable_before_any_decision() -> None:
    driver = driver_of_two()

    [search] = of_kind(ef.RefreshNode, driver.hear(snapshot("node-3", vcpus=8, free_mb=8192)))
    assert (search.cell, search.node) == ("", "node-3")
    assert driver.table.freshness("node-3") is Freshness.STALE

    driver.give(node_read("node-3"))
    assert driver.table.freshness("node-3") is Freshness.FRESH


def test_a_node_of_another_cell_is_that_cells() -> None:
    """Otherwise claims for it would go to the host that has named it first."""
    driver = driver_of_two()
    driver.hear(replace(snapshot("node-3"), host=EVIL))

    driver.give(node_read("node-3", cell="cell-2"))

    known = driver.core.nodes.get("node-3")
    assert known is not None
    assert (known.cell, known.host) == ("cell-2", host_of("node-3"))
    assert driver.table.freshness("node-3") is Freshness.PROVISIONAL


def test_phantoms_are_looked_for_a_few_times_only() -> None:
    driver = driver_of_two()

    effects = driver.hear(*(phantom(number) for number in range(100)))

    assert len(of_kind(ef.RefreshNode, effects)) == PER_HOST_MAX
