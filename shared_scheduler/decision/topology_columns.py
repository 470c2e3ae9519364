# SPDX-License-Identifier: Apache-2.0
"""``topology_screen.cells_may_fit`` for all hosts at once, over ``state/numa_columns.py``.

That each cell of the request gets a host cell of its own is Hall's condition: any of them together have at
least as many host cells to choose from as they are.  Cells that ask the same choose from the same, so that
kinds of cells are gone through instead of cells.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np

from shared_scheduler.decision.topology_request import KIB_PER_MIB, CellAsk, TopologyAsk
from shared_scheduler.decision.topology_screen import ANY, LARGE, SMALL
from shared_scheduler.state.columns import BoolArray, FloatArray
from shared_scheduler.state.numa_columns import (
    CPU_USAGE,
    FREE_PINNABLE,
    MEMORY,
    MEMORY_USAGE,
    PAGE_FACTS,
    PAGES,
    PAGES_MAX,
    SHARED,
    NumaColumns,
)

#: different kinds of cells in one request; more are left to the look at each host
KINDS_MAX = 4


def is_simple(ask: TopologyAsk) -> bool:
    """Whether it may be asked of all hosts at once."""
    return len(set(ask.cells)) <= KINDS_MAX


def all_may_fit(ask: TopologyAsk, columns: NumaColumns, high: int) -> BoolArray:
    """Which of the first ``high`` slots may have the cells; of hosts that are odd, it says nothing."""
    passes: BoolArray = columns.cells.array[:high] >= len(ask.cells)
    if ask.cells:
        known = min(high, columns.facts.shape[2])  # nobody behind has cells
        passes[:known] &= _have_choice(ask, columns, known)
    return passes


def _have_choice(ask: TopologyAsk, columns: NumaColumns, high: int) -> BoolArray:
    facts = columns.facts[:, :, :high]
    there = np.arange(facts.shape[1])[:, None] < columns.cells.array[None, :high]
    passes: BoolArray = np.ones(high, dtype=np.bool_)
    kinds = Counter(ask.cells)
    options = {one: there & _options(one, columns, facts, high) for one in kinds}
    for count in range(1, len(kinds) + 1):
        for together in combinations(kinds, count):
            choice = np.logical_or.reduce([options[one] for one in together])
            passes &= np.count_nonzero(choice, axis=0) >= sum(kinds[one] for one in together)
    return passes


def _options(wanted: CellAsk, columns: NumaColumns, facts: FloatArray, high: int) -> BoolArray:
    """[cell, slot]: whether this host cell may be it."""
    found = _memory_fits(wanted, facts)
    if wanted.pinned:
        found &= facts[FREE_PINNABLE] >= wanted.pinned_cpus
    if wanted.shared:
        found &= facts[SHARED] >= wanted.shared_cpus
        cpus_max = facts[SHARED] * columns.cpu_ratio.array[:high]
        found &= facts[CPU_USAGE] + wanted.shared_cpus <= cpus_max
        memory_max_mb = facts[MEMORY] * columns.ram_ratio.array[:high]
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
    with np.errstate(invalid="ignore"):  # where no cell is, the size is 0
        fits &= np.fmod(memory_kb, size) == 0
    return fits
