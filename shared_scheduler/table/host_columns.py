# SPDX-License-Identifier: Apache-2.0
"""The columns of the host table, which filters and weighers read.

===================  =======  =========================================================================
column               type     value
===================  =======  =========================================================================
closed               uint8    0, or why the host is not considered (``row.CLOSED_CODES``)
up                   bool     its nova-compute service takes servers (Nova's ComputeFilter)
cell                 int32    number of the cell (``cell_code``)
changed_at           int64    table generation of the row's last change
static_at            int64    the same, of the last change of rarely changing data
free_vcpus           float64  vcpus_total * cpu_allocation_ratio - vcpus_used, not below 0
free_ram_mb          float64  HostState.free_ram_mb, not below 0
free_disk_mb         float64  HostState.free_disk_mb, not below 0
num_io_ops           float64  HostState.num_io_ops
num_instances        float64  HostState.num_instances
failed_builds        float64  HostState.failed_builds
hypervisor_version   float64  HostState.hypervisor_version, 0 for None
pci_weight           float64  100 - min(free PCI devices, 99)
===================  =======  =========================================================================

Free numbers are clamped at 0, as by Nova's weighers with ``minval = 0``.  Each resource class has its own columns
(``RoomColumns``).  Traits and the aggregates of root providers are bit columns.  NUMA cells are arrays by fact, cell
and slot (``NumaColumns``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from shared_scheduler.model.topology import HostCell
from shared_scheduler.table.columns import BitColumns, Column, ColumnSet, FloatArray, IntArray, Kinds
from shared_scheduler.table.row import CLOSED_CODES, CODE_OF_CLOSED, Exclusion

#: columns for which the table tracks whether all hosts have the same value
TALLIED = ("failed_builds", "hypervisor_version", "pci_weight")

#: the host reports no NUMA topology
NO_TOPOLOGY = -2
#: the host has more cells or page sizes than columns: Nova's own filter decides
NOT_IN_COLUMNS = -1
CELLS_MAX = 16
PAGES_MAX = 3

SHARED, FREE_PINNABLE, MEMORY, CPU_USAGE, MEMORY_USAGE, PAGES = range(6)
#: facts of each page size: size_kb, total, free
PAGE_FACTS = 3
FACTS = PAGES + PAGES_MAX * PAGE_FACTS
#: a page size that the host does not have; not even 0 pages of it fit
NO_PAGE = (1, -1, -1)
#: Resource classes with columns: 34 bytes for each class and host.
CLASSES_MAX = 1024


class TooManyClassesError(Exception):
    """The root providers of all hosts have more resource classes than ``CLASSES_MAX``."""


class RoomColumns:
    """One resource class on root providers.

    ``room`` is the largest amount that still fits: min(capacity - used, max_unit); -1 without an inventory.
    ``root_rows`` counts rows with an inventory, marked in ``is_there``.
    ``odd_rows`` counts rows whose min_unit or step_size is not 1; the columns of units are read only if there are any.
    ``other_providers`` marks rows in which other providers of the tree, or sharing ones, have the class as well;
    ``other_provider_room`` is the largest room among those.  Rooms are doubles because comparing them is twice as fast;
    the amounts of a node (``model/leaf_validation.py``) are exact as doubles.
    """

    def __init__(self, columns: ColumnSet) -> None:
        self.room = columns.add(np.float64, -1)
        self.min_unit = columns.add(np.int64, 1)
        self.step_size = columns.add(np.int64, 1)
        self.other_providers = columns.add(np.bool_, 0)
        self.other_provider_room = columns.add(np.float64, -1)
        self.is_there = columns.add(np.bool_, 0)
        self.root_rows = 0
        self.odd_rows = 0
        self.other_provider_rows = 0

    @property
    def is_unused(self) -> bool:
        """Whether no provider of any row has the class."""
        return not (self.root_rows or self.other_provider_rows)

    @property
    def all(self) -> list[Column]:
        """The columns."""
        return [one for one in vars(self).values() if isinstance(one, Column)]

    def put_units(self, slot: int, min_unit: int, step_size: int, is_there: bool) -> None:
        """Set the units of the root's inventory; 1 and 1 without an inventory."""
        self.root_rows += int(is_there) - int(self.is_there.array[slot])
        self.is_there.array[slot] = is_there
        mins, steps = self.min_unit.array, self.step_size.array
        self.odd_rows -= bool(mins[slot] > 1 or steps[slot] != 1)
        mins[slot], steps[slot] = min_unit, step_size
        self.odd_rows += bool(min_unit > 1 or step_size != 1)

    def put_other_providers(self, slot: int, is_there: bool, room: int) -> None:
        """Set whether other providers have the class, and their largest room."""
        self.other_provider_rows += int(is_there) - int(self.other_providers.array[slot])
        self.other_providers.array[slot] = is_there
        self.other_provider_room.array[slot] = room


