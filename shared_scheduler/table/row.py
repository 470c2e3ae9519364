# SPDX-License-Identifier: Apache-2.0
"""One compute node as the table keeps it: the base, and the overlay of own outstanding claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from shared_scheduler.model.providers import Provider
from shared_scheduler.model.resources import Inventory
from shared_scheduler.model.topology import TopologyUsage
from shared_scheduler.protocol.digest import consumer_hash, group_hash
from shared_scheduler.protocol.messages import Allocations, Consumer, Leaf, Usage
from shared_scheduler.table.columns import Column
from shared_scheduler.table.numbers import PendingUsage

#: consumers whose part of a digest is remembered: few of a node's change from one heartbeat to the next
PARTS_MAX = 65_536


class Freshness(StrEnum):
    """How a row is kept current, and whether it may be chosen."""

    PROVISIONAL = "provisional"  # databases and Placement only
    FRESH = "fresh"  # the agent speaks, nothing is missing
    SUSPECT = "suspect"  # a gap, or a digest that may differ; may be selected
    STALE = "stale"  # a snapshot is awaited; not chosen


class Exclusion(StrEnum):
    """Why a host is not considered at all, before any filter."""

    NO_SLOT = "no_slot"  # never seen outside: the slot has no host
    NO_SERVICE = "no_service_record"
    NEVER_REPORTED = "never_reported"  # nova-compute has not reported usage yet
    CELL_DISABLED = "cell_disabled"
    STALE = "stale"
    NOT_READY = "agent_not_ready"  # nova-compute is away


#: codes of the ``closed`` column; 0 is open
CLOSED_CODES: tuple[Exclusion | None, ...] = (None, *Exclusion)
CODE_OF_CLOSED: Mapping[Exclusion, int] = {
    closed: code for code, closed in enumerate(CLOSED_CODES) if closed is not None
}


class Version(NamedTuple):
    """Which state of the node a row's base is."""

    epoch: int
    sequence: int


#: what is taken of one provider: ((resource class, amount), ...)
Amounts = tuple[tuple[str, int], ...]


class StoredConsumer(NamedTuple):
    """A consumer, compact: equal ones are one object for the whole table.

    ``root`` is what it takes of the node's root provider, None where that is not among its providers.
    """

    member: bool
    root: Amounts | None
    others: tuple[tuple[str, Amounts], ...]


#: the fields of a stored consumer as a plain tuple, which is equal to it and cheaper to make
CompactConsumer = tuple[bool, Amounts | None, tuple[tuple[str, Amounts], ...]]


def compact(node: str, consumer: Consumer) -> CompactConsumer:
    """The compact form of a consumer, which is the key of the shared object."""
    allocations = consumer.allocations
    root = allocations.get(node)
    if root is not None and len(allocations) == 1:  # nearly always
        return (consumer.member, tuple(root.items()), ())
    others = tuple(
        (provider, tuple(amounts.items()))
        for provider, amounts in allocations.items()
        if provider != node
    )
    return (consumer.member, None if root is None else tuple(root.items()), others)


def allocations_of(node: str, stored: StoredConsumer) -> dict[str, dict[str, int]]:
    """The allocations of a stored consumer."""
    found = {provider: dict(amounts) for provider, amounts in stored.others}
    return found if stored.root is None else {node: dict(stored.root), **found}


def restore(node: str, stored: StoredConsumer, group: str = "") -> Consumer:
    """The inverse of ``compact``; a row keeps the group apart (``Row.groups``)."""
    return Consumer(allocations_of(node, stored), stored.member, group)


@lru_cache(PARTS_MAX)
def part_of_digest(node: str, uuid: str, stored: StoredConsumer) -> int:
    """A stored consumer's part of its node's digest, without its group."""
    return consumer_hash(uuid, restore(node, stored))


def groups_part_of_digest(row: Row) -> int:
    """What the groups of a row's consumers are of its digest."""
    digest = 0
    for uuid, group in row.groups.items():
        digest ^= group_hash(uuid, group)
    return digest


@dataclass(frozen=True, slots=True, eq=False)
class RootInventory:
    """The root provider's inventories with their capacities; one object for equal ones."""

    inventories: Mapping[str, Inventory]
    #: class -> (capacity, max_unit, column of the room that is left)
    limits: Mapping[str, tuple[int, int, Column]]


class CapacityBase(NamedTuple):
    """What a host's numbers are counted against, which boots and deletes do not move."""

    vcpus: float  # vcpus_total * cpu_allocation_ratio
    least_gb: int | None  # disk_available_least


NO_INVENTORY = RootInventory({}, {})


@dataclass(slots=True)
class OwnClaim:
    """One outstanding claim of this scheduler.

    ``counts_allocations`` and ``counts_numbers``: which parts the overlay adds at present.
    """

    claim_id: str
    consumer: str
    allocations: Allocations
    usage: Usage
    topology: TopologyUsage | None = None
    #: the server group of the consumer, empty for none
    group: str = ""
    confirmed: bool = False
    #: the databases have shown all of it
    read: bool = False
    #: the agent let it go: only its report counts for the consumer
    ended: bool = False
    epoch: int = 0
    reflected_sequence: int = 0
    counts_allocations: bool = True
    counts_numbers: bool = True

    @property
    def shown(self) -> bool:
        """The base shows all of it."""
        return not (self.counts_allocations or self.counts_numbers)

    def reached(self, epoch: int, sequence: int) -> bool:
        """Whether a base at this position holds it for sure."""
        return (
            self.reflected_sequence > 0
            and epoch == self.epoch
            and sequence >= self.reflected_sequence
        )


@dataclass(slots=True, eq=False)
class Row:
    """Everything known of one node.  Only ``RowWriter`` writes it; its ``claims``, only the overlay.

    ``used`` sums consumers and the counted allocations of ``claims``: provider -> class -> amount.
    """

    slot: int
    node: str
    cell: str
    host: str
    nodename: str
    epoch: int = 0
    sequence: int = 0
    freshness: Freshness = Freshness.PROVISIONAL
    #: the leaves of the base
    leaves: dict[str, Leaf] = field(default_factory=dict)
    #: None while nova-compute has never reported usage
    steady: CapacityBase | None = None
    consumers: dict[str, StoredConsumer] = field(default_factory=dict)
    #: consumers of the base that are in a server group -> its uuid; few hosts share one, so it is not interned
    groups: dict[str, str] = field(default_factory=dict)
    #: pending claims of all schedulers, as the agent reports them: claim id -> consumer
    pending: dict[str, str] = field(default_factory=dict)
    #: own outstanding claims
    claims: dict[str, OwnClaim] = field(default_factory=dict)
    extra: PendingUsage | None = None
    used: dict[str, dict[str, int]] = field(default_factory=dict)
    providers: Mapping[str, Provider] = field(default_factory=dict)
    root: RootInventory = NO_INVENTORY
    #: classes that another provider of the tree, or a sharing one, may give
    other_provider_classes: frozenset[str] = frozenset()

    @property
    def version(self) -> Version:
        """Which state of the node the base is."""
        return Version(self.epoch, self.sequence)

    def takes(self) -> list[TopologyUsage]:
        """What own outstanding claims take of NUMA cells and PCI pools, where the base does not show it."""
        return [c.topology for c in self.claims.values() if c.topology and c.counts_numbers]

    def is_member(self, consumer: str) -> bool:
        """Whether it counts as an instance on this node, claims included."""
        stored = self.consumers.get(consumer)
        if stored is not None and stored.member:
            return True
        return any(c.consumer == consumer and c.counts_numbers for c in self.claims.values())
