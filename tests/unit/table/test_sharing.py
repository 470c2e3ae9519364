# SPDX-License-Identifier: Apache-2.0
"""Resources that other trees share with a node: found by aggregates, and counted once."""

from __future__ import annotations

from shared_scheduler.model.providers import SHARING_TRAIT, Provider
from shared_scheduler.model.resources import Inventory
from shared_scheduler.protocol.messages import Consumer, Usage
from shared_scheduler.table.host_table import HostTable
from tests.unit.core.scheduler_driver import node_leaves

POOL = Provider(
    "pool", inventories={"DISK_GB": Inventory(1000)}, traits=frozenset({SHARING_TRAIT}),
    aggregates=frozenset({"storage"}),
)  # fmt: skip
TAKEN = {"node-1": {"VCPU": 1}, "pool": {"DISK_GB": 10}}


def table_of(*aggregates: str) -> HostTable:
    """One host without a disk of its own, in these aggregates of Placement."""
    table = HostTable()
    table.upsert("node-1", "cell", "host-1", "host-1")
    load(table, {}, *aggregates)
    return table


def load(table: HostTable, consumers: dict[str, Consumer], *aggregates: str) -> None:
    leaves = node_leaves("node-1", 4, 8192)
    root = leaves["rp.node-1"]
    assert isinstance(root, dict)
    root |= {"inventories": {"VCPU": [4, 0, 1, 4, 1, 1.0]}, "aggregates": list(aggregates)}
    table.load("node-1", leaves, consumers)


def vcpus_used(table: HostTable) -> int:
    return table.view("node-1").used.get("node-1", {}).get("VCPU", 0)


def test_a_node_uses_resources_shared_by_an_aggregate() -> None:
    table = table_of("storage")
    table.set_sharing({"pool": POOL})
    assert table.sharing_with("node-1") == (POOL,)
    assert table.view("node-1").other_provider_classes == {"DISK_GB"}


def test_a_node_of_another_aggregate_does_not() -> None:
    table = table_of("another")
    table.set_sharing({"pool": POOL})
    assert table.sharing_with("node-1") == ()
    assert not table.view("node-1").other_provider_classes


def test_resources_that_are_not_shared_any_more_are_forgotten() -> None:
    table = table_of("storage")
    table.set_sharing({"pool": POOL})
    table.set_sharing({})
    assert not table.view("node-1").other_provider_classes


def test_a_node_owns_its_tree_and_nothing_that_is_shared() -> None:
    table = table_of("storage")
    assert table.owns("node-1", {"node-1": {}})
    assert not table.owns("node-1", TAKEN)


def test_a_claim_on_shared_storage_is_counted_once_when_its_node_shows_its_part() -> None:
    """A node's tree is all that is read of its consumers: what they take elsewhere is not in it."""
    table = table_of("storage")
    table.set_sharing({"pool": POOL})
    table.assume("node-1", "claim", "server", TAKEN, Usage(1, 0, 0, 1, 0))
    table.confirm("claim")
    assert vcpus_used(table) == 1
    load(table, {"server": Consumer({"node-1": {"VCPU": 1}}, True)}, "storage")
    assert vcpus_used(table) == 1
    assert table.is_shown("claim")