class NumaColumns:
    """The NUMA cells of all hosts, so that a request can be compared with ten thousand hosts at once
    (``decision/filters/topology.py``).

    =================  ==========================================================================
    array              value
    =================  ==========================================================================
    ``cells``          the number of cells of the host, ``NO_TOPOLOGY`` or ``NOT_IN_COLUMNS``
    ``threads``        whether any of its cores has several threads
    ``cpu_ratio``      over-commit of shared CPUs, and of memory (``ram_ratio``)
    ``facts``          [fact, cell, slot]: the fields of ``HostCell`` and, for each of its
                       ``PAGES_MAX`` smallest page sizes, the size in KiB, all pages and free pages
    =================  ==========================================================================

    They grow when a host with more cells is added, and are empty if no host has a topology.
    """

    def __init__(self, columns: ColumnSet) -> None:
        self._columns = columns
        self.cells = columns.add(np.int16, NO_TOPOLOGY)
        self.threads = columns.add(np.bool_, 0)
        self.cpu_ratio = columns.add(np.float64, 0)
        self.ram_ratio = columns.add(np.float64, 0)
        self.facts: FloatArray = np.zeros((FACTS, 0, 0))

    def clear(self, slot: int) -> None:
        """Reset a slot whose driver reports no topology."""
        self.cells.array[slot] = NO_TOPOLOGY

    def put(self, slot: int, cells: Sequence[HostCell], threads: bool, cpu_ratio: float, ram_ratio: float) -> None:
        """Set the NUMA cells of a host."""
        fits = len(cells) <= CELLS_MAX and all(len(cell.pages) <= PAGES_MAX for cell in cells)
        self.cells.array[slot] = len(cells) if fits else NOT_IN_COLUMNS
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


