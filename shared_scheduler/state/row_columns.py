# SPDX-License-Identifier: Apache-2.0
"""Writes what follows from a row into the columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shared_scheduler.state import leaves
from shared_scheduler.state.host_columns import HostColumns
from shared_scheduler.state.numa_cells import has_threads, host_cells
from shared_scheduler.state.numbers import (
    MIB_PER_GIB,
    DefaultRatios,
    raw_numbers,
    topology_ratios,
    whole,
)
from shared_scheduler.state.pool import Pool
from shared_scheduler.state.providers import Provider, providers_of
from shared_scheduler.state.resources import Inventory, used_of
from shared_scheduler.state.row import (
    CODE_OF_CLOSED,
    NO_INVENTORY,
    Closed,
    Freshness,
    RootInventory,
    Row,
    Steady,
)
from shared_scheduler.state.services import ServiceFacts

#: Nova's PCI weigher looks no further (nova/scheduler/weights/pci.py)
PCI_DEVICES_MAX = 100


class RowWriter:
    """Derived values of rows.  ``sharing`` are the providers that other trees may take from."""

    def __init__(self, columns: HostColumns, ratios: DefaultRatios, pool: Pool) -> None:
        self._columns = columns
        self._ratios = ratios
        self._pool = pool
        self.sharing: Mapping[str, Provider] = {}

    def numbers(self, row: Row) -> None:
        """What boots and deletes move."""
        numbers = raw_numbers(row.leaves, row.extra, self._ratios)
        if numbers is None:
            row.steady = None
            return
        columns, slot = self._columns, row.slot
        total, used, ratio, ram_mb, disk_mb, instances, io_ops, failed = numbers
        least_gb: Any = row.leaves.get("cn.disk_available_least")
        steady = Steady(total * ratio, least_gb)
        row.steady = self._pool.same(steady, steady)
        free = total * ratio - used
        columns.free_vcpus.cells[slot] = free if free > 0 else 0
        columns.free_ram_mb.cells[slot] = ram_mb if ram_mb > 0 else 0
        columns.free_disk_mb.cells[slot] = disk_mb if disk_mb > 0 else 0
        columns.num_instances.cells[slot] = instances
        columns.num_io_ops.cells[slot] = io_ops
        if columns.failed_builds.cells[slot] != failed:
            columns.put_tallied("failed_builds", slot, failed)

    def moved(self, row: Row, news: Mapping[str, Any]) -> None:
        """The same where ``news``, none of them None, are all that changed: of the leaves that boots
        and deletes move (``Touch.MOVED``), only those, each to its own column."""
        steady = row.steady
        if steady is None or row.extra is not None:
            self.numbers(row)
            return
        columns, slot, get = self._columns, row.slot, news.get
        if (used := get("cn.vcpus_used")) is not None:
            free = steady.vcpus - used
            columns.free_vcpus.cells[slot] = free if free > 0 else 0
        if (ram_mb := get("cn.free_ram_mb")) is not None:
            columns.free_ram_mb.cells[slot] = ram_mb if ram_mb > 0 else 0
        if (free_gb := get("cn.free_disk_gb")) is not None:
            least_gb = steady.least_gb
            disk_mb = (free_gb if least_gb is None or free_gb < least_gb else least_gb) * MIB_PER_GIB
            columns.free_disk_mb.cells[slot] = disk_mb if disk_mb > 0 else 0
        if (instances := get("stats.num_instances")) is not None:
            columns.num_instances.cells[slot] = whole(instances)
        if (io_ops := get("stats.io_workload")) is not None:
            columns.num_io_ops.cells[slot] = whole(io_ops)

    def pools(self, row: Row) -> None:
        """Free PCI devices, own outstanding claims taken off."""
        its = {name: leaf for name, leaf in row.leaves.items() if name.startswith(leaves.PCI)}
        for take in row.takes():
            take.add_to(its)
        free = sum(
            value
            for name, value in its.items()
            if isinstance(value, int) and not name.startswith(leaves.PCI_STATIC)
        )
        weight = PCI_DEVICES_MAX - min(free, PCI_DEVICES_MAX - 1)
        self._columns.put_tallied("pci_weight", row.slot, weight)
        self._columns.devices.put(row.slot, repr(its))

    def cells(self, row: Row) -> None:
        """NUMA cells, own outstanding claims taken off."""
        known, numa = row.leaves, self._columns.numa
        if leaves.NUMA_STATIC not in known:
            numa.clear(row.slot)
            return
        takes = row.takes()
        found = dict(known) if takes else known
        for take in takes:
            take.add_to(found)
        cpu, ram = topology_ratios(known, self._ratios)
        numa.put(row.slot, host_cells(found), has_threads(known), cpu, ram)

    def static(self, row: Row) -> None:
        """What is rare and no provider."""
        version = row.leaves.get("cn.hypervisor_version")
        number = float(version) if isinstance(version, int | float) else 0.0
        self._columns.put_tallied("hypervisor_version", row.slot, number)
        facts = repr([row.leaves.get(name) for name in leaves.HYPERVISOR])
        self._columns.hypervisors.put(row.slot, facts)

    def closed(self, row: Row, service: ServiceFacts | None, cell_disabled: bool) -> None:
        """Whether the host is considered at all."""
        why = _why_closed(row, service, cell_disabled)
        self._columns.put_closed(row.slot, CODE_OF_CLOSED[why] if why else 0)
        self._columns.put_up(row.slot, service is not None and service.takes_servers)

    def providers(self, row: Row) -> None:
        """Parse the tree again, and all that hangs on it."""
        row.providers = providers_of(row.leaves, self._pool)
        root = row.providers.get(row.node)
        row.root = NO_INVENTORY if root is None else self._root_inventory(root.inventories)
        self._columns.traits.put(row.slot, root.traits if root else frozenset())
        self._columns.aggregates.put(row.slot, root.aggregates if root else frozenset())
        self.elsewhere(row)
        self._units(row)
        self.rooms(row, self._columns.rooms.keys() | row.root.limits.keys())

    def _root_inventory(self, inventories: Mapping[str, Inventory]) -> RootInventory:
        # keyed by identity: equal inventories are one object already, and kept alive by the value
        return self._pool.made(
            ("root", id(inventories)),
            lambda: RootInventory(
                inventories,
                {
                    rc: (i.capacity, i.max_unit, self._columns.rooms_of(rc).room)
                    for rc, i in inventories.items()
                },
            ),
        )

    def _units(self, row: Row) -> None:
        for rc in self._columns.rooms.keys() | row.root.inventories.keys():
            inventory = row.root.inventories.get(rc)
            min_unit, step_size = (inventory.min_unit, inventory.step_size) if inventory else (1, 1)
            self._columns.rooms_of(rc).put_units(row.slot, min_unit, step_size)

    def elsewhere(self, row: Row) -> None:
        """Which classes other providers may give."""
        found: dict[str, int] = {}
        for provider in self._others(row):
            for rc, inventory in provider.inventories.items():
                found[rc] = max(found.get(rc, -1), _room_of(row, provider, rc, inventory))
        row.elsewhere = self._pool.same(frozenset(found), frozenset(found))
        for rc in self._columns.rooms.keys() | found.keys():
            self._columns.rooms_of(rc).put_elsewhere(row.slot, rc in found, found.get(rc, -1))

    def _others(self, row: Row) -> list[Provider]:
        """Descendants of the root, and what others share with it."""
        tree = [p for uuid, p in row.providers.items() if uuid != row.node]
        return [*tree, *self.sharing_with(row)]

    def sharing_with(self, row: Row) -> tuple[Provider, ...]:
        """Sharing providers of other trees with an aggregate in common."""
        if not self.sharing:
            return ()
        aggregates = frozenset[str]().union(*(p.aggregates for p in row.providers.values()))
        return tuple(
            p
            for uuid, p in self.sharing.items()
            if uuid not in row.providers and p.aggregates & aggregates
        )

    def use(self, row: Row, amounts: Iterable[tuple[str, int]], sign: int) -> None:
        """Count amounts of the root provider, and what room is left of their classes."""
        used = row.used.get(row.node)
        if used is None:
            used = row.used[row.node] = {}
        limits, slot = row.root.limits, row.slot
        for rc, amount in amounts:
            now = used.get(rc, 0) + sign * amount
            if now:
                used[rc] = now
            else:
                used.pop(rc, None)
            limit = limits.get(rc)
            if limit is None:
                self._room(row, rc, now)
                continue
            capacity, most, room = limit
            free = capacity - now
            room.cells[slot] = free if free < most else most

    def rooms(self, row: Row, classes: Iterable[str]) -> None:
        """The root's free room of these classes."""
        used = row.used.get(row.node, {})
        for rc in classes:
            self._room(row, rc, used.get(rc, 0))

    def _room(self, row: Row, resource_class: str, used: int) -> None:
        cells = self._columns.rooms_of(resource_class).room.cells
        limit = row.root.limits.get(resource_class)
        cells[row.slot] = -1 if limit is None else min(limit[0] - used, limit[1])


def _room_of(row: Row, provider: Provider, rc: str, inventory: Inventory) -> int:
    """The largest amount that another provider gives.

    What others use of a sharing provider is not known here, so its room is what it has at most.
    """
    used = used_of(row.used, provider.uuid, rc)
    return min(inventory.capacity - used, inventory.max_unit)


def _why_closed(row: Row, service: ServiceFacts | None, cell_disabled: bool) -> Closed | None:
    if row.leaves.get("cn.free_disk_gb") is None:
        return Closed.NEVER_REPORTED
    if row.freshness is Freshness.STALE:
        return Closed.STALE
    if row.leaves.get(leaves.AGENT_READY) is False:
        return Closed.NOT_READY
    if service is None:
        return Closed.NO_SERVICE
    return Closed.CELL_DISABLED if cell_disabled else None


