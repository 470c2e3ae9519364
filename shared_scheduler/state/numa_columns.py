# SPDX-License-Identifier: Apache-2.0
"""NUMA cells of all hosts as numbers beside one another, so that a request that nobody asked before needs no
look at ten thousand hosts one by one (``decision/topology_columns.py``).

=================  ==============================================================================
array              value
=================  ==============================================================================
``cells``          how many cells the host has, ``NO_TOPOLOGY`` or ``ODD``
``threads``        whether any of its cores has several threads
``cpu_ratio``      over-commit of shared CPUs, and of memory (``ram_ratio``)
``facts``          [fact, cell, slot]: the fields of ``HostCell`` and, for each of its ``PAGES_MAX``
                   smallest page sizes, the size in KiB, all pages and free pages
=================  ==============================================================================

Made larger when a host with more cells comes; where no host has a topology they hold nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shared_scheduler.state.columns import ColumnSet, FloatArray
from shared_scheduler.state.numa_cells import HostCell

NO_TOPOLOGY = -2
#: more cells or sizes of pages than there is room for: look at the host itself
ODD = -1
CELLS_MAX = 16
PAGES_MAX = 3

SHARED, FREE_PINNABLE, MEMORY, CPU_USAGE, MEMORY_USAGE, PAGES = range(6)
#: of each size: size_kb, total, free
PAGE_FACTS = 3
FACTS = PAGES + PAGES_MAX * PAGE_FACTS
#: a size of which there is nothing, not even room for nothing
NO_PAGE = (1, -1, -1)


class NumaColumns:
    """See the module's head."""

    def __init__(self, columns: ColumnSet) -> None:
        self._columns = columns
        self.cells = columns.add(np.int16, NO_TOPOLOGY)
        self.threads = columns.add(np.bool_, 0)
        self.cpu_ratio = columns.add(np.float64, 0)
        self.ram_ratio = columns.add(np.float64, 0)
        self.facts: FloatArray = np.zeros((FACTS, 0, 0))

    def clear(self, slot: int) -> None:
        """Its driver reports no topology."""
        self.cells.array[slot] = NO_TOPOLOGY

    def put(
        self, slot: int, cells: Sequence[HostCell], threads: bool, cpu_ratio: float, ram_ratio: float
    ) -> None:
        """What a host has."""
        fits = len(cells) <= CELLS_MAX and all(len(cell.pages) <= PAGES_MAX for cell in cells)
        self.cells.array[slot] = len(cells) if fits else ODD
        self.threads.array[slot] = threads
        self.cpu_ratio.array[slot], self.ram_ratio.array[slot] = cpu_ratio, ram_ratio
        if fits and cells:
            self._reserve(len(cells))
            self.facts[:, : len(cells), slot] = np.array([_facts(cell) for cell in cells]).T

    def _reserve(self, cells: int) -> None:
        capacity = self._columns.capacity
        _, before, length = self.facts.shape
        if cells <= before and capacity <= length:
            return
        larger: FloatArray = np.zeros((FACTS, max(cells, before), capacity))
        larger[:, :before, :length] = self.facts
        self.facts = larger


def _facts(cell: HostCell) -> list[float]:
    pages = [*cell.pages, *[NO_PAGE] * (PAGES_MAX - len(cell.pages))]
    return [
        cell.shared_cpus,
        cell.free_pinnable,
        cell.memory_mb,
        cell.cpu_usage,
        cell.memory_usage,
        *(number for page in pages for number in page),
    ]