class HostColumns(ColumnSet):
    """All columns; the docstring of the module lists them.  ``high`` slots are or were in use."""

    def __init__(self) -> None:
        super().__init__()
        self.high = 0
        self.closed = self.add(np.uint8, CODE_OF_CLOSED[Exclusion.NO_SLOT])
        self.up = self.add(np.bool_, 0)
        self.cell = self.add(np.int32, -1)
        self.changed_at = self.add(np.int64, 0)
        self.static_at = self.add(np.int64, 0)
        self.free_vcpus = self.add(np.float64, 0)
        self.free_ram_mb = self.add(np.float64, 0)
        self.free_disk_mb = self.add(np.float64, 0)
        self.num_io_ops = self.add(np.float64, 0)
        self.num_instances = self.add(np.float64, 0)
        self.failed_builds = self.add(np.float64, 0)
        self.hypervisor_version = self.add(np.float64, 0)
        self.pci_weight = self.add(np.float64, 0)
        self.identity = self.add(np.uint64, 0)
        #: hosts with the same hypervisor and CPU
        self.hypervisors = Kinds(self)
        #: hosts in the same host aggregates
        self.host_aggregates = Kinds(self)
        self.devices = Kinds(self)
        self.numa = NumaColumns(self)
        self.traits = BitColumns(self)
        self.aggregates = BitColumns(self)
        self.rooms: dict[str, RoomColumns] = {}
        #: hosts by code of ``closed``
        self.closed_counts = [0] * len(CLOSED_CODES)
        self.down_count = 0
        self._tallies = {name: Counter[float]() for name in TALLIED}
        self._cells: dict[str, int] = {}

    def numbers(self, name: str, slots: IntArray | None) -> FloatArray:
        """The values of a column of numbers at ``slots``; None: at all slots, as an array that must not be changed."""
        values: FloatArray = getattr(self, name).array
        return values[: self.high] if slots is None else values.take(slots)

    def open_slot(self, slot: int, cell: str, identity: int) -> None:
        """Use a slot for a host."""
        self.high = max(self.high, slot + 1)
        self.cell.array[slot] = self.cell_code(cell)
        self.identity.array[slot] = identity
        self.closed.array[slot] = CODE_OF_CLOSED[Exclusion.NO_SERVICE]
        self.closed_counts[CODE_OF_CLOSED[Exclusion.NO_SERVICE]] += 1
        self.down_count += 1
        for tally in self._tallies.values():
            tally[0.0] += 1

    def clear(self, slot: int) -> None:
        """Free the slot of a host."""
        self.closed_counts[int(self.closed.array[slot])] -= 1
        self.down_count -= not self.up.array[slot]
        for name, tally in self._tallies.items():
            self._count(tally, float(getattr(self, name).array[slot]), -1)
        for rooms in self.rooms.values():
            rooms.put_units(slot, 1, 1, False)
            rooms.put_other_providers(slot, False, -1)
        for kinds in (self.hypervisors, self.host_aggregates, self.devices):
            kinds.clear(slot)
        super().clear(slot)

    def rooms_of(self, resource_class: str) -> RoomColumns:
        """The columns of a class, created when it first occurs.

        :raises TooManyClassesError: when there are ``CLASSES_MAX`` already
        """
        found = self.rooms.get(resource_class)
        if found is None:
            if len(self.rooms) >= CLASSES_MAX:
                raise TooManyClassesError(f"{resource_class}: there are {CLASSES_MAX} resource classes already")
            found = self.rooms[resource_class] = RoomColumns(self)
        return found

    def has_place_for(self, classes: Iterable[str]) -> bool:
        """Whether these classes, together with the present ones, are not too many."""
        return len(self.rooms) + sum(name not in self.rooms for name in classes) <= CLASSES_MAX

    def forget_unused_classes(self) -> None:
        """Free the columns of classes that no row has.  The caller forgets its references to them."""
        unused = {name: rooms for name, rooms in self.rooms.items() if rooms.is_unused}
        self.rooms = {name: rooms for name, rooms in self.rooms.items() if name not in unused}
        self.remove(column for rooms in unused.values() for column in rooms.all)

    def cell_code(self, cell: str) -> int:
        """The number of a cell."""
        return self._cells.setdefault(cell, len(self._cells))

    def put_closed(self, slot: int, code: int) -> None:
        """Set why the host is not considered; 0 if it is considered."""
        before = self.closed.cells[slot]
        if before != code:
            self.closed_counts[before] -= 1
            self.closed_counts[code] += 1
            self.closed.cells[slot] = code

    def put_up(self, slot: int, up: bool) -> None:
        """Set whether the service of the host takes servers."""
        before = self.up.cells[slot]
        if before != up:
            self.down_count += 1 if before else -1
            self.up.cells[slot] = up

    def put_tallied(self, name: str, slot: int, value: float) -> None:
        """Set a value of one of the columns ``TALLIED``."""
        column: Column = getattr(self, name)
        before = column.cells[slot]
        if before != value:
            tally = self._tallies[name]
            self._count(tally, before, -1)
            tally[value] += 1
            column.cells[slot] = value

    def is_uniform(self, name: str) -> bool:
        """Whether all hosts are known to have the same value in this column."""
        tally = self._tallies.get(name)
        return tally is not None and len(tally) <= 1

    @staticmethod
    def _count(tally: Counter[float], value: float, by: int) -> None:
        tally[value] += by
        if tally[value] <= 0:
            del tally[value]
