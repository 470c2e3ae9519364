# SPDX-License-Identifier: Apache-2.0
"""NUMA cells over columns: the same answers as a comparison of one host at a time."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.filters.topology import ANY, KINDS_MAX, LARGE, may_fit
from shared_scheduler.decision.filters.topology import SMALL as SMALL_PAGES
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.topology_request import CellAsk, TopologyAsk
from shared_scheduler.model.topology import CellUsage, HostCell, TopologyUsage
from shared_scheduler.protocol.messages import Usage
from shared_scheduler.table.columns import CAPACITY_MIN, ColumnSet
from shared_scheduler.table.host_columns import CELLS_MAX, NO_TOPOLOGY, NumaColumns
from tests.unit.decision.small_clouds import SMALL, add_host, cloud, small_request
from tests.unit.decision.test_topology_filters import ask, host_cell, numa

few = st.integers(0, 4)
sizes_kb = st.sampled_from([4, 2048, 1048576])


@st.composite
def pages(draw: Any) -> tuple[tuple[int, int, int], ...]:
    sizes = sorted(draw(st.sets(sizes_kb)))
    return tuple((size, draw(st.integers(0, 2048)), draw(st.integers(-8, 2048))) for size in sizes)


host_cells = st.builds(
    HostCell, few, few, st.sampled_from([0, 8, 1024, 4096]), st.integers(0, 9),
    st.sampled_from([0, 8, 1024]), pages(),
)  # fmt: skip
cells = st.builds(
    CellAsk, few, few, st.sampled_from([0, 4, 8, 9, 1024, 2048]), st.sampled_from([0, 0, -1, -2, -3, 4, 2048]),
    st.booleans(), st.booleans(),
)  # fmt: skip
hosts = st.tuples(st.lists(host_cells, max_size=4), st.sampled_from([1.0, 4.0, 0.7]), st.sampled_from([1.0, 1.5]))


def one_fits(wanted: CellAsk, cell: HostCell, cpu_ratio: float, ram_ratio: float) -> bool:
    """One cell of a request on one cell of a host, as Nova compares them."""
    if wanted.pinned and wanted.pinned_cpus > cell.free_pinnable:
        return False
    if wanted.shared and (
        wanted.shared_cpus > cell.shared_cpus
        or cell.cpu_usage + wanted.shared_cpus > cell.shared_cpus * cpu_ratio
        or cell.memory_usage + wanted.memory_mb > cell.memory_mb * ram_ratio
    ):
        return False
    return memory_fits(wanted, cell)


def memory_fits(wanted: CellAsk, cell: HostCell) -> bool:
    def fits(page: tuple[int, int, int], use_free: bool) -> bool:
        size, total, free = page
        memory_kb = wanted.memory_mb * 1024
        return memory_kb <= (free if use_free else total) * size and memory_kb % size == 0

    pages = {SMALL_PAGES: cell.pages[:1], LARGE: cell.pages[1:], ANY: cell.pages}
    same = tuple(page for page in cell.pages if page[0] == wanted.page_kb)
    if wanted.page_kb:
        return any(fits(page, True) for page in pages.get(wanted.page_kb, same))
    if cell.pages:
        return fits(cell.pages[0], wanted.pinned)
    return wanted.memory_mb <= cell.memory_mb - (cell.memory_usage if wanted.pinned else 0)


def host_fits(asked: list[CellAsk], cells: list[HostCell], *ratios: float) -> bool:
    """Whether the cells of the request can be assigned to different cells of the host."""
    return any(
        all(one_fits(wanted, cell, *ratios) for wanted, cell in zip(asked, chosen, strict=True))
        for chosen in permutations(cells, len(asked))
    )


@given(st.lists(hosts | st.none(), max_size=6), st.lists(cells, max_size=4))
def test_all_hosts_at_once_get_the_answers_of_one_host_at_a_time(its: list[Any], asked: list[CellAsk]) -> None:
    numa_columns = NumaColumns(ColumnSet())
    for slot, host in enumerate(its):
        if host is not None:
            numa_columns.put(slot, host[0], False, *host[1:])
    found = may_fit(TopologyAsk(tuple(asked)), False, numa_columns, np.arange(len(its)))
    assert found.tolist() == [host is not None and host_fits(asked, *host) for host in its]


def test_a_request_of_many_different_cells_is_never_refused_wrongly() -> None:
    asked = [CellAsk(0, cpus, 16, 0, True, False) for cpus in range(1, KINDS_MAX + 2)]
    fitting_cells = [HostCell(0, cpus, 1024, 0, 0, ()) for cpus in range(1, KINDS_MAX + 2)]
    numa_columns = NumaColumns(ColumnSet())
    numa_columns.put(0, fitting_cells, False, 1.0, 1.0)
    numa_columns.put(1, fitting_cells[1:], False, 1.0, 1.0)
    found = may_fit(TopologyAsk(tuple(asked)), False, numa_columns, np.arange(2))
    assert found.tolist() == [True, False]


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


def test_a_host_with_more_cells_than_columns_is_left_to_novas_filter() -> None:
    table = cloud()
    add_host(table, "many", **numa(*(host_cell(number) for number in range(CELLS_MAX + 1))))
    add_host(table, "full", **numa(*(host_cell(number, pinnable=1) for number in range(CELLS_MAX + 1))))
    add_host(table, "small", **numa(host_cell(0, pinnable=1)))
    assert fitting(table, 4) == {"many", "full"}


def test_cell_columns_follow_increments_and_claims() -> None:
    table = cloud()
    add_host(table, "host", **numa(host_cell(0)))
    assert fitting(table, 4) == {"host"}
    table.apply("host", {"numa.0": [1, 16, "1", {}]}, {}, {}, epoch=1, sequence=2)
    assert fitting(table, 4) == set() and fitting(table, 3) == {"host"}
    take = TopologyUsage({"numa.0": CellUsage(1, 16, 2, {})})
    table.assume("host", "claim", "server", {"host": SMALL}, Usage(1, 16, 1, 1, 1), take)
    assert fitting(table, 3) == set() and fitting(table, 2) == {"host"}
    table.forget("claim")
    assert fitting(table, 3) == {"host"}
    table.remove("host")
    assert table.columns.numa.cells.array[0] == NO_TOPOLOGY


def test_a_deciders_caches_follow_changes_of_a_hundred_hosts() -> None:
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
