# SPDX-License-Identifier: Apache-2.0
"""Increments of numbers: the columns and the leaves hold the last value of each."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_scheduler.protocol.digest import digest_of
from shared_scheduler.protocol.messages import Usage
from shared_scheduler.table.host_table import HostTable
from tests.unit.table.test_host_table import NODE, column, node_leaves, room, table_with_one

BOOT = {
    "cn.vcpus_used": 3,
    "cn.memory_mb_used": 2048,
    "cn.free_ram_mb": 14336,
    "cn.local_gb_used": 30,
    "cn.free_disk_gb": 70,
    "stats.num_instances": 3,
    "stats.io_workload": 1,
    "stats.num_vm_active": 2,
}
COLUMNS = ("free_vcpus", "free_ram_mb", "free_disk_mb", "num_instances", "num_io_ops", "failed_builds")


def tell(table: HostTable, leaves: dict[str, Any]) -> None:
    sequence = table.version(NODE).sequence + 1
    table.apply(NODE, leaves, {}, {}, epoch=5, sequence=sequence)


def columns_of(table: HostTable) -> dict[str, float]:
    return {name: column(table, name) for name in COLUMNS}


def test_an_increment_of_a_boot_is_in_columns_and_leaves() -> None:
    table = table_with_one()
    tell(table, BOOT)
    assert columns_of(table) == {
        "free_vcpus": 8 * 2.0 - 3,
        "free_ram_mb": 14336,
        "free_disk_mb": 70 * 1024,
        "num_instances": 3,
        "num_io_ops": 1,
        "failed_builds": 0,
    }
    assert table.view(NODE).leaves == node_leaves() | BOOT


@pytest.mark.parametrize("odd", [None, "3", True, [3]])
def test_names_that_came_with_numbers_may_come_with_another_value(odd: Any) -> None:
    # given names that were applied with numbers twice, so that their effect is known
    table = table_with_one()
    tell(table, BOOT)
    tell(table, BOOT | {"cn.memory_mb_used": 4096})
    # when one of them has another value, or none
    tell(table, BOOT | {"cn.memory_mb_used": odd})
    # then the row and its size are as if the names were new
    fresh = table_with_one()
    tell(fresh, BOOT | {"cn.memory_mb_used": odd})
    assert table.digest(NODE) == fresh.digest(NODE)
    assert table.view(NODE).leaves == fresh.view(NODE).leaves
    assert columns_of(table) == columns_of(fresh)


def test_a_provider_of_which_only_the_generation_changes_is_no_number_of_a_boot() -> None:
    # given an increment with the provider's new generation, which changes nothing else
    table, name = table_with_one(), f"rp.{NODE}"
    provider = node_leaves()[name]
    tell(table, {name: provider | {"generation": 2}})
    # when the provider then comes with less memory
    less = provider["inventories"] | {"MEMORY_MB": [1024, 512, 1, 1024, 1, 1.0]}
    tell(table, {name: provider | {"generation": 3, "inventories": less}})
    # then its room is less
    assert room(table, "MEMORY_MB") == 512


def test_the_least_available_disk_still_bounds_the_free_disk() -> None:
    table = table_with_one(**{"cn.disk_available_least": 50})
    tell(table, {"cn.free_disk_gb": 70})
    assert column(table, "free_disk_mb") == 50 * 1024
    tell(table, {"cn.free_disk_gb": 40})
    assert column(table, "free_disk_mb") == 40 * 1024


def test_own_claims_are_consumed_from_the_numbers_of_an_increment() -> None:
    table = table_with_one()
    table.assume(NODE, "c1", "u1", {}, Usage(1, 512, 1, 1, 1))
    tell(table, BOOT)
    assert column(table, "free_ram_mb") == 14336 - 512
    assert column(table, "num_instances") == 4
    table.forget("c1")
    assert column(table, "free_ram_mb") == 14336


def test_a_node_in_a_reused_slot_inherits_no_numbers() -> None:
    table = table_with_one()
    tell(table, BOOT)
    table.remove(NODE)
    table.upsert("other", "cell1", "compute2", "compute2.example")
    assert dict(table.view("other").leaves) == {}


@pytest.mark.parametrize("value", [1.5, "7", None, 2**63, -(2**63) - 1, [1]])
def test_a_value_that_is_no_integer_is_kept_unchanged(value: Any) -> None:
    table = table_with_one()
    tell(table, BOOT)
    tell(table, BOOT | {"stats.num_vm_active": value})
    expected = node_leaves() | BOOT | {"stats.num_vm_active": value}
    expected = {name: leaf for name, leaf in expected.items() if leaf is not None}
    leaves = dict(table.view(NODE).leaves)
    assert leaves == expected
    assert type(leaves.get("stats.num_vm_active")) is type(value)


MOVED = {*BOOT, "cn.running_vms"} - {"stats.num_vm_active"}
numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300)
changes = st.dictionaries(st.sampled_from(sorted(MOVED)), numbers | st.none() | st.floats(0, 9), min_size=1)


@given(st.lists(changes, max_size=8))
def test_after_many_increments_each_leaf_has_its_last_value(told: list[Any]) -> None:
    table, expected = table_with_one(), node_leaves()
    for leaves in told:
        tell(table, leaves)
        expected |= leaves
    expected = {name: leaf for name, leaf in expected.items() if leaf is not None}
    anew = HostTable()
    anew.upsert(NODE, "cell1", "compute1", "compute1.example")
    anew.load(NODE, expected, {}, epoch=5, sequence=1)
    if "cn.free_disk_gb" in expected:
        assert columns_of(table) == columns_of(anew)
    assert table.digest(NODE) == digest_of(expected, {}, {})
