# SPDX-License-Identifier: Apache-2.0
"""The row of one compute node: the base, and the overlay of own outstanding claims."""

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

#: cached parts of digests of consumers; few consumers of a node change between two heartbeats
PARTS_MAX = 65_536
#: consumers with more amounts are not cached; most have three
PART_AMOUNTS_MAX = 8


class Freshness(StrEnum):
    """The source of a row, and whether its host may be chosen."""

    PROVISIONAL = "provisional"  # read from the databases and Placement only
    FRESH = "fresh"  # reported by the agent, no message is missing
    SUSPECT = "suspect"  # a message is missing, or the digest may differ; may be chosen
    STALE = "stale"  # a snapshot is needed; not chosen


class Exclusion(StrEnum):
    """Why a host is not considered at all, before any filter."""

    NO_SLOT = "no_slot"  # internal: the slot has no host
    NO_SERVICE = "no_service_record"
    NEVER_REPORTED = "never_reported"  # nova-compute has not reported usage, or the name of the node, yet
    CELL_DISABLED = "cell_disabled"
    STALE = "stale"
    NOT_READY = "agent_not_ready"  # nova-compute does not run


#: codes of the ``closed`` column; 0 is open
CLOSED_CODES: tuple[Exclusion | None, ...] = (None, *Exclusion)
CODE_OF_CLOSED: Mapping[Exclusion, int] = {
    closed: code for code, closed in enumerate(CLOSED_CODES) if closed is not None
}


class Version(NamedTuple):
    """Identifies the state of the node in the base of a row."""

    epoch: int
    sequence: int


#: the amounts of one provider: ((resource class, amount), ...)
Amounts = tuple[tuple[str, int], ...]


class StoredConsumer(NamedTuple):
    """A consumer in compact form; equal consumers are one object in the whole table.

    ``root`` are its amounts of the node's root provider, None if it takes nothing from the root.  ``generation`` and
    ``whole`` as in ``Consumer``; most consumers were written once.
    """

    member: bool
    root: Amounts | None
    others: tuple[tuple[str, Amounts], ...]
    generation: int = 0
    whole: bool = False


#: the fields of a stored consumer as a plain tuple, which is equal to it and cheaper to create
CompactConsumer = tuple[bool, Amounts | None, tuple[tuple[str, Amounts], ...], int, bool]


def compact(node: str, consumer: Consumer) -> CompactConsumer:
    """The compact form of a consumer, which is the key of the shared object."""
    allocations = consumer.allocations
    root = allocations.get(node)
    if root is not None and len(allocations) == 1:  # the usual case
        return (consumer.member, tuple(root.items()), (), consumer.generation, consumer.whole)
    others = tuple((provider, tuple(amounts.items())) for provider, amounts in allocations.items() if provider != node)
    amounts = None if root is None else tuple(root.items())
    return (consumer.member, amounts, others, consumer.generation, consumer.whole)


def allocations_of(node: str, stored: StoredConsumer) -> dict[str, dict[str, int]]:
    """The allocations of a stored consumer."""
    found = {provider: dict(amounts) for provider, amounts in stored.others}
    return found if stored.root is None else {node: dict(stored.root), **found}


def restore(node: str, stored: StoredConsumer, group: str = "") -> Consumer:
    """The inverse of ``compact``; a row stores the group separately (``Row.groups``)."""
    return Consumer(allocations_of(node, stored), stored.member, group, stored.generation, stored.whole)


def amounts_of(stored: StoredConsumer) -> int:
    """The number of its amounts, of all providers."""
    own = 0 if stored.root is None else len(stored.root)
    return own + sum(len(amounts) for _, amounts in stored.others) if stored.others else own


@lru_cache(PARTS_MAX)
def part_of_digest(node: str, uuid: str, stored: StoredConsumer) -> int:
    """The part of a stored consumer in the digest of its node, without its group."""
    return consumer_hash(uuid, restore(node, stored))


def groups_part_of_digest(row: Row) -> int:
    """The part of the groups of a row's consumers in its digest."""
    digest = 0
    for uuid, group in row.groups.items():
        digest ^= group_hash(uuid, group)
    return digest


