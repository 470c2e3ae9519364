# SPDX-License-Identifier: Apache-2.0
"""Derived data of rows that change, are removed, or come again."""

from __future__ import annotations

import pytest

from shared_scheduler.model.providers import SHARING_TRAIT, Provider
from shared_scheduler.model.resources import Inventory
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.messages import Consumer, Leaf, Usage
from shared_scheduler.table import columns as columns_module
from shared_scheduler.table.columns import BitColumns, ColumnSet
from shared_scheduler.table.group_members import GroupMembers
from shared_scheduler.table.host_columns import RoomColumns
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import CODE_OF_CLOSED, Exclusion, Freshness
from tests.unit.core.scheduler_driver import node_leaves

CELL_LEAF: dict[str, Leaf] = {
    "id": 0, "socket": None, "cpuset": [0, 1], "pcpuset": [2, 3], "siblings": [], "memory": 4096, "mempages": [],
    "network_metadata": {"physnets": [], "tunneled": False},
}  # fmt: skip


def table_with(*nodes: str, host: str = "", **more: Leaf) -> HostTable:
    """Rows with an agent and a service that takes servers."""
    table = HostTable()
    for node in nodes:
        table.set_service(ServiceFacts(host or node))
        table.upsert(node, "cell", host or node, node)
        table.load(node, node_leaves(node, 4, 8192, **more), {}, {}, epoch=1, sequence=1)
        table.set_freshness(node, Freshness.FRESH)
    return table


def closed(table: HostTable, node: str) -> int:
    return int(table.columns.closed.array[table.slot_of(node)])


def used(table: HostTable, node: str, provider: str) -> dict[str, int]:
    return dict(table.view(node).used.get(provider, {}))


def test_a_host_of_which_one_node_is_left_is_not_crowded() -> None:
    table = table_with("node-1", "node-2", host="host")
    assert [len(slots) for slots in table.crowded()] == [2]
    table.remove("node-1")
    assert list(table.crowded()) == []
    table.remove("node-2")
    assert list(table.crowded()) == []


def test_other_sharing_providers_are_a_change_of_every_row() -> None:
    table = table_with("node-1")
    before = table.static_generation
    shared = Provider("storage", inventories={"DISK_GB": Inventory(100)}, traits=frozenset({SHARING_TRAIT}))
    table.set_sharing({"storage": shared})
    assert table.static_generation > before


def test_a_node_whose_first_numbers_are_an_increment_is_considered_then() -> None:
    # given an agent that has published before nova-compute had any numbers
    table = table_with("node-1")
    leaves = node_leaves("node-1", 4, 8192)
    del leaves["cn.free_disk_gb"]
    table.load("node-1", leaves, {}, epoch=1, sequence=1)
    assert closed(table, "node-1") == CODE_OF_CLOSED[Exclusion.NEVER_REPORTED]
    # when the numbers follow
    table.apply("node-1", {"cn.free_disk_gb": 100}, {}, {}, epoch=1, sequence=2)
    assert closed(table, "node-1") == 0
    # and when they vanish again
    table.apply("node-1", {"cn.free_disk_gb": None}, {}, {}, epoch=1, sequence=3)
    assert closed(table, "node-1") == CODE_OF_CLOSED[Exclusion.NEVER_REPORTED]


def test_a_name_that_nobody_has_is_kept_if_the_next_row_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a bit column that is full, and names that no row has any more
    monkeypatch.setattr(columns_module, "NAMES_MAX", 64)
    bits = BitColumns(ColumnSet())
    names = [f"CUSTOM_{number}" for number in range(64)]
    bits.put(0, frozenset(names))
    bits.put(0, frozenset(names[:1]))
    # when another row has one of them, and two new ones
    bits.put(1, frozenset({names[5], "CUSTOM_NEW", "CUSTOM_NEWER"}))
    # then it has all three
    assert bits.having_all(frozenset({names[5], "CUSTOM_NEW", "CUSTOM_NEWER"}), 2).tolist() == [False, True]


def test_a_class_whose_last_row_has_lost_it_is_unused() -> None:
    rooms = RoomColumns(ColumnSet())
    for _ in range(3):
        rooms.put_units(0, 1, 1, True)
    rooms.put_units(0, 1, 1, False)
    assert rooms.is_unused


def test_a_removed_host_leaves_no_kind_and_no_count() -> None:
    table = table_with("node-1", "node-2")
    table.set_service(ServiceFacts("node-2", disabled=True))
    assert (table.columns.down_count, len(table.columns.devices)) == (1, 1)
    table.remove("node-2")
    assert table.columns.down_count == 0
    table.remove("node-1")
    assert (table.columns.down_count, len(table.columns.devices), len(table.columns.hypervisors)) == (0, 0, 0)


def test_a_snapshot_shows_the_cells_of_its_node() -> None:
    cells: list[Leaf] = [CELL_LEAF]
    table = table_with("node-1", **{"numa.static": cells, "numa.0": [0, 0, "0", {}]})
    leaves = {**node_leaves("node-1", 4, 8192), "numa.static": cells, "numa.0": [0, 0, "0", {}]}
    table.load("node-1", leaves, {}, {}, epoch=1, sequence=2)
    assert table.columns.numa.cells.array[table.slot_of("node-1")] == 1


def test_what_a_consumer_took_of_another_provider_is_free_when_it_leaves() -> None:
    table = table_with("node-1")
    held = Consumer({"node-1": {"VCPU": 1}, "gpu": {"VGPU": 2}}, True)
    table.apply("node-1", {}, {"vm-1": held}, {}, epoch=1, sequence=2)
    assert used(table, "node-1", "gpu") == {"VGPU": 2}
    table.apply("node-1", {}, {"vm-1": None}, {}, epoch=1, sequence=3)
    assert used(table, "node-1", "gpu") == {}


def test_a_claim_that_its_agent_has_ended_counts_no_more_after_the_next_increment_either() -> None:
    table = table_with("node-1")
    table.assume("node-1", "c1", "vm-1", {"node-1": {"VCPU": 2}}, Usage(2, 512, 1, 1, 1))
    assert used(table, "node-1", "node-1") == {"VCPU": 2}
    table.apply("node-1", {}, {}, {"c1": None}, epoch=1, sequence=2)
    assert used(table, "node-1", "node-1") == {}

    table.apply("node-1", {"cn.running_vms": 1}, {}, {}, epoch=1, sequence=3)

    assert used(table, "node-1", "node-1") == {}


def test_the_place_that_closes_a_gap_is_found_again() -> None:
    groups = GroupMembers()
    for slot, server in enumerate(("vm-1", "vm-2", "vm-3"), 1):
        groups.add("group", server, slot)
    groups.discard("group", "vm-1", 1)
    assert sorted(groups.slots("group", besides={"vm-3"})) == [2]
    groups.discard("group", "vm-3", 3)
    assert groups.slots("group", besides={"nobody"}).tolist() == [2]
