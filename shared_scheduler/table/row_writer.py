# SPDX-License-Identifier: Apache-2.0
"""The only writer of rows: stores the reports of a node's agent (or of the databases), and derives data from them.

Derived data is written to the columns, or to the row if it is needed again.  ``DirtyFlags`` are the parts that must be
derived again after a leaf has changed.  The overlay (``table/assumed_claims.py``) owns the claims of a row and decides
how long each of their parts is counted; it counts them with the methods of this class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from shared_scheduler.model import leaves
from shared_scheduler.model.interning import NOTHING, POOL_MAX, Pool
from shared_scheduler.model.leaves import PROVIDER
from shared_scheduler.model.providers import Provider, providers_of
from shared_scheduler.model.resources import Inventory, add_amounts, used_of
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.model.topology import has_threads, host_cells
from shared_scheduler.protocol.memo import Memo
from shared_scheduler.protocol.messages import Allocations, Consumer, Leaf, Usage
from shared_scheduler.table.group_members import GroupMembers
from shared_scheduler.table.host_columns import HostColumns
from shared_scheduler.table.numbers import MIB_PER_GIB, DefaultRatios, PendingUsage, raw_numbers, topology_ratios, whole
from shared_scheduler.table.row import (
    CODE_OF_CLOSED,
    NO_INVENTORY,
    CapacityBase,
    CompactConsumer,
    Exclusion,
    Freshness,
    RootInventory,
    Row,
    StoredConsumer,
    amounts_of,
    compact,
)
from shared_scheduler.table.row_size import LEAF_BYTES, PENDING_BYTES, size_of_consumer, size_of_leaf

#: the largest count of Nova's PCI weigher (nova/scheduler/weights/pci.py)
PCI_DEVICES_MAX = 100
#: A consumer that is kept for equal ones counts once for so many amounts; most have three.
AMOUNTS_OF_ONE = 4
#: cached leaf names of a table, so that a lookup is one dictionary access; a node has some dozens
LEAF_NAMES_MAX = 65_536


class DirtyFlags:
    """Parts of a row that must be derived again.

    The flags are bits of a plain int, because the ``|`` of an enum would be the most expensive step of applying an
    increment.
    """

    NOTHING = 0
    MOVED = 1  # numbers that boots and deletes change, each with its own column
    POOLS = 2  # free PCI devices
    PROVIDERS = 4  # the mirror of the provider tree
    STATIC = 8  # anything else that changes rarely
    READY = 16  # whether the agent takes claims
    NUMA = 64  # the free parts of NUMA cells
    NUMBERS = 32  # totals: derive all numbers again


_EXACT = {
    "cn.vcpus": DirtyFlags.NUMBERS,
    "cn.vcpus_used": DirtyFlags.MOVED,
    "cn.memory_mb_used": DirtyFlags.NOTHING,
    "cn.free_ram_mb": DirtyFlags.MOVED,
    "cn.local_gb_used": DirtyFlags.NOTHING,
    "cn.free_disk_gb": DirtyFlags.MOVED,
    "cn.disk_available_least": DirtyFlags.NUMBERS,
    "cn.cpu_allocation_ratio": DirtyFlags.NUMBERS,
    "stats.num_instances": DirtyFlags.MOVED,
    "stats.io_workload": DirtyFlags.MOVED,
    "stats.failed_builds": DirtyFlags.NUMBERS,
    "cn.running_vms": DirtyFlags.NOTHING,
    "cn.metrics": DirtyFlags.NOTHING,
    "cn.current_workload": DirtyFlags.NOTHING,
    leaves.AGENT_READY: DirtyFlags.READY,
    **{name: DirtyFlags.STATIC for name in leaves.HYPERVISOR},
}
_PREFIXES = (
    (leaves.STATS, DirtyFlags.NOTHING),
    (leaves.IMAGE_PROPERTY, DirtyFlags.NOTHING),
    (leaves.PROVIDER, DirtyFlags.PROVIDERS),
    (leaves.PCI_STATIC, DirtyFlags.STATIC | DirtyFlags.POOLS),
    (leaves.PCI, DirtyFlags.POOLS),
    (leaves.NUMA_STATIC, DirtyFlags.STATIC),
    (leaves.NUMA, DirtyFlags.NUMA),
)


def dirty_flags_of(name: str) -> int:
    """The parts that a change of the leaf ``name`` affects, besides the row itself."""
    found = _EXACT.get(name)
    if found is not None:
        return found
    return next((flags for prefix, flags in _PREFIXES if name.startswith(prefix)), DirtyFlags.STATIC)


_MAY_BE_SHARED = DirtyFlags.STATIC | DirtyFlags.PROVIDERS
_NUMBERS = DirtyFlags.MOVED | DirtyFlags.NUMBERS
_CELLS = DirtyFlags.NUMA | DirtyFlags.STATIC | DirtyFlags.NUMBERS
#: types of the values that boots and deletes change
NUMBERS = frozenset({int, float})
#: the flag for changes of boots and deletes, as a global name, because it is compared for each increment
MOVED = DirtyFlags.MOVED


class Members:
    """The places of all instances, including own outstanding claims."""

    def __init__(self) -> None:
        self._at: dict[str, int | tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self._at)

    def add(self, uuid: str, slot: int) -> None:
        """Add a place of an instance; it may have several."""
        if self._at.setdefault(uuid, slot) == slot:
            return
        before = self.slots(uuid)
        if slot not in before:
            self._at[uuid] = (*before, slot)

    def discard(self, uuid: str, slot: int) -> None:
        """Remove a place of an instance."""
        left = tuple(one for one in self.slots(uuid) if one != slot)
        if not left:
            self._at.pop(uuid, None)
        else:
            self._at[uuid] = left[0] if len(left) == 1 else left

    def forget(self, uuids: Iterable[str]) -> None:
        """Remove all places of these instances."""
        for uuid in uuids:
            self._at.pop(uuid, None)

    def slots(self, uuid: str) -> tuple[int, ...]:
        """Every slot with the instance."""
        found = self._at.get(uuid)
        if found is None:
            return ()
        return found if isinstance(found, tuple) else (found,)


class RowWriter:
    """Writes every field of a row except ``claims``.  ``sharing`` are the sharing providers of other trees."""

    def __init__(self, columns: HostColumns, ratios: DefaultRatios) -> None:
        #: the places of instances, including own outstanding claims
        self.members = Members()
        #: the instances of each server group
        self.groups = GroupMembers()
        self.sharing: Mapping[str, Provider] = {}
        self._columns = columns
        self._ratios = ratios
        self._pool = Pool()
        self._flags: Memo[str, int] = Memo(LEAF_NAMES_MAX)
        #: the names of one increment, all of numbers that boots change -> what they affect; few sets of names occur
        self._moved: Memo[tuple[str, ...], int] = Memo(LEAF_NAMES_MAX)
        #: consumers with equal amounts are one object
        self._stored: Memo[CompactConsumer, StoredConsumer] = Memo(POOL_MAX)
        self._names: Memo[str, str] = Memo(LEAF_NAMES_MAX)

    def copy_for(self, columns: HostColumns) -> RowWriter:
        """A writer of copied rows to copied columns.  ``index`` adds the members of its rows."""
        found = RowWriter(columns, self._ratios)
        found.sharing = self.sharing
        found._names.update(self._names)
        found._names.was_emptied, found._names.weight = self._names.was_emptied, self._names.weight
        return found

    def index(self, row: Row) -> None:
        """Add the instances and groups of a copied row."""
        for uuid, stored in row.consumers.items():
            if stored.member:
                self.members.add(uuid, row.slot)
        for uuid, group in row.groups.items():
            if row.consumers[uuid].member:
                self.groups.add(group, uuid, row.slot)
        for claim in row.claims.values():
            self.update_member(row, claim.consumer)
            if claim.group:
                self.groups.add(claim.group, claim.consumer, row.slot)

    # -- reports of a node

    def load(
        self,
        row: Row,
        leaves: Mapping[str, Leaf],
        consumers: Mapping[str, Consumer],
        pending: Mapping[str, str],
        epoch: int,
        sequence: int,
    ) -> None:
        """Replace everything.  A leaf with the value None does not exist."""
        known, pool, shares = self._names, self._pool, self._pool.shares
        row.epoch, row.sequence, row.added_bytes = epoch, sequence, 0
        row.leaves = {
            known.get(name) or known.learn(name, name): (
                value if shares.get(name) is NOTHING else pool.leaf(name, value)  # most are not, and need no call
            )
            for name, value in leaves.items()
            if value is not None
        }
        for gone in row.consumers.keys() - consumers.keys():
            self._put_consumer(row, gone, None)
        for uuid, consumer in consumers.items():
            self._put_consumer(row, uuid, consumer)
        row.pending = dict(pending)
        self.derive_static(row)
        self.derive_providers(row)
        self.derive_pools(row)
        self.derive_cells(row)
        self.derive_numbers(row)

    def apply(
        self,
        row: Row,
        leaves: Mapping[str, Leaf],
        consumers: Mapping[str, Consumer | None],
        pending: Mapping[str, str | None],
        epoch: int,
        sequence: int,
    ) -> int:
        """Apply changes; returns the parts of the row that they affect."""
        row.epoch, row.sequence = epoch, sequence
        dirty = self._put_leaves(row, leaves) if leaves else 0
        other_providers = False
        for uuid, consumer in consumers.items():
            other_providers |= self._put_consumer(row, uuid, consumer)
        if other_providers:
            self.derive_other_providers(row)
        if pending:
            self._put_pending(row, pending)
        if dirty == MOVED:
            self.derive_moved_numbers(row, leaves)
        elif dirty:
            self._derive(row, dirty)
        return dirty

    def may_have(self, name: str) -> bool:
        """False if no row has ever had a leaf of this name."""
        return name in self._names or self._names.was_emptied

    def _put_leaves(self, row: Row, leaves: Mapping[str, Leaf]) -> int:
        names, before = tuple(leaves), len(row.leaves)
        numbers = NUMBERS.issuperset(map(type, leaves.values()))
        dirty = self._moved.get(names) if numbers else None
        if dirty is not None:  # the usual case
            row.leaves.update(leaves)
        else:
            dirty = self._put_each_leaf(row, leaves)
            if numbers and dirty <= MOVED:
                self._moved.learn(names, dirty, len(names))
        if (added := len(row.leaves) - before) > 0:
            row.added_bytes += LEAF_BYTES * added
        return dirty

    def _put_each_leaf(self, row: Row, leaves: Mapping[str, Leaf]) -> int:
        dirty, own, known = 0, row.leaves, self._flags
        for name, value in leaves.items():
            flags = known.get(name)
            if flags is None:
                flags = self._learn(name)
            if flags <= MOVED and type(value) in NUMBERS:
                own[name] = value
            else:
                flags = self._put_rare_leaf(row, name, value, flags)
            dirty |= flags
        return dirty

    def _put_rare_leaf(self, row: Row, name: str, value: Leaf, flags: int) -> int:
        """Store a leaf that was removed or may be shared; returns the parts that the change affects."""
        if value is None:
            row.leaves.pop(name, None)
            return flags | DirtyFlags.READY | DirtyFlags.NUMBERS
        if flags & DirtyFlags.PROVIDERS and _put_generation(row, name, value):
            return DirtyFlags.NOTHING
        row.added_bytes += size_of_leaf(value)
        row.leaves[name] = self._pool.leaf(name, value) if flags & _MAY_BE_SHARED else value
        return flags

    def _learn(self, name: str) -> int:
        self._names.get(name) or self._names.learn(name, name)
        return self._flags.learn(name, dirty_flags_of(name))

    def _put_consumer(self, row: Row, uuid: str, consumer: Consumer | None) -> bool:
        """Store a consumer; returns whether it takes, or took, from another provider than the root."""
        before = row.consumers.get(uuid)
        if row.groups or (consumer is not None and consumer.group):
            self._put_group(row, uuid, consumer)
        if consumer is None:
            return before is not None and self._drop(row, uuid, before)
        key = compact(row.node, consumer)
        after = self._stored.get(key) or self._store(key)
        if after is before:
            return False
        other_providers = before is not None and self._drop(row, uuid, before)
        row.consumers[uuid] = after
        row.added_bytes += size_of_consumer(after)
        if after.root:
            self.count_root_amounts(row, after.root, 1)
        if after.member:
            self.members.add(uuid, row.slot)
        return other_providers if not after.others else _use_others(row, after, 1)

    def _put_group(self, row: Row, uuid: str, consumer: Consumer | None) -> None:
        """Store the group of a consumer, before the consumer itself.  It has the consumer while that is a member: a
        deleted server is none, although Placement may have its allocations for some time."""
        group, stored = "" if consumer is None else consumer.group, row.consumers.get(uuid)
        before = row.groups.get(uuid, "") if stored is not None and stored.member else ""
        after = group if consumer is not None and consumer.member else ""
        if group:
            row.groups[uuid] = group
        else:
            row.groups.pop(uuid, None)
        if before == after:
            return
        if before:
            self.groups.discard(before, uuid, row.slot)
        if after:
            self.groups.add(after, uuid, row.slot)

    def _drop(self, row: Row, uuid: str, stored: StoredConsumer) -> bool:
        del row.consumers[uuid]
        if stored.root:
            self.count_root_amounts(row, stored.root, -1)
        if stored.member and not row.is_member(uuid):
            self.members.discard(uuid, row.slot)
        return bool(stored.others) and _use_others(row, stored, -1)

    def _store(self, key: CompactConsumer) -> StoredConsumer:
        stored = StoredConsumer(*key)
        return self._stored.learn(key, stored, 1 + amounts_of(stored) // AMOUNTS_OF_ONE)

    def _put_pending(self, row: Row, pending: Mapping[str, str | None]) -> None:
        row.added_bytes += PENDING_BYTES * len(pending)
        for claim_id, consumer in pending.items():
            if consumer is None:
                row.pending.pop(claim_id, None)
            else:
                row.pending[claim_id] = consumer

    def _derive(self, row: Row, dirty: int) -> None:
        if dirty & _NUMBERS:
            self.derive_numbers(row)
        if dirty & DirtyFlags.POOLS:
            self.derive_pools(row)
        if dirty & DirtyFlags.PROVIDERS:
            self.derive_providers(row)
        if dirty & DirtyFlags.STATIC:
            self.derive_static(row)
        if dirty & _CELLS:
            self.derive_cells(row)

    # -- own claims

    def count_allocations(self, row: Row, allocations: Allocations, sign: int) -> None:
        """Add the allocations of a claim to the used amounts, or subtract them with ``sign=-1``."""
        add_amounts(row.used, allocations, sign)
        self.derive_rooms(row, allocations.get(row.node, {}))
        if any(provider != row.node for provider in allocations):
            self.derive_other_providers(row)

    def count_usage(self, row: Row, usage: Usage, sign: int) -> None:
        """Add the usage of a claim to the numbers of the row, or subtract it with ``sign=-1``."""
        if row.extra is None:
            row.extra = PendingUsage()
        row.extra.add(usage, sign)
        self.derive_numbers(row)

    def forget_usage(self, row: Row) -> None:
        """Reset the pending usage, because no claim is left."""
        row.extra = None

    def forget_members(self, row: Row) -> None:
        """Remove the instances of a row that is removed."""
        for uuid, stored in row.consumers.items():
            if stored.member:
                self.members.discard(uuid, row.slot)
        for uuid in list(row.groups):
            self._put_group(row, uuid, None)

    def set_freshness(self, row: Row, freshness: Freshness) -> None:
        """Set the freshness of a row."""
        row.freshness = freshness

    def update_member(self, row: Row, instance: str) -> None:
        """Update the place of an instance after it may have become, or ceased to be, a member of the node."""
        if row.is_member(instance):
            self.members.add(instance, row.slot)
        else:
            self.members.discard(instance, row.slot)

    # -- derived data

    def derive_numbers(self, row: Row) -> None:
        """Derive the numbers that boots and deletes change."""
        numbers = raw_numbers(row.leaves, row.extra, self._ratios)
        if numbers is None:
            row.steady = None
            return
        columns, slot = self._columns, row.slot
        total, used, ratio, ram_mb, disk_mb, instances, io_ops, failed = numbers
        least_gb: Any = row.leaves.get("cn.disk_available_least")
        steady = CapacityBase(total * ratio, least_gb)
        row.steady = self._pool.same(steady, steady)
        free = total * ratio - used
        columns.free_vcpus.cells[slot] = free if free > 0 else 0
        columns.free_ram_mb.cells[slot] = ram_mb if ram_mb > 0 else 0
        columns.free_disk_mb.cells[slot] = disk_mb if disk_mb > 0 else 0
        columns.num_instances.cells[slot] = instances
        columns.num_io_ops.cells[slot] = io_ops
        if columns.failed_builds.cells[slot] != failed:
            columns.put_tallied("failed_builds", slot, failed)

    def derive_moved_numbers(self, row: Row, news: Mapping[str, Any]) -> None:
        """Derive the numbers if only ``news`` have changed, none of them None, and all of them are leaves that boots
        and deletes change (``DirtyFlags.MOVED``): each is written to its own column."""
        steady = row.steady
        if steady is None or row.extra is not None:
            self.derive_numbers(row)
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

    def derive_pools(self, row: Row) -> None:
        """Derive free PCI devices, with own outstanding claims subtracted."""
        its = {name: leaf for name, leaf in row.leaves.items() if name.startswith(leaves.PCI)}
        for take in row.takes():
            take.consume_from(its)
        free = sum(
            value for name, value in its.items() if isinstance(value, int) and not name.startswith(leaves.PCI_STATIC)
        )
        weight = PCI_DEVICES_MAX - min(free, PCI_DEVICES_MAX - 1)
        self._columns.put_tallied("pci_weight", row.slot, weight)
        self._columns.devices.put(row.slot, repr(its))

    def derive_cells(self, row: Row) -> None:
        """Derive NUMA cells, with own outstanding claims subtracted."""
        known, numa = row.leaves, self._columns.numa
        if leaves.NUMA_STATIC not in known:
            numa.clear(row.slot)
            return
        takes = row.takes()
        found = dict(known) if takes else known
        for take in takes:
            take.consume_from(found)
        cpu, ram = topology_ratios(known, self._ratios)
        numa.put(row.slot, host_cells(found), has_threads(known), cpu, ram)

    def derive_static(self, row: Row) -> None:
        """Derive rarely changing data that does not depend on providers."""
        self.put_name(row, row.leaves.get(leaves.NODENAME))
        version = row.leaves.get("cn.hypervisor_version")
        number = float(version) if isinstance(version, int | float) else 0.0
        self._columns.put_tallied("hypervisor_version", row.slot, number)
        facts = repr([row.leaves.get(name) for name in leaves.HYPERVISOR])
        self._columns.hypervisors.put(row.slot, facts)

    def put_name(self, row: Row, nodename: Leaf) -> None:
        """Name the node; what is no name changes nothing: nova-compute has not reported to the agent yet."""
        if isinstance(nodename, str) and nodename:
            row.nodename = nodename

    def derive_exclusion(self, row: Row, service: ServiceFacts | None, cell_disabled: bool) -> None:
        """Derive whether the host is considered at all."""
        why = _why_closed(row, service, cell_disabled)
        self._columns.put_closed(row.slot, CODE_OF_CLOSED[why] if why else 0)
        self._columns.put_up(row.slot, service is not None and service.takes_servers)

    def derive_providers(self, row: Row) -> None:
        """Parse the provider tree, and derive all data that depends on it."""
        row.providers = providers_of(row.leaves, self._pool)
        root = row.providers.get(row.node)
        self._make_place(row)
        row.root = NO_INVENTORY if root is None else self._root_inventory(root.inventories)
        self._columns.traits.put(row.slot, root.traits if root else frozenset())
        self._columns.aggregates.put(row.slot, root.aggregates if root else frozenset())
        self.derive_other_providers(row)
        self._units(row)
        self.derive_rooms(row, self._columns.rooms.keys() | row.root.limits.keys())

    def _make_place(self, row: Row) -> None:
        """Forget unused classes if those of the row would be too many.  The pool refers to columns of classes."""
        classes = {rc for provider in row.providers.values() for rc in provider.inventories}
        if not self._columns.has_place_for(classes):
            self._columns.forget_unused_classes()
            self._pool = Pool()

    def _root_inventory(self, inventories: Mapping[str, Inventory]) -> RootInventory:
        # keyed by identity: equal inventories are one object already, and the value keeps it alive
        return self._pool.made(
            ("root", id(inventories)),
            lambda: RootInventory(
                inventories,
                {rc: (i.capacity, i.max_unit, self._columns.rooms_of(rc).room) for rc, i in inventories.items()},
            ),
        )

    def _units(self, row: Row) -> None:
        for rc in self._columns.rooms.keys() | row.root.inventories.keys():
            inventory = row.root.inventories.get(rc)
            min_unit, step_size = (inventory.min_unit, inventory.step_size) if inventory else (1, 1)
            self._columns.rooms_of(rc).put_units(row.slot, min_unit, step_size, inventory is not None)

    def derive_other_providers(self, row: Row) -> None:
        """Derive the classes of other providers."""
        found: dict[str, int] = {}
        for provider in self._others(row):
            for rc, inventory in provider.inventories.items():
                found[rc] = max(found.get(rc, -1), _room_of(row, provider, rc, inventory))
        row.other_provider_classes = self._pool.same(frozenset(found), frozenset(found))
        for rc in self._columns.rooms.keys() | found.keys():
            self._columns.rooms_of(rc).put_other_providers(row.slot, rc in found, found.get(rc, -1))

    def _others(self, row: Row) -> list[Provider]:
        """Descendants of the root, and sharing providers."""
        tree = [p for uuid, p in row.providers.items() if uuid != row.node]
        return [*tree, *self.sharing_with(row)]

    def sharing_with(self, row: Row) -> tuple[Provider, ...]:
        """Sharing providers of other trees with an aggregate in common."""
        if not self.sharing:
            return ()
        aggregates = frozenset[str]().union(*(p.aggregates for p in row.providers.values()))
        return tuple(p for uuid, p in self.sharing.items() if uuid not in row.providers and p.aggregates & aggregates)

    def count_root_amounts(self, row: Row, amounts: Iterable[tuple[str, int]], sign: int) -> None:
        """Count amounts of the root provider, and update the room of their classes."""
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

    def derive_rooms(self, row: Row, classes: Iterable[str]) -> None:
        """Derive the room of the root provider for these classes."""
        used = row.used.get(row.node, {})
        for rc in classes:
            self._room(row, rc, used.get(rc, 0))

    def _room(self, row: Row, resource_class: str, used: int) -> None:
        limit = row.root.limits.get(resource_class)
        if limit is not None:
            self._columns.rooms_of(resource_class).room.cells[row.slot] = min(limit[0] - used, limit[1])
        elif resource_class in self._columns.rooms:  # a class that only consumers name has no column
            self._columns.rooms[resource_class].room.cells[row.slot] = -1


def _room_of(row: Row, provider: Provider, rc: str, inventory: Inventory) -> int:
    """The room of another provider.

    The usage of a sharing provider by other nodes is not known here, so its room is an upper bound.
    """
    used = used_of(row.used, provider.uuid, rc)
    return min(inventory.capacity - used, inventory.max_unit)


def _why_closed(row: Row, service: ServiceFacts | None, cell_disabled: bool) -> Exclusion | None:
    if row.leaves.get("cn.free_disk_gb") is None or not row.nodename:
        return Exclusion.NEVER_REPORTED
    if row.freshness is Freshness.STALE:
        return Exclusion.STALE
    if row.leaves.get(leaves.AGENT_READY) is False:
        return Exclusion.NOT_READY
    if service is None:
        return Exclusion.NO_SERVICE
    return Exclusion.CELL_DISABLED if cell_disabled else None


def _use_others(row: Row, stored: StoredConsumer, sign: int) -> bool:
    """Count the amounts of other providers than the root; always True, because there are some."""
    for provider, amounts in stored.others:
        add_amounts(row.used, {provider: dict(amounts)}, sign)
    return True


def _put_generation(row: Row, name: str, value: Leaf) -> bool:
    """Store a provider's leaf if only its generation differs, which each write of an allocation changes."""
    before = row.leaves.get(name)
    if not isinstance(value, dict) or not isinstance(before, dict):
        return False
    after: dict[str, Leaf] = before | {"generation": value.get("generation")}
    if after != value:
        return False
    row.leaves[name] = after
    uuid, generation = name.removeprefix(PROVIDER), after["generation"]
    number = generation if isinstance(generation, int) else 0
    row.providers = {**row.providers, uuid: replace(row.providers[uuid], generation=number)}
    return True
