# SPDX-License-Identifier: Apache-2.0
"""The table's knowledge of all allocations of a server, and of their generation."""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.protocol.messages import Consumer, Usage
from shared_scheduler.table.host_table import HostTable
from tests.unit.table.test_host_table import node_leaves, small

SOURCE, OTHER = "11111111-0000-0000-0000-000000000001", "11111111-0000-0000-0000-000000000002"
SERVER = "server-1"
WHOLE = Consumer(small(), True, generation=1, whole=True)


def table_with(on_source: Consumer, **on_other: Consumer) -> HostTable:
    table = HostTable()
    for number, (node, consumers) in enumerate([(SOURCE, {SERVER: on_source}), (OTHER, on_other)], 1):
        table.upsert(node, "cell-1", f"host-{number}", f"host-{number}")
        table.load(node, node_leaves(node), consumers)
    return table


def test_a_server_with_all_its_allocations_on_the_host_that_it_leaves() -> None:
    table = table_with(WHOLE)
    assert table.standing_on({"host-1"}, SERVER) == WHOLE
    assert table.consumer(SOURCE, SERVER) == WHOLE


def test_a_server_that_is_not_on_the_hosts() -> None:
    table = table_with(WHOLE)
    assert table.standing_on({"host-2"}, SERVER) is None
    assert table.standing_on({"host-1"}, "server-2") is None


def test_a_server_that_may_have_other_allocations() -> None:
    assert table_with(replace(WHOLE, whole=False)).standing_on({"host-1"}, SERVER) is None


def test_a_server_on_two_nodes() -> None:
    moved = replace(WHOLE, allocations=small(OTHER))
    assert table_with(WHOLE, **{SERVER: moved}).standing_on({"host-1"}, SERVER) is None


def test_a_server_with_an_own_claim_on_another_node() -> None:
    table = table_with(WHOLE)
    table.assume(OTHER, "claim-1", SERVER, small(OTHER), Usage(vcpus=1, instances=1), None, "")
    assert table.standing_on({"host-1"}, SERVER) is None


def test_a_new_generation_alone_changes_the_row_and_no_amount() -> None:
    table = table_with(WHOLE)
    used, digest = dict(table.view(SOURCE).used), table.digest(SOURCE)
    table.apply(SOURCE, {}, {SERVER: replace(WHOLE, generation=2, whole=False)}, {}, epoch=0, sequence=1)
    assert table.consumer(SOURCE, SERVER) == replace(WHOLE, generation=2, whole=False)
    assert (table.view(SOURCE).used, table.digest(SOURCE)) == (used, digest)
