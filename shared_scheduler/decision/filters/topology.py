# SPDX-License-Identifier: Apache-2.0
"""The filters for NUMA and PCI, which compare columns of all hosts at once.

They never reject a host that Nova accepts: each comparison is also part of Nova's ``numa_fit_instance_to_host`` (CPUs,
pinned CPUs, memory, pages, over-commit limits of a cell, one host cell for each cell of the instance).  Nova's own
filter, which judges each host that is tried, checks the rest: sibling threads, emulator threads, affinity to devices
and networks, hosts with more cells or page sizes than there are columns (``table/host_columns.py``), and some
combinations of cells if a request has more than ``KINDS_MAX`` different ones.

Each cell of the request needs a separate host cell.  By Hall's theorem this is possible exactly if every set of k cells
of the request has at least k host cells to choose from.  Equal cells have the same choice, so it is enough to check
the combinations of different cells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.filters.base import NativeFilter
from shared_scheduler.decision.topology_request import KIB_PER_MIB, CellAsk, DeviceAsk, TopologyAsk
from shared_scheduler.model import leaves as names
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.columns import BoolArray, FloatArray, IntArray
from shared_scheduler.table.host_columns import (
    CPU_USAGE,
    FREE_PINNABLE,
    MEMORY,
    MEMORY_USAGE,
    NO_TOPOLOGY,
    NOT_IN_COLUMNS,
    PAGE_FACTS,
    PAGES,
    PAGES_MAX,
    SHARED,
    NumaColumns,
)
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.host_view import HostView, pools_of
from shared_scheduler.table.row import Row

#: up to this number of different cells, every combination is checked; beyond it, each cell alone and all together
KINDS_MAX = 4
#: page sizes that stand for a property instead of a size
SMALL, LARGE, ANY = -1, -2, -3


class NUMATopologyFilter(NativeFilter):
    """The NUMA cells of the instance fit on those of the host, which has sibling threads if they are required."""

    code = "NUMATopologyFilter"
    screens = True

    def mask(self, context: DecisionContext) -> BoolArray | None:
        needs_threads = _needs_threads(context)
        if not context.request.has_numa and not needs_threads:
            return None
        ask = context.ask if context.request.has_numa else None
        numa = context.columns.numa
        return context.masks.slots(
            context.table,
            (self.code, ask, needs_threads),
            lambda slots: may_fit(ask, needs_threads, numa, slots),
        )

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        numa: dict[str, Leaf] = {name: value for name, value in view.leaves.items() if name.startswith(names.NUMA)}
        asked: list[Leaf] = [
            {
                "shared_cpus": cell.shared_cpus,
                "pinned_cpus": cell.pinned_cpus,
                "memory_mb": cell.memory_mb,
                "page_kb": cell.page_kb,
            }
            for cell in context.ask.cells
        ]
        return {
            "asked": asked,
            "threads_required": _needs_threads(context),
            "host": {name: value for name, value in numa.items() if name != names.NUMA_STATIC},
            "host_has_topology": names.NUMA_STATIC in numa,
        }


def _needs_threads(context: DecisionContext) -> bool:
    specs, image = context.request.flavor.extra_specs, context.request.image_properties
    policies = (specs.get("hw:cpu_policy"), image.get("hw_cpu_policy"))
    threads = (specs.get("hw:cpu_thread_policy"), image.get("hw_cpu_thread_policy"))
    return "dedicated" in policies and "require" in threads


def may_fit(ask: TopologyAsk | None, needs_threads: bool, numa: NumaColumns, slots: IntArray) -> BoolArray:
    """The mask of slots that may have room for the cells (None: no cells) and have sibling threads if required."""
    cells, threads = numa.cells.array[slots], numa.threads.array[slots]
    if ask is None:
        either: BoolArray = (cells == NO_TOPOLOGY) | threads
        return either
    passes: BoolArray = cells >= len(ask.cells)
    known = np.flatnonzero(passes)
    if ask.cells and len(known):
        passes[known] = _have_choice(ask, numa, slots[known])
    passes |= cells == NOT_IN_COLUMNS
    return passes & threads if needs_threads else passes


def _have_choice(ask: TopologyAsk, numa: NumaColumns, slots: IntArray) -> BoolArray:
    is_run = slots[-1] - slots[0] + 1 == len(slots)  # NumPy does not copy a contiguous slice
    where = slice(int(slots[0]), int(slots[-1]) + 1) if is_run else slots
    facts = numa.facts[:, :, where]
    there = np.arange(facts.shape[1])[:, None] < numa.cells.array[None, where]
    passes: BoolArray = np.ones(len(slots), dtype=np.bool_)
    kinds = Counter(ask.cells)
    options = {one: there & _options(one, numa, facts, where) for one in kinds}
    for together in _combinations(tuple(kinds)):
        choice = np.logical_or.reduce([options[one] for one in together])
        passes &= np.count_nonzero(choice, axis=0) >= sum(kinds[one] for one in together)
    return passes


def _combinations(kinds: tuple[CellAsk, ...]) -> Iterable[tuple[CellAsk, ...]]:
    counts = range(1, len(kinds) + 1) if len(kinds) <= KINDS_MAX else (1, len(kinds))
    return (together for count in counts for together in combinations(kinds, count))


def _options(wanted: CellAsk, numa: NumaColumns, facts: FloatArray, where: slice | IntArray) -> BoolArray:
    """Array [cell, slot]: whether the cell of the request fits on this host cell."""
    found = _memory_fits(wanted, facts)
    if wanted.pinned:
        found &= facts[FREE_PINNABLE] >= wanted.pinned_cpus
    if wanted.shared:
        found &= facts[SHARED] >= wanted.shared_cpus
        cpus_max = facts[SHARED] * numa.cpu_ratio.array[where]
        found &= facts[CPU_USAGE] + wanted.shared_cpus <= cpus_max
        memory_max_mb = facts[MEMORY] * numa.ram_ratio.array[where]
        found &= facts[MEMORY_USAGE] + wanted.memory_mb <= memory_max_mb
    return found


def _memory_fits(wanted: CellAsk, facts: FloatArray) -> BoolArray:
    if wanted.page_kb:
        found: BoolArray = np.zeros(facts.shape[1:], dtype=np.bool_)
        for position in range(PAGES_MAX):
            found |= _is_asked(wanted.page_kb, position, facts) & _pages_fit(wanted, position, facts, True)
        return found
    has_pages = facts[PAGES + 1] >= 0
    in_use = facts[MEMORY_USAGE] if wanted.pinned else 0
    plain = wanted.memory_mb <= facts[MEMORY] - in_use
    fits: BoolArray = np.where(has_pages, _pages_fit(wanted, 0, facts, wanted.pinned), plain)
    return fits


def _is_asked(page_kb: int, position: int, facts: FloatArray) -> BoolArray | bool:
    if page_kb == SMALL:
        return position == 0
    if page_kb == LARGE:
        return position > 0
    asked: BoolArray = facts[PAGES + position * PAGE_FACTS] == page_kb
    return True if page_kb == ANY else asked


def _pages_fit(wanted: CellAsk, position: int, facts: FloatArray, use_free: bool) -> BoolArray:
    first = PAGES + position * PAGE_FACTS
    size, total, free = facts[first], facts[first + 1], facts[first + 2]
    memory_kb = wanted.memory_mb * KIB_PER_MIB
    fits: BoolArray = memory_kb <= (free if use_free else total) * size
    with np.errstate(invalid="ignore"):  # cells that do not exist have size 0
        fits &= np.fmod(memory_kb, size) == 0
    return fits


def _effective(table: HostTable, row: Row) -> Mapping[str, Leaf]:
    """The leaves of a row with own claims subtracted; without own claims no view is created."""
    return table.view_at(row.slot).leaves if row.claims else row.leaves


class PciPassthroughFilter(NativeFilter):
    """The PCI pools of the host have the requested devices."""

    code = "PciPassthroughFilter"
    screens = True

    def mask(self, context: DecisionContext) -> BoolArray | None:
        if not context.request.has_pci:
            return None
        devices, table = context.ask.devices, context.table
        return context.masks.kinds(
            table,
            (self.code, devices),
            context.columns.devices,
            lambda: lambda row: devices_may_fit(devices, pools_of(_effective(table, row))),
            static=False,
        )

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        asked: list[Leaf] = [
            {
                "count": ask.count,
                "any_of": [{key: value for key, value in spec} for spec in ask.alternatives],
            }
            for ask in context.ask.devices
        ]
        return {"asked": asked, "pools": [{"key": dict(k), "free": n} for k, n in view.pools]}


def devices_may_fit(asks: Sequence[DeviceAsk], pools: Sequence[tuple[Mapping[str, Leaf], int]]) -> bool:
    """Whether the matching pools have enough free devices for each ask, regarded separately."""
    return all(sum(free for key, free in pools if _is_one_of(ask, key)) >= ask.count for ask in asks)


def _is_one_of(ask: DeviceAsk, key: Mapping[str, Leaf]) -> bool:
    return any(all(_same(key.get(name), value) for name, value in wanted) for wanted in ask.alternatives)


def _same(has: Leaf, wanted: str) -> bool:
    return not isinstance(has, str) or has.lower() == wanted
