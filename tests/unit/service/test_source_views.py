# SPDX-License-Identifier: Apache-2.0
"""The facts of a scheduler's table and of Nova's databases, as ``compare`` reads them."""

from __future__ import annotations

from typing import Any

from shared_scheduler.core.events import NodeRead
from shared_scheduler.service import source_views
from shared_scheduler.service.source_differences import DATABASE, SourceView, differences
from shared_scheduler.table.host_table import HostTable

NODE = "4b7c0e0a-0000-4000-8000-000000000001"


def table_of(name: str) -> SourceView:
    """A scheduler that has the node on host c1, by this name."""
    table = HostTable()
    table.upsert(NODE, "cell-1", "c1", name)
    row: dict[str, Any] = {**table.describe(NODE), "service": None}
    return source_views.of_table("sched1", [row])


def database_of(name: str) -> list[SourceView]:
    """Nova's databases, which have the node on host c1, by this name."""
    return source_views.of_database([NodeRead("cell-1", NODE, "c1", name, {}, {}, frozenset(), 0.0)], {}, frozenset())


def test_a_node_that_a_table_names_otherwise_is_reported() -> None:
    # given a scheduler that answers with a name that nova-compute does not have
    views = [*database_of("c1.example.org"), table_of("c1")]
    # then
    [found] = differences(views)
    assert (found.node, found.authority, found.source) == (NODE, DATABASE, "table of sched1")
    assert str(found) == f"{NODE}: node name: table of sched1 says 'c1', nova database says 'c1.example.org'"


def test_a_node_that_a_table_cannot_name_is_reported() -> None:
    [found] = differences([*database_of("c1.example.org"), table_of("")])
    assert str(found).endswith("node name: table of sched1 says nothing, nova database says 'c1.example.org'")


def test_equal_names_are_no_difference() -> None:
    assert differences([*database_of("c1.example.org"), table_of("c1.example.org")]) == []
    assert differences([*database_of(""), table_of("")]) == []
