# SPDX-License-Identifier: Apache-2.0
"""Headroom: measured by the free amounts, and by our own claims since the row was read."""

from __future__ import annotations

import pytest

from shared_scheduler.protocol.messages import Consumer, Usage
from shared_scheduler.table.assumed_claims import SCHEDULERS
from shared_scheduler.table.host_table import HostTable
from tests.unit.core.scheduler_driver import node_leaves

CAPACITY = 200
NODE = "node-1"


def table_with(used: int = 0) -> HostTable:
    """One host, so much of it in use."""
    table = HostTable()
    table.upsert(NODE, "cell", "host-1", "host-1")
    load(table, {"others": used})
    return table


def load(table: HostTable, consumers: dict[str, int]) -> None:
    leaves = node_leaves(NODE, CAPACITY, 8192)
    held = {name: Consumer({NODE: {"VCPU": n}}, True) for name, n in consumers.items() if n}
    table.load(NODE, leaves, held)


def take(table: HostTable, number: int, vcpus: int = 1) -> bool:
    """One more claim of ours; whether there is headroom with it."""
    table.assume(NODE, f"claim-{number}", f"server-{number}", {NODE: {"VCPU": vcpus}}, Usage())
    return table.has_headroom(NODE, {NODE: {"VCPU": vcpus}})


@pytest.mark.parametrize(("used", "headroom"), [(0, True), (CAPACITY * 3 // 4 - 1, True), (CAPACITY * 3 // 4, False)])
def test_a_quarter_has_to_be_left(used: int, headroom: bool) -> None:
    assert take(table_with(used), 1) is headroom


def test_many_times_what_is_asked_has_to_be_left() -> None:
    asked = CAPACITY // SCHEDULERS
    assert take(table_with(), 1, asked - 1)
    assert not take(table_with(), 1, asked)


def test_our_claims_since_the_read_of_the_row_count_for_every_scheduler() -> None:
    table = table_with()
    found = [take(table, number) for number in range(CAPACITY // SCHEDULERS + 1)]
    assert found[0] and not found[-1]
    assert found == sorted(found, reverse=True)


def test_a_row_that_was_read_again_has_headroom_again() -> None:
    table = table_with()
    taken = {f"server-{number}": 1 for number in range(CAPACITY // SCHEDULERS + 1)}
    assert not all(take(table, number) for number in range(len(taken)))
    load(table, taken)
    assert table.has_headroom(NODE, {NODE: {"VCPU": 1}})


def test_nobody_knows_what_another_tree_or_class_has_left() -> None:
    table = table_with()
    assert not table.has_headroom(NODE, {NODE: {"VCPU": 1}, "pool": {"DISK_GB": 1}})
    assert not table.has_headroom(NODE, {NODE: {"VGPU": 1}})
    assert not table.has_headroom("gone", {"gone": {"VCPU": 1}})
