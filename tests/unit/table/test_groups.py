# SPDX-License-Identifier: Apache-2.0
"""The table knows the members of server groups by host, as they come and go."""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.protocol.digest import digest_of
from shared_scheduler.protocol.messages import Consumer, Usage
from shared_scheduler.table.host_table import HostTable
from tests.unit.table.test_host_table import node_leaves

SMALL = Usage(1, 512, 1, 1, 1)


def member(node: str, group: str = "web") -> Consumer:
    return Consumer({node: {"VCPU": 1}}, True, group)


def table_with(**consumers: Consumer) -> HostTable:
    """Two nodes; the consumers are on the first."""
    table = HostTable()
    for node in ("node-1", "node-2"):
        table.upsert(node, "cell", f"host-of-{node}", node)
        held = consumers if node == "node-1" else {}
        table.load(node, node_leaves(node), held, epoch=1, sequence=1)
    return table


def homes(table: HostTable, group: str = "web") -> dict[str, int]:
    """Host -> members of the group."""
    return {table.host_at(slot): count for slot, count in table.members_at(table.groups.of(group)).items()}


def test_members_are_known_by_host() -> None:
    table = table_with(a=member("node-1"), b=member("node-1"), c=member("node-1", "other"), d=member("node-1", ""))
    assert homes(table) == {"host-of-node-1": 2}
    assert homes(table, "other") == {"host-of-node-1": 1}


def test_a_member_that_moves_is_at_both_ends_for_a_while() -> None:
    table = table_with(a=member("node-1"))
    table.apply("node-2", {}, {"a": member("node-2")}, {}, epoch=1, sequence=2)
    assert homes(table) == {"host-of-node-1": 1, "host-of-node-2": 1}
    table.apply("node-1", {}, {"a": None}, {}, epoch=1, sequence=2)
    assert homes(table) == {"host-of-node-2": 1}
    table.apply("node-2", {}, {"a": None}, {}, epoch=1, sequence=3)
    assert (homes(table), len(table.groups)) == ({}, 0)


def test_a_deleted_server_is_no_member_while_placement_has_its_allocations() -> None:
    table = table_with(a=member("node-1"))
    table.apply("node-1", {}, {"a": replace(member("node-1"), member=False)}, {}, epoch=1, sequence=2)
    assert (table.groups.of("web"), len(table.groups)) == (frozenset(), 0)
    # the agent reports its group still, and with it the digest of the node
    assert table.digest("node-1") == digest_of(node_leaves("node-1"), table.view("node-1").consumers, {})
    table.apply("node-1", {}, {"a": None}, {}, epoch=1, sequence=3)
    assert len(table.groups) == 0


def test_a_server_that_comes_back_is_a_member_again() -> None:
    left = replace(member("node-1"), member=False)
    table = table_with(a=left, b=left)
    table.apply("node-1", {}, {"a": member("node-1"), "b": member("node-1", "other")}, {}, epoch=1, sequence=2)
    assert (homes(table), homes(table, "other")) == ({"host-of-node-1": 1}, {"host-of-node-1": 1})


def test_a_group_that_is_learnt_later_is_added_to_what_was_known() -> None:
    table = table_with(a=member("node-1", ""))
    table.apply("node-1", {}, {"a": member("node-1")}, {}, epoch=1, sequence=2)
    assert homes(table) == {"host-of-node-1": 1}


def test_an_own_claim_counts_from_the_moment_it_is_assumed_until_it_is_forgotten() -> None:
    table = table_with()
    table.assume("node-2", "c1", "a", {"node-2": {"VCPU": 1}}, SMALL, group="web")
    assert homes(table) == {"host-of-node-2": 1}
    table.forget("c1")
    assert (homes(table), len(table.groups)) == ({}, 0)


def test_a_claim_that_the_base_shows_is_one_member() -> None:
    table = table_with()
    table.assume("node-2", "c1", "a", {"node-2": {"VCPU": 1}}, SMALL, group="web")
    table.accepted("c1", 1, 2)
    table.apply("node-2", {}, {"a": member("node-2")}, {"c1": "a"}, epoch=1, sequence=2)
    table.confirm("c1")
    assert homes(table) == {"host-of-node-2": 1}


def test_a_removed_node_removes_its_members() -> None:
    table = table_with(a=member("node-1"))
    table.remove("node-1")
    assert (homes(table), len(table.groups)) == ({}, 0)


def test_a_snapshot_replaces_the_groups_and_the_digest_covers_them() -> None:
    table = table_with(a=member("node-1"))
    consumers = {"a": member("node-1", "other")}
    table.load("node-1", node_leaves("node-1"), consumers, epoch=1, sequence=5)
    assert (homes(table), homes(table, "other")) == ({}, {"host-of-node-1": 1})
    assert table.digest("node-1") == digest_of(table.view("node-1").leaves, consumers, {})
