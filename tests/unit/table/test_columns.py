# SPDX-License-Identifier: Apache-2.0
"""Columns grow, bit columns know sets of names, members know where instances are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shared_scheduler.model.aggregates import AggregateFacts, HostAggregates
from shared_scheduler.model.topology import TopologyUsage
from shared_scheduler.table.columns import CAPACITY_MIN, BitColumns, ColumnSet
from shared_scheduler.table.host_columns import HostColumns
from shared_scheduler.table.row_writer import Members


def test_columns_grow_by_doubling_and_keep_what_they_hold():
    columns = ColumnSet()
    column = columns.add(np.int64, -1)
    column.array[3] = 7
    columns.reserve(CAPACITY_MIN + 1)
    assert columns.capacity == 2 * CAPACITY_MIN
    assert column.array[3] == 7
    assert column.array[-1] == -1


NAMES = [f"T{n}" for n in range(150)]
SETS = st.lists(st.frozensets(st.sampled_from(NAMES), max_size=8), min_size=1, max_size=12)
WANTED = st.frozensets(st.sampled_from([*NAMES, "NOBODY_HAS_IT"]), max_size=3)


@given(sets=SETS, wanted=WANTED)
def test_bit_columns_answer_as_sets_do(sets, wanted):
    bits = BitColumns(ColumnSet())
    for slot, names in enumerate(sets):
        bits.put(slot, names)
    high = len(sets)
    assert bits.having_all(wanted, high).tolist() == [wanted <= names for names in sets]
    assert bits.having_any(wanted, high).tolist() == [bool(wanted & names) for names in sets]


def test_a_column_in_which_all_agree_is_known_as_uniform():
    columns = HostColumns()
    for slot in range(3):
        columns.open_slot(slot, "cell", slot)
        columns.put_tallied("hypervisor_version", slot, 8.0)
    assert columns.is_uniform("hypervisor_version")
    columns.put_tallied("hypervisor_version", 1, 9.0)
    assert not columns.is_uniform("hypervisor_version")
    columns.clear(1)
    assert columns.is_uniform("hypervisor_version")
    assert not columns.is_uniform("num_io_ops"), "nobody counts this one"


def test_an_instance_may_be_on_two_hosts_while_it_moves():
    members = Members()
    members.add("server", 4)
    members.add("server", 9)
    members.add("server", 9)
    assert members.slots("server") == (4, 9)
    members.discard("server", 4)
    assert members.slots("server") == (9,)
    members.discard("server", 9)
    members.discard("server", 9)
    assert members.slots("server") == ()
    assert len(members) == 0


def aggregate(number: int, *hosts: str, **metadata: str) -> AggregateFacts:
    return AggregateFacts(number, f"u{number}", f"a{number}", frozenset(hosts), metadata)


def test_a_change_of_aggregates_names_the_hosts_that_it_concerns():
    known = HostAggregates()
    assert known.replace([aggregate(1, "a", "b"), aggregate(2, "b")]) == {"a", "b"}
    assert known.update([aggregate(2, "c", ssd="true")]) == {"b", "c"}
    assert [one.id for one in known.of("b")] == [1]
    assert known.has_key("ssd")
    assert known.replace([aggregate(1, "a", "b")]) == {"c"}
    assert not known.has_key("ssd")
    assert known.delete([1, 77]) == {"a", "b"}
    assert known.all() == ()


def test_other_hosts_of_an_aggregate_do_not_concern_a_host():
    # given an availability zone, to which hosts are added one by one
    known = HostAggregates()
    known.replace([aggregate(1, "a", "b", zone="z")])
    assert known.update([aggregate(1, "a", "b", "c", zone="z")]) == {"c"}
    assert known.update([aggregate(1, "a", "c", zone="z")]) == {"b"}
    # then all the same know who is in it, and hear of what it says
    assert [one.hosts for one in known.of("a")] == [{"a", "c"}]
    assert known.update([aggregate(1, "a", "c", zone="y")]) == {"a", "c"}


def test_hosts_in_the_same_aggregates_share_one_answer():
    known = HostAggregates()
    known.replace([aggregate(1, "a", "b"), aggregate(2, "a", "b")])
    assert known.of("a") is known.of("b")


CELL = st.tuples(st.integers(0, 8), st.integers(0, 4096), st.integers(0, 255), st.integers(0, 64)).map(
    lambda one: [one[0], one[1], format(one[2], "x"), {"4": one[3]}]
)


@given(before=CELL, extra=CELL, other=CELL)
def test_takes_add_up_in_any_order(before, extra, other):
    """Two claims that pin different CPUs leave the same cell, whichever is counted first."""
    pinned = int(before[2], 16)
    first = int(extra[2], 16) & ~pinned
    second = int(other[2], 16) & ~pinned & ~first

    def after(one, more):
        return [
            before[0] + one[0],
            before[1] + one[1],
            format(pinned | more, "x"),
            {"4": before[3]["4"] + one[3]["4"]},
        ]

    base = {"numa.0": before, "pci.p": 3}
    takes = [
        TopologyUsage.between(base, {"numa.0": after(extra, first), "pci.p": 2}),
        TopologyUsage.between(base, {"numa.0": after(other, second), "pci.p": 1}),
    ]
    one, two = dict(base), dict(base)
    for take in takes:
        take.consume_from(one)
    for take in reversed(takes):
        take.consume_from(two)
    assert one == two
    assert one["pci.p"] == 0
    assert int(one["numa.0"][2], 16) == pinned | first | second
