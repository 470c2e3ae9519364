# SPDX-License-Identifier: Apache-2.0
"""May the NUMA cells of a request fit on those of a host?  May its devices?

Never a wrong No: each comparison is one that Nova's ``numa_fit_instance_to_host`` makes too (CPUs,
pinned CPUs, memory, pages, over-commit limits of a cell, one host cell for each cell of the instance).
What is left to Nova's own function: sibling threads, emulator threads, affinity to devices and
networks.  For requests without those the answer is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared_scheduler.decision.topology_request import (
    KIB_PER_MIB,
    CellAsk,
    DeviceAsk,
    TopologyAsk,
)
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.state.numa_cells import HostCell

SMALL, LARGE, ANY = -1, -2, -3


@dataclass(frozen=True, slots=True)
class Ratios:
    """Over-commit that a cell allows to shared CPUs."""

    cpu: float
    ram: float


def cells_may_fit(ask: TopologyAsk, cells: Sequence[HostCell], ratios: Ratios) -> bool:
    """Whether each cell of the request may have a host cell of its own."""
    if len(cells) < len(ask.cells):
        return False
    options = [
        [position for position, cell in enumerate(cells) if _may_fit(wanted, cell, ratios)]
        for wanted in ask.cells
    ]
    return _matches(options, frozenset())


def _matches(options: Sequence[Sequence[int]], taken: frozenset[int]) -> bool:
    """Whether one option of each can be taken, all different."""
    if not options:
        return True
    return any(
        _matches(options[1:], taken | {position}) for position in options[0] if position not in taken
    )


def _may_fit(wanted: CellAsk, cell: HostCell, ratios: Ratios) -> bool:
    return (
        _cpus_fit(wanted, cell)
        and _memory_fits(wanted, cell)
        and (not wanted.shared or _within_ratios(wanted, cell, ratios))
    )


def _cpus_fit(wanted: CellAsk, cell: HostCell) -> bool:
    if wanted.pinned and wanted.pinned_cpus > cell.free_pinnable:
        return False
    return not wanted.shared or wanted.shared_cpus <= cell.shared_cpus


def _within_ratios(wanted: CellAsk, cell: HostCell, ratios: Ratios) -> bool:
    cpus = cell.cpu_usage + wanted.shared_cpus
    memory_mb = cell.memory_usage + wanted.memory_mb
    return cpus <= cell.shared_cpus * ratios.cpu and memory_mb <= cell.memory_mb * ratios.ram


def _memory_fits(wanted: CellAsk, cell: HostCell) -> bool:
    if wanted.page_kb:
        sizes = _sizes(wanted.page_kb, [size for size, _, _ in cell.pages])
        return any(_pages_fit(wanted, page, True) for page in cell.pages if page[0] in sizes)
    if cell.pages:
        return _pages_fit(wanted, cell.pages[0], wanted.pinned)
    room_mb = cell.memory_mb - (cell.memory_usage if wanted.pinned else 0)
    return wanted.memory_mb <= room_mb


def _sizes(asked: int, there: list[int]) -> list[int]:
    """Page sizes that satisfy the wish; ``there`` is smallest first."""
    if asked == SMALL:
        return there[:1]
    if asked == LARGE:
        return there[1:]
    return there if asked == ANY else [asked]


def _pages_fit(wanted: CellAsk, page: tuple[int, int, int], use_free: bool) -> bool:
    size, total, free = page
    memory_kb = wanted.memory_mb * KIB_PER_MIB
    return memory_kb <= (free if use_free else total) * size and memory_kb % size == 0


def devices_may_fit(
    asks: Sequence[DeviceAsk], pools: Sequence[tuple[Mapping[str, Leaf], int]]
) -> bool:
    """Whether the pools that match hold enough free devices, for each ask by itself."""
    return all(
        sum(free for key, free in pools if _is_one_of(ask, key)) >= ask.count for ask in asks
    )


def _is_one_of(ask: DeviceAsk, key: Mapping[str, Leaf]) -> bool:
    return any(
        all(_same(key.get(name), value) for name, value in wanted) for wanted in ask.alternatives
    )


def _same(has: Leaf, wanted: str) -> bool:
    return not isinstance(has, str) or has.lower() == wanted
