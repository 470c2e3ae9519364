# SPDX-License-Identifier: Apache-2.0
"""NUMA cells of all hosts at once say what the look at each host says."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.settings import DecisionSettings
from shared_scheduler.decision.topology_columns import all_may_fit
from shared_scheduler.decision.topology_request import CellAsk, TopologyAsk
from shared_scheduler.decision.topology_screen import Ratios, cells_may_fit
from shared_scheduler.protocol.messages import Usage
from shared_scheduler.state.columns import CAPACITY_MIN, ColumnSet
from shared_scheduler.state.numa_cells import HostCell
from shared_scheduler.state.numa_columns import CELLS_MAX, NO_TOPOLOGY, NumaColumns
from shared_scheduler.state.topology import CellTake, TopologyTake
from tests.unit.decision.test_topology_screen import ask, host_cell, numa
from tests.unit.decision.worlds import SMALL, add_host, cloud, small_request

few = st.integers(0, 4)
sizes_kb = st.sampled_from([4, 2048, 1048576])


@st.composite
def pages(draw: Any) -> tuple[tuple[int, int, int], ...]:
    sizes = sorted(draw(st.sets(sizes_kb)))
    return tuple((size, draw(st.integers(0, 2048)), draw(st.integers(-8, 2048))) for size in sizes)


host_cells = st.builds(
    HostCell, few, few, few, st.sampled_from([0, 8, 1024, 4096]), st.integers(0, 9),
    st.sampled_from([0, 8, 1024]), pages(),
)  # fmt: skip
cells = st.builds(
    CellAsk, few, few, st.sampled_from([0, 4, 8, 9, 1024, 2048]), st.sampled_from([0, 0, -1, -2, -3, 4, 2048]),
    st.booleans(), st.booleans(),
)  # fmt: skip
hosts = st.tuples(st.lists(host_cells, max_size=4), st.sampled_from([1.0, 4.0, 0.7]), st.sampled_from([1.0, 1.5]))


@given(st.lists(hosts | st.none(), max_size=6), st.lists(cells, max_size=4))
def test_all_hosts_at_once_answer_as_each_by_itself(its: list[Any], asked: list[CellAsk]) -> None:
    columns = ColumnSet()
    numa_columns, wanted = NumaColumns(columns), TopologyAsk(tuple(asked))
    for slot, host in enumerate(its):
        if host is not None:
            numa_columns.put(slot, host[0], False, *host[1:])
    assert all_may_fit(wanted, numa_columns, len(its)).tolist() == [
        host is not None and cells_may_fit(wanted, host[0], Ratios(*host[1:])) for host in its
    ]


def numa_decider(table: Any) -> Decider:
    return Decider(table, DecisionSettings(enabled_filters=("NUMATopologyFilter",)))


def pinned(cpus: int) -> Any:
    return small_request(forms=(), has_numa=True, topology=ask((cpus, 0, 16, 0)))


def fitting(table: Any, cpus: int) -> set[str]:
    """By a decider that knows nothing yet."""
    return set(numa_decider(table).decide(pinned(cpus)).weights())


def test_hosts_without_cells_that_come_later_are_no_match() -> None:
    table = cloud()
    add_host(table, "first", **numa(host_cell(0)))
    for number in range(CAPACITY_MIN + 1):
        add_host(table, f"plain-{number}")
    assert fitting(table, 4) == {"first"}


def test_a_host_with_more_cells_than_columns_is_looked_at_by_itself() -> None:
    table = cloud()
    add_host(table, "many", **numa(*(host_cell(number) for number in range(CELLS_MAX + 1))))
    add_host(table, "full", **numa(*(host_cell(number, pinnable=1) for number in range(CELLS_MAX + 1))))
    assert fitting(table, 4) == {"many"}


def test_cells_follow_what_is_told_and_what_is_claimed() -> None:
    table = cloud()
    add_host(table, "host", **numa(host_cell(0)))
    assert fitting(table, 4) == {"host"}
    table.apply("host", {"numa.0": [1, 16, "1", {}]}, {}, {}, epoch=1, sequence=2)
    assert fitting(table, 4) == set() and fitting(table, 3) == {"host"}
    take = TopologyTake({"numa.0": CellTake(1, 16, 2, {})})
    table.assume("host", "claim", "server", {"host": SMALL}, Usage(1, 16, 1, 1, 1), take)
    assert fitting(table, 3) == set() and fitting(table, 2) == {"host"}
    table.forget("claim")
    assert fitting(table, 3) == {"host"}
    table.remove("host")
    assert table.columns.numa.cells.array[0] == NO_TOPOLOGY


def test_a_decider_that_remembers_hears_of_what_a_hundred_hosts_say() -> None:
    table = cloud()
    names = [f"host-{number}" for number in range(100)]
    for name in names:
        add_host(table, name, **numa(host_cell(0)))
    decider = numa_decider(table)
    assert set(decider.decide(pinned(4)).weights()) == set(names)
    for name in names[:60]:
        table.apply(name, {"numa.0": [1, 16, "1", {}]}, {}, {}, epoch=1, sequence=2)
    assert set(decider.decide(pinned(4)).weights()) == set(names[60:])
    table.apply(names[0], {"numa.0": [0, 0, "0", {}]}, {}, {}, epoch=1, sequence=3)
    assert set(decider.decide(pinned(4)).weights()) == {names[0], *names[60:]}
