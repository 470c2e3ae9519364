# SPDX-License-Identifier: Apache-2.0
"""A table is copied in parts while it changes, and the copy is the table at the moment of the last part."""

from __future__ import annotations

from random import Random

import pytest

from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.messages import Consumer
from shared_scheduler.table import table_copy
from shared_scheduler.table.columns import Column
from shared_scheduler.table.host_columns import HostColumns
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import Freshness
from shared_scheduler.table.table_copy import TableChangesTooFastError, TableCopy
from tests.unit.table.test_host_table import SMALL, node_leaves, small

NODES = 300


def name(number: int) -> str:
    return f"node-{number}"


def cloud() -> HostTable:
    table = HostTable()
    table.set_aggregates([AggregateFacts(1, "agg-1", "racks", frozenset({"host-1", "host-2"}), {"rack": "a"})])
    for number in range(NODES):
        add(table, number)
    return table


def add(table: HostTable, number: int) -> None:
    node = name(number)
    table.upsert(node, "cell-1", f"host-{number}", node)
    table.set_service(ServiceFacts(f"host-{number}"))
    group = f"group-{number % 7}"
    consumers = {f"server-{number}": Consumer(small(node), True, group), f"gone-{number}": Consumer({}, False, group)}
    table.load(node, node_leaves(node), consumers, {"claim-of-others": "somebody"}, epoch=1, sequence=1)


def same(one: HostTable, other: HostTable) -> None:
    """Both tables have equal rows, columns and indexes."""
    assert {node: one.describe(node) for node in one.nodes()} == {node: other.describe(node) for node in other.nodes()}
    assert {node: one.digest(node) for node in one.nodes()} == {node: other.digest(node) for node in other.nodes()}
    assert columns(one.columns) == columns(other.columns)
    assert one.generation == other.generation
    for number in range(NODES):
        server, group, host = f"server-{number}", f"group-{number % 7}", f"host-{number}"
        assert one.members.slots(server) == other.members.slots(server)
        assert one.groups.of(group) == other.groups.of(group)
        assert one.slots_of_host(host) == other.slots_of_host(host)
        assert one.aggregates.of(host) == other.aggregates.of(host)
        assert one.service(host) == other.service(host)


def columns(of: HostColumns) -> list[list[float]]:
    found: list[Column] = of._columns
    return [column.array[: of.high].tolist() for column in found]


def change(table: HostTable, rng: Random, step: int) -> None:
    """One of the changes that messages, reads and own claims make."""
    number = rng.randrange(NODES)
    node = name(number)
    match rng.randrange(7):
        case 0:
            table.remove(node)
        case 1:
            add(table, number)
        case 2:
            if node in table:
                table.assume(node, f"claim-{step}", f"new-{step}", small(node), SMALL, group="group-1")
        case 3:
            table.forget(f"claim-{rng.randrange(step + 1)}")
        case 4:
            table.set_service(ServiceFacts(f"host-{number}", disabled=bool(step % 2)))
        case 5:
            if node in table:
                table.set_freshness(node, rng.choice(list(Freshness)))
        case 6:
            if node in table:
                news = {"cn.vcpus_used": step % 8, "hw.new": step}
                table.apply(node, news, {f"server-{number}": None}, {}, epoch=1, sequence=step + 2)


@pytest.mark.parametrize("seed", range(6))
def test_the_copy_is_the_table_at_the_moment_of_the_last_part(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_copy, "ROWS_PER_PART", 16)
    table, rng, step = cloud(), Random(seed), 0
    copying = TableCopy(table)

    while copying.copy_part():
        for _ in range(rng.randrange(8)):
            change(table, rng, step)
            step += 1

    found = copying.finish()
    same(table, found)
    assert found.may_have_leaf("cn.vcpus") and not found.may_have_leaf("nothing")


def test_changes_of_the_copy_and_of_the_table_do_not_affect_each_other() -> None:
    table = cloud()
    table.assume(name(1), "claim-1", "new-1", small(name(1)), SMALL, group="group-1")
    copying = TableCopy(table)
    while copying.copy_part():
        pass
    found, untouched = copying.finish(), TableCopy(table)
    while untouched.copy_part():
        pass

    rng = Random(7)
    for step in range(500):
        change(found, rng, step + 10)
    found.forget("claim-1")

    same(table, untouched.finish())


def test_no_part_copies_more_rows_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    copy_rows = TableCopy._copy_rows

    def count(copying: TableCopy, slots: list[int]) -> None:
        copied.append(len(slots))
        copy_rows(copying, slots)

    monkeypatch.setattr(TableCopy, "_copy_rows", count)
    table = cloud()
    copying = TableCopy(table)
    while copying.copy_part():
        for number in range(50):
            table.set_freshness(name(number), Freshness.SUSPECT)

    assert max(copied) <= table_copy.ROWS_PER_PART < NODES
    same(table, copying.finish())


def test_a_table_that_changes_faster_than_it_is_copied_is_given_up() -> None:
    table = cloud()
    copying = TableCopy(table)

    with pytest.raises(TableChangesTooFastError, match="try again"):
        for step in range(10_000):
            copying.copy_part()
            for number in range(NODES):
                table.set_freshness(name(number), list(Freshness)[step % 2])


def test_an_empty_table_is_copied() -> None:
    copying = TableCopy(HostTable())

    assert not copying.copy_part()
    assert len(copying.finish()) == 0
