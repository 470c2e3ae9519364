# SPDX-License-Identifier: Apache-2.0
"""Differences of sources: every kind of difference is reported, and agreement reports nothing."""

from __future__ import annotations

from typing import Any

from shared_scheduler.service import source_differences
from shared_scheduler.service.source_differences import AGENT, DATABASE, PLACEMENT, SourceView

N1, N2 = "4b7c0e0a-0000-4000-8000-000000000001", "4b7c0e0a-0000-4000-8000-000000000002"
VM = "7d8f0000-0000-4000-8000-00000000000a"

ALLOCATION = ("allocation", VM, N1, "VCPU")
ROOM = ("inventory", N1, "VCPU")


def placement(**facts: Any) -> SourceView:
    nodes = {N1: {ALLOCATION: 2, ROOM: [4, 0, 1, 4, 1, 1.0], **facts}, N2: {}}
    return SourceView(PLACEMENT, frozenset({"allocation", "inventory"}), nodes)


def table(facts: dict[source_differences.Fact, Any], node: str = N1) -> SourceView:
    families = frozenset({"node", "allocation", "inventory", "number", "service"})
    return SourceView("table of sched1", families, {node: facts}, whole=True)


def test_sources_that_agree_have_no_difference() -> None:
    same = table({ALLOCATION: 2, ROOM: [4, 0, 1, 4, 1, 1.0]})
    assert source_differences.differences([placement(), same]) == []


def test_a_consumer_that_the_table_lacks_is_reported() -> None:
    [found] = source_differences.differences([placement(), table({ROOM: [4, 0, 1, 4, 1, 1.0]})])
    assert (found.fact, found.expected, found.value) == (ALLOCATION, 2, None)
    assert str(found) == f"{N1}: allocation {VM} {N1} VCPU: table of sched1 says nothing, placement says 2"


def test_a_flag_is_told_in_words() -> None:
    found = source_differences.SourceDifference(N1, ("member", VM), AGENT, True, DATABASE, None)
    assert str(found) == f"{N1}: member {VM}: nova database says nothing, agent says yes"


def test_lines_begin_with_the_name_of_the_host_if_a_source_has_it() -> None:
    database = SourceView(DATABASE, frozenset({"node"}), {N1: {("node",): "c1"}, N2: {}})
    lines = [f"{N1}: 5 VCPU allocated", f"{N2}: member {VM}: x"]
    hosts = source_differences.hosts_of([database])
    assert source_differences.with_hosts(lines, hosts) == [f"c1 ({N1}): 5 VCPU allocated", lines[1]]


def test_a_consumer_that_only_the_table_has_is_reported() -> None:
    ghost = ("allocation", "ghost", N1, "VCPU")
    [found] = source_differences.differences(
        [placement(), table({ALLOCATION: 2, ghost: 1, ROOM: [4, 0, 1, 4, 1, 1.0]})]
    )
    assert (found.fact, found.expected, found.value) == (ghost, None, 1)


def test_a_node_missing_in_a_complete_view_is_reported() -> None:
    database = SourceView(DATABASE, frozenset({"node"}), {N1: {("node",): "c1"}, N2: {("node",): "c2"}})
    agents = SourceView(AGENT, frozenset({"number"}), {N1: {}})
    [found] = source_differences.differences([database, agents, table({("node",): "c1"})])
    assert (found.node, found.source, found.value) == (N2, "table of sched1", None)


def test_an_agent_is_the_authority_otherwise_the_database() -> None:
    free = ("number", "cn.free_ram_mb")
    database = SourceView(DATABASE, frozenset({"number"}), {N1: {free: 100}, N2: {free: 100}})
    agents = SourceView(AGENT, frozenset({"number"}), {N1: {free: 60}})
    picture = SourceView("table", frozenset({"number"}), {N1: {free: 60}, N2: {free: 60}})
    found = source_differences.differences([database, agents, picture])
    assert [(d.node, d.authority, d.source) for d in found] == [
        (N1, AGENT, DATABASE),
        (N2, DATABASE, "table"),
    ]


def test_over_commit_is_reported() -> None:
    assert source_differences.overcommitted(placement()) == []
    third = {("allocation", "other", N1, "VCPU"): 3}
    full = SourceView(PLACEMENT, frozenset({"allocation"}), {N1: {**placement().nodes[N1], **third}})
    assert source_differences.overcommitted(full) == [f"{N1}: 5 VCPU allocated, the capacity is 4"]


def test_an_allocation_of_a_class_without_inventory_is_over_committed() -> None:
    bare = SourceView(PLACEMENT, frozenset({"allocation"}), {N1: {ALLOCATION: 1}})
    assert source_differences.overcommitted(bare) == [f"{N1}: 1 VCPU allocated, the capacity is 0"]


def test_an_allocation_without_an_owner_is_reported() -> None:
    assert source_differences.orphans(placement(), frozenset({VM})) == []
    [line] = source_differences.orphans(placement(), frozenset())
    assert VM in line and N1 in line