@dataclass(frozen=True, slots=True, eq=False)
class RootInventory:
    """The inventories of the root provider with their capacities; equal ones are one object."""

    inventories: Mapping[str, Inventory]
    #: class -> (capacity, max_unit, column of the remaining room)
    limits: Mapping[str, tuple[int, int, Column]]


class CapacityBase(NamedTuple):
    """The totals against which the numbers of a host are computed; boots and deletes do not change them."""

    vcpus: float  # vcpus_total * cpu_allocation_ratio
    least_gb: int | None  # disk_available_least


NO_INVENTORY = RootInventory({}, {})


@dataclass(slots=True)
class OwnClaim:
    """One outstanding claim of this scheduler.

    ``counts_allocations`` and ``counts_numbers``: the parts that the overlay adds at present.
    """

    claim_id: str
    consumer: str
    allocations: Allocations
    usage: Usage
    topology: TopologyUsage | None = None
    #: the server group of the consumer; empty if it has none
    group: str = ""
    #: the version of the base when the claim was assumed, and what it had of the consumer; None: nothing
    before: tuple[Version, StoredConsumer] | None = None
    confirmed: bool = False
    #: whether the databases have shown both parts
    read: bool = False
    #: whether the agent has ended the claim: only its report counts for the consumer
    ended: bool = False
    epoch: int = 0
    reflected_sequence: int = 0
    counts_allocations: bool = True
    counts_numbers: bool = True

    @property
    def shown(self) -> bool:
        """Whether the base shows both parts."""
        return not (self.counts_allocations or self.counts_numbers)

    def reached(self, epoch: int, sequence: int) -> bool:
        """Whether a base at this position certainly contains the claim."""
        return self.reflected_sequence > 0 and epoch == self.epoch and sequence >= self.reflected_sequence


@dataclass(slots=True, eq=False)
class Row:
    """The state of one node.  Only ``RowWriter`` writes it, except ``claims``, which only the overlay writes.

    ``nodename`` is Nova's hypervisor_hostname; empty until the databases or nova-compute have told it.
    ``used`` is the sum of consumers and of the counted allocations of ``claims``: provider -> class -> amount.
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
    #: None until nova-compute reports usage
    steady: CapacityBase | None = None
    consumers: dict[str, StoredConsumer] = field(default_factory=dict)
    #: consumers of the base -> uuid of their server group; not interned, because few hosts share one
    groups: dict[str, str] = field(default_factory=dict)
    #: pending claims of all schedulers, as the agent reports them: claim id -> consumer
    pending: dict[str, str] = field(default_factory=dict)
    #: own outstanding claims
    claims: dict[str, OwnClaim] = field(default_factory=dict)
    extra: PendingUsage | None = None
    used: dict[str, dict[str, int]] = field(default_factory=dict)
    #: at least the size of what increments have added since the last count (``table/row_size.py``)
    added_bytes: int = 0
    providers: Mapping[str, Provider] = field(default_factory=dict)
    root: RootInventory = NO_INVENTORY
    #: classes of which another provider of the tree, or a sharing one, has an inventory
    other_provider_classes: frozenset[str] = frozenset()

    @property
    def version(self) -> Version:
        """The version of the base."""
        return Version(self.epoch, self.sequence)

    def takes(self) -> list[TopologyUsage]:
        """The NUMA cells and PCI pools of own outstanding claims that the base does not show."""
        return [c.topology for c in self.claims.values() if c.topology and c.counts_numbers]

    def is_member(self, consumer: str) -> bool:
        """Whether a consumer counts as an instance on this node, including claims."""
        stored = self.consumers.get(consumer)
        if stored is not None and stored.member:
            return True
        return any(c.consumer == consumer and c.counts_numbers for c in self.claims.values())

    def is_built(self, consumer: str) -> bool:
        """Whether the base shows a consumer as an instance on this node, and not as a claim that may be cancelled."""
        stored = self.consumers.get(consumer)
        return stored is not None and stored.member and consumer not in self.pending.values()
