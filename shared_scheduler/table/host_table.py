# SPDX-License-Identifier: Apache-2.0
"""The host table: one row per compute node, as objects to apply messages to and as columns to decide.

Rows have stable *slots*: a node keeps its slot as long as it is known, and slots of removed nodes are reused.  A row
consists of its *base*, the last report of the node's agent (or of the databases), and the overlay of own outstanding
claims (``table/assumed_claims.py``).  All derived data is updated when rows change: used amounts, free room by resource
class, the numbers that filters and weighers read.

``generation`` counts every change of the table.  The ``changed_at`` column holds the generation of a row's last change,
``static_at`` that of its last change of rarely changing data (traits, inventories, aggregates, service, static leaves),
and ``static_generation`` the newest of those.  A cache of data that is derived from rows compares generations, and
recomputes only the rows that have changed (``decision/masks.py``).

Methods by caller
    messages and database reads   upsert, remove, load, apply, set_freshness
    own claims                    assume, accepted, confirm, forget, is_outstanding,
                                  is_shown
    services, aggregates          set_service, forget_service, set_aggregates, update_aggregates,
                                  delete_aggregates, set_sharing, set_disabled_cells
    copies                        copy_with, index_rows, free_rows
    reading                       view, describe, digest, version, freshness, why_closed, nodes, slot_of, columns,
                                  sharing_with, owns, has_headroom, has_room, may_have_leaf, is_too_large

Only one thread may call the table at a time.  Other modules name nodes by uuid; slots are for columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any

import numpy as np

from shared_scheduler.model.aggregates import AggregateFacts, HostAggregates
from shared_scheduler.model.providers import Provider
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.model.topology import TopologyUsage
from shared_scheduler.protocol.digest import digest_of
from shared_scheduler.protocol.messages import Allocations, Consumer, Leaf, Usage
from shared_scheduler.table.assumed_claims import Overlay, has_headroom, has_room
from shared_scheduler.table.columns import IntArray
from shared_scheduler.table.host_columns import HostColumns
from shared_scheduler.table.host_view import HostView, described
from shared_scheduler.table.numbers import NOVA_DEFAULT_RATIOS, DefaultRatios
from shared_scheduler.table.row import (
    CLOSED_CODES,
    PART_AMOUNTS_MAX,
    Exclusion,
    Freshness,
    OwnClaim,
    Row,
    Version,
    amounts_of,
    groups_part_of_digest,
    part_of_digest,
    restore,
)
from shared_scheduler.table.row_size import is_too_large
from shared_scheduler.table.row_writer import DirtyFlags, RowWriter

#: changes that ``static_at`` records
RARE = DirtyFlags.STATIC | DirtyFlags.PROVIDERS
#: changes that may decide whether a host is considered: whether its agent takes claims, and its name
CLOSING = DirtyFlags.READY | DirtyFlags.STATIC


#: number of remembered changes; a power of two.  A reader that is further behind starts again, which is cheaper then
#: at the sizes that occur.
CHANGES_MAX = 1024


class ChangeLog:
    """Numbers the changes of a table (``generation``) and remembers the slots of the newest changes."""

    def __init__(self) -> None:
        self.generation = 1
        self._slots: IntArray = np.zeros(CHANGES_MAX, dtype=np.int64)
        self._cells = self._slots.data

    def note(self, slot: int) -> int:
        """Add a change of this slot; returns its generation."""
        self.generation = generation = self.generation + 1
        self._cells[generation % CHANGES_MAX] = slot
        return generation

    def since(self, generation: int) -> IntArray | None:
        """Slots that changed after ``generation``, possibly with duplicates; None: more than are remembered."""
        count = self.generation - generation
        if count > CHANGES_MAX:
            return None
        first = (generation + 1) % CHANGES_MAX
        if first + count <= CHANGES_MAX:
            return self._slots[first : first + count]
        return np.concatenate((self._slots[first:], self._slots[: first + count - CHANGES_MAX]))


class UnknownNodeError(KeyError):
    """The table has no row for this node; call ``upsert`` first."""


class HostTable:
    """The table; see the docstring of the module.  ``ratios`` are Nova's defaults for records without a ratio."""

    def __init__(self, ratios: DefaultRatios = NOVA_DEFAULT_RATIOS) -> None:
        self.columns = HostColumns()
        self.aggregates = HostAggregates()
        #: the numbered changes of all rows
        self.changes = ChangeLog()
        #: the generation of the last change of rarely changing data
        self.static_generation = 1
        #: the generation at which a node was last added or removed
        self.membership_generation = 1
        self.ratios = ratios
        self._writer = RowWriter(self.columns, ratios)
        self._overlay = Overlay(self._writer)
        #: the places of instances, including own outstanding claims
        self.members = self._writer.members
        #: the instances of each server group
        self.groups = self._writer.groups
        self._rows: list[Row | None] = []
        self._of_node: dict[str, Row] = {}
        self._free: list[int] = []
        self._of_host: dict[str, tuple[int, ...]] = {}
        self._crowded: set[str] = set()  # hosts with several nodes
        self._services: dict[str, ServiceFacts] = {}
        self._disabled_cells: frozenset[str] = frozenset()

    # -- nodes

    def __len__(self) -> int:
        return len(self._of_node)

    def __contains__(self, node: object) -> bool:
        return node in self._of_node

    def nodes(self) -> Iterator[str]:
        """All nodes, in the order in which they were added."""
        return iter(tuple(self._of_node))

    def upsert(self, node: str, cell: str, host: str, nodename: str) -> int:
        """Add the node, or move it; returns its slot.

        If the cell or host of the node has changed, its row is reset.  ``nodename`` is empty if it is not known; then
        the row keeps its name.  The leaf of the name replaces it (``RowWriter.put_name``).  A new row, or one that is
        reset, is not considered until ``load``, which derives its data.
        """
        known = self._of_node.get(node)
        if known is not None:
            if (known.cell, known.host) == (cell, host):
                self._name(known, nodename)
                return known.slot
            self.remove(node)
        slot = self._free.pop() if self._free else len(self._rows)
        self.columns.reserve(slot + 1)
        row = Row(slot, node, cell, host, nodename)
        if slot == len(self._rows):
            self._rows.append(row)
        else:
            self._rows[slot] = row
        self._of_node[node] = row
        self._put_host(host, tuple(sorted((*self._of_host.get(host, ()), slot))))
        self.columns.open_slot(slot, cell, _identity(node))
        self._closed(row)
        self._put_aggregates(row)
        self._moved(row)
        return slot

    def _name(self, row: Row, nodename: str) -> None:
        if nodename and row.nodename != nodename:
            self._writer.put_name(row, nodename)
            self._closed(row)
            self._static(row)

    def remove(self, node: str) -> None:
        """Remove the node and end its outstanding claims.  An unknown node is ignored."""
        row = self._of_node.pop(node, None)
        if row is None:
            return
        slot = row.slot
        self._overlay.drop(row)
        self._writer.forget_members(row)
        left = tuple(one for one in self._of_host[row.host] if one != slot)
        self._put_host(row.host, left)
        self._rows[slot] = None
        self._free.append(slot)
        self.columns.clear(slot)
        self._moved(row)

    def _put_host(self, host: str, slots: tuple[int, ...]) -> None:
        self._of_host[host] = slots
        if len(slots) > 1:
            self._crowded.add(host)
        else:
            self._crowded.discard(host)
        if not slots:
            del self._of_host[host]

    def slot_of(self, node: str) -> int | None:
        """The slot of a node; None if the node is unknown."""
        row = self._of_node.get(node)
        return None if row is None else row.slot

    def node_at(self, slot: int) -> str:
        """The node of a slot that is in use."""
        return self._row_at(slot).node

    def host_at(self, slot: int) -> str:
        """The service host of a slot that is in use."""
        return self._row_at(slot).host

    def is_member(self, node: str, instance: str) -> bool:
        """Whether an instance counts as being on this node, including own outstanding claims."""
        return self._row(node).is_member(instance)

    def consumer(self, node: str, uuid: str) -> Consumer | None:
        """A consumer of a node's base; None if there is no such consumer or node."""
        row = self._of_node.get(node)
        stored = None if row is None else row.consumers.get(uuid)
        return None if row is None or stored is None else restore(node, stored, row.groups.get(uuid, ""))

    def standing_on(self, hosts: Collection[str], uuid: str) -> Consumer | None:
        """All allocations of an instance, with their generation, if they are on one node of ``hosts``; None if that is
        not certain."""
        rows = [self._row_at(slot) for slot in self.members.slots(uuid)]
        found = [restore(row.node, row.consumers[uuid]) for row in rows if uuid in row.consumers]
        certain = len(found) == 1 and found[0].whole and rows[0].host in hosts
        return found[0] if certain and len(rows) == 1 else None

    def slots_of_host(self, host: str) -> tuple[int, ...]:
        """All nodes of one service host, lowest slot first."""
        return self._of_host.get(host, ())

    def crowded(self) -> Iterator[tuple[int, ...]]:
        """The slots of each service host that has several nodes."""
        return (self._of_host[host] for host in self._crowded)

    def slots_with(self, instance: str) -> tuple[int, ...]:
        """Slots of the service hosts with an instance; all nodes of such a host are included."""
        slots = self.members.slots(instance)
        if not self._crowded or not slots:
            return slots
        hosts = {self._row_at(slot).host for slot in slots}
        return tuple(slot for host in hosts for slot in self._of_host[host])

    def slots_where_built(self, instance: str) -> tuple[int, ...]:
        """Slots of the service hosts where nova-compute has an instance; all nodes of such a host are included."""
        slots = self.slots_with(instance)
        hosts = {self._row_at(slot).host for slot in slots if self._row_at(slot).is_built(instance)}
        return tuple(slot for slot in slots if self._row_at(slot).host in hosts)

    def members_at(self, instances: Iterable[str]) -> dict[int, int]:
        """The number of these instances on the service host of each slot, equal for all nodes of a host."""
        found: dict[int, int] = {}
        for uuid in instances:
            for slot in self.slots_with(uuid):
                found[slot] = found.get(slot, 0) + 1
        return found

    def rows(self) -> Iterator[Row]:
        """Every row, by slot.  Do not change them."""
        return (row for row in self._rows if row is not None)

    def row(self, slot: int) -> Row | None:
        """The row in a slot; None if the slot is free.  Do not change it."""
        return self._rows[slot] if slot < len(self._rows) else None

    def row_of(self, node: str) -> Row | None:
        """The row of a node; None if the node is unknown.  Do not change it."""
        return self._of_node.get(node)

    def cell_of(self, node: str) -> str:
        """The cell of a node that has a row."""
        return self._row(node).cell

    def _row_at(self, slot: int) -> Row:
        row = self._rows[slot]
        assert row is not None, f"slot {slot} has no host"
        return row

    def _row(self, node: str) -> Row:
        row = self._of_node.get(node)
        if row is None:
            raise UnknownNodeError(f"node {node} is not in the table: upsert it first")
        return row

    # -- the base

    def load(
        self,
        node: str,
        leaves: Mapping[str, Leaf],
        consumers: Mapping[str, Consumer],
        claims: Mapping[str, str] | None = None,
        *,
        epoch: int = 0,
        sequence: int = 0,
    ) -> None:
        """Replace the whole base by a snapshot or a database read (epoch 0)."""
        row = self._row(node)
        self._writer.load(row, leaves, consumers, claims or {}, epoch, sequence)
        if row.claims:
            self._overlay.settle(row)
        self._closed(row)
        self._static(row)

    def apply(
        self,
        node: str,
        leaves: Mapping[str, Leaf],
        consumers: Mapping[str, Consumer | None],
        claims: Mapping[str, str | None],
        *,
        epoch: int,
        sequence: int,
    ) -> None:
        """Apply an increment: absolute values of changed entries, None for removed ones."""
        row = self._of_node.get(node) or self._row(node)
        has_not_reported = row.steady is None
        dirty = self._writer.apply(row, leaves, consumers, claims, epoch, sequence)
        if row.claims:
            self._overlay.mark_ended(row, claims)
            self._overlay.settle(row)
        if has_not_reported or dirty & CLOSING:
            self._closed(row)
        if dirty & RARE:
            self._static(row)
        else:
            slot = row.slot
            self.columns.changed_at.cells[slot] = self.changes.note(slot)

    def is_too_large(self, node: str) -> bool:
        """Whether increments have added more to a row than a snapshot can hold."""
        return is_too_large(self._row(node))

    def version(self, node: str) -> Version:
        """(epoch, sequence) of the base; (0, 0) if the base was read from the databases."""
        return self._row(node).version

    def set_freshness(self, node: str, freshness: Freshness) -> None:
        """Set the freshness of a row."""
        row = self._row(node)
        if row.freshness is not freshness:
            self._writer.set_freshness(row, freshness)
            self._closed(row)
            self._changed(row)

    def freshness(self, node: str) -> Freshness:
        """The freshness of a row."""
        return self._row(node).freshness

    def why_closed(self, node: str) -> Exclusion | None:
        """Why a host is not considered at all; None if it is."""
        row = self._of_node.get(node)
        return Exclusion.NO_SLOT if row is None else CLOSED_CODES[int(self.columns.closed.array[row.slot])]

    # -- own claims

    def assume(
        self,
        node: str,
        claim_id: str,
        consumer: str,
        allocations: Allocations,
        usage: Usage,
        take: TopologyUsage | None = None,
        group: str = "",
    ) -> None:
        """Count a claim in the table at once; ``take`` is its part of NUMA cells and PCI pools."""
        row = self._row(node)
        stored = row.consumers.get(consumer)
        before = None if stored is None else (row.version, stored)
        self._overlay.assume(row, OwnClaim(claim_id, consumer, allocations, usage, take, group, before))
        self._changed(row)

    def accepted(self, claim_id: str, epoch: int, reflected_sequence: int) -> None:
        """Note that the agent has accepted the claim; the base will show it from this sequence on."""
        self._settle(self._overlay.accepted(claim_id, epoch, reflected_sequence))

    def confirm(self, claim_id: str) -> None:
        """Note that Placement has the claim; from now on it ends by itself when the base shows it."""
        self._settle(self._overlay.confirm(claim_id))

    def forget(self, claim_id: str) -> None:
        """End a claim that failed or whose end is proven.  A claim that has ended already is ignored."""
        row = self._overlay.forget(claim_id)
        if row is not None:
            self._changed(row)

    def is_outstanding(self, claim_id: str) -> bool:
        """Whether the claim is in the overlay."""
        return self._overlay.holds(claim_id)

    def is_shown(self, claim_id: str) -> bool:
        """Whether the claim is in the overlay and the base of its row shows both parts."""
        return self._overlay.is_shown(claim_id)

    def outstanding(self, node: str) -> tuple[OwnClaim, ...]:
        """Own claims on the node that have not ended, oldest first."""
        return tuple(self._row(node).claims.values())

    def _settle(self, row: Row | None) -> None:
        if row is not None:
            self._overlay.settle(row)
            self._changed(row)

    # -- services, aggregates, cells

    def set_service(self, service: ServiceFacts) -> None:
        """Set the nova-compute service of one host.  A heartbeat does not count as a change of its rows."""
        known = self._services.get(service.host)
        self._services[service.host] = service
        if known is None or not service.differs_only_in_heartbeat(known):
            self._host_changed((service.host,))

    def forget_service(self, host: str) -> None:
        """Remove the nova-compute service record of a host."""
        if self._services.pop(host, None) is not None:
            self._host_changed((host,))

    def service(self, host: str) -> ServiceFacts | None:
        """The nova-compute service record of a host; None if there is none."""
        return self._services.get(host)

    def services(self) -> Mapping[str, ServiceFacts]:
        """All service records, by host."""
        return self._services

    def set_aggregates(self, aggregates: Iterable[AggregateFacts]) -> None:
        """Replace all host aggregates."""
        self._host_changed(self.aggregates.replace(aggregates))

    def update_aggregates(self, aggregates: Iterable[AggregateFacts]) -> None:
        """Add or change these host aggregates."""
        self._host_changed(self.aggregates.update(aggregates))

    def delete_aggregates(self, ids: Iterable[int]) -> None:
        """Remove these host aggregates."""
        self._host_changed(self.aggregates.delete(ids))

    def set_disabled_cells(self, cells: frozenset[str]) -> None:
        """Set the cells whose hosts are not considered, unless a request names the cell."""
        changed, self._disabled_cells = self._disabled_cells ^ cells, cells
        for row in self.rows():
            if row.cell in changed:
                self._closed(row)
                self._changed(row)

    def set_sharing(self, providers: Mapping[str, Provider]) -> None:
        """Replace the providers that share with other trees through an aggregate, by uuid."""
        if self._writer.sharing == providers:
            return
        self._writer.sharing = providers
        for row in self.rows():
            self._writer.derive_other_providers(row)
            self._static(row)

    @property
    def sharing(self) -> Mapping[str, Provider]:
        """The providers that share with other trees, by uuid."""
        return self._writer.sharing

    @property
    def disabled_cells(self) -> frozenset[str]:
        """The cells whose hosts are not considered."""
        return self._disabled_cells

    def sharing_with(self, node: str) -> tuple[Provider, ...]:
        """Providers of other trees whose resources this node may use."""
        return self._writer.sharing_with(self._row(node))

    def owns(self, node: str, providers: Iterable[str]) -> bool:
        """Whether all of these providers are in the node's own tree, as far as it is known."""
        return node in self._of_node and self._row(node).providers.keys() >= set(providers)

    def may_have_leaf(self, name: str) -> bool:
        """False if no node has ever reported a leaf of this name."""
        return self._writer.may_have(name)

    def has_headroom(self, node: str, allocations: Allocations) -> bool:
        """Whether so much is left that no write can over-commit (``table/assumed_claims.py``)."""
        return node in self._of_node and has_headroom(self._row(node), allocations)

    def has_room(self, node: str, allocations: Allocations, times: int) -> bool:
        """Whether so many times these amounts are left."""
        return node in self._of_node and has_room(self._row(node), allocations, times)

    def _host_changed(self, hosts: Iterable[str]) -> None:
        for host in hosts:
            for slot in self._of_host.get(host, ()):
                row = self._row_at(slot)
                self._closed(row)
                self._put_aggregates(row)
                self._static(row)

    def _put_aggregates(self, row: Row) -> None:
        ids = tuple(one.id for one in self.aggregates.of(row.host))
        self.columns.host_aggregates.put(row.slot, ids)

    def _closed(self, row: Row) -> None:
        disabled = row.cell in self._disabled_cells
        self._writer.derive_exclusion(row, self._services.get(row.host), disabled)

    # -- copies (table_copy.py)

    def copy_with(self, columns: HostColumns, rows: Sequence[Row | None]) -> HostTable:
        """A table with copied columns and rows by slot; call its ``index_rows`` before it is used."""
        found = HostTable(self.ratios)
        found.columns, found._rows = columns, list(rows)
        found._writer = self._writer.copy_for(columns)
        found._overlay = Overlay(found._writer)
        found.members, found.groups = found._writer.members, found._writer.groups
        found.aggregates = self.aggregates.copy()
        found._services, found._disabled_cells = dict(self._services), self._disabled_cells
        found.changes.generation, found.static_generation = self.generation, self.static_generation
        found.membership_generation = self.membership_generation
        return found

    def index_rows(self) -> None:
        """Derive what locates nodes, hosts, instances, groups and claims from copied rows."""
        self._free = [slot for slot, row in enumerate(self._rows) if row is None]
        for row in self.rows():
            self._of_node[row.node] = row
            self._put_host(row.host, (*self._of_host.get(row.host, ()), row.slot))
            self._writer.index(row)
            self._overlay.index(row)

    def free_rows(self, count: int) -> bool:
        """Free rows of a copy that is not used any more; returns whether any is left.  Freeing ten thousand at once
        would hold up all threads for some ten milliseconds."""
        for node in list(islice(self._of_node, count)):
            row = self._of_node.pop(node)
            self._rows[row.slot] = None
            self.members.forget(row.consumers)
        return bool(self._of_node)

    # -- generations

    @property
    def generation(self) -> int:
        """The number of the newest change of any row."""
        return self.changes.generation

    def _changed(self, row: Row) -> None:
        self.columns.changed_at.cells[row.slot] = self.changes.note(row.slot)

    def _static(self, row: Row) -> None:
        self._changed(row)
        self.static_generation = self.generation
        self.columns.static_at.cells[row.slot] = self.generation

    def _moved(self, row: Row) -> None:
        self._static(row)
        self.membership_generation = self.generation

    # -- reading

    def view(self, node: str) -> HostView:
        """The row with own outstanding claims counted; it is valid until the table changes."""
        return self.view_at(self._row(node).slot)

    def view_at(self, slot: int) -> HostView:
        """Like ``view``, by slot."""
        row = self._row_at(slot)
        return HostView(
            row,
            int(self.columns.changed_at.array[slot]),
            self._services.get(row.host),
            self.aggregates.of(row.host),
            lambda: self._instances_of(row),
            self.ratios,
        )

    def _instances_of(self, row: Row) -> frozenset[str]:
        slots = self._of_host[row.host]
        found = [self._members_of(self._row_at(slot)) for slot in slots]
        return found[0] if len(found) == 1 else frozenset().union(*found)

    @staticmethod
    def _members_of(row: Row) -> frozenset[str]:
        base = (uuid for uuid, stored in row.consumers.items() if stored.member)
        claimed = (c.consumer for c in row.claims.values() if c.counts_numbers)
        return frozenset((*base, *claimed))

    def digest(self, node: str) -> int:
        """The digest of the base, to compare with the one in the agent's Heartbeat."""
        row = self._row(node)
        digest = digest_of(row.leaves, {}, row.pending) ^ groups_part_of_digest(row)
        for uuid, stored in row.consumers.items():
            part = part_of_digest if amounts_of(stored) <= PART_AMOUNTS_MAX else part_of_digest.__wrapped__
            digest ^= part(node, uuid, stored)
        return digest

    def describe(self, node: str) -> dict[str, Any]:
        """The base and the overlay as plain data, for operators and for comparisons."""
        return described(self._row(node))


def _identity(node: str) -> int:
    """A 64-bit hash of the name of a node, equal in every scheduler."""
    return int.from_bytes(blake2b(node.encode(), digest_size=8).digest(), "big")
