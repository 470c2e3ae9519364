# SPDX-License-Identifier: Apache-2.0
"""One compute node as the table keeps it: the base, and the overlay of own outstanding claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from shared_scheduler.protocol.digest import consumer_hash
from shared_scheduler.protocol.messages import Allocations, Consumer, Leaf
from shared_scheduler.state.claims import OwnClaim
from shared_scheduler.state.columns import Column
from shared_scheduler.state.late_numbers import LateNumbers
from shared_scheduler.state.numbers import Extra
from shared_scheduler.state.providers import Provider
from shared_scheduler.state.resources import Inventory
from shared_scheduler.state.topology import TopologyTake

#: consumers whose part of a digest is remembered: few of a node's change from one beat to the next
PARTS_MAX = 65_536


class Freshness(StrEnum):
    """How a row is kept current, and whether it may be chosen."""

    PROVISIONAL = "provisional"  # databases and Placement only
    FRESH = "fresh"  # the agent speaks, nothing is missing
    SUSPECT = "suspect"  # a gap, or a digest in doubt; may be chosen
    STALE = "stale"  # a snapshot is awaited; not chosen


class Closed(StrEnum):
    """Why a host is not considered at all, before any filter."""

    NO_SLOT = "no_slot"  # never seen outside: the slot has no host
    NO_SERVICE = "no_service_record"
    NEVER_REPORTED = "never_reported"  # nova-compute has not reported usage yet
    CELL_DISABLED = "cell_disabled"
    STALE = "stale"
    NOT_READY = "agent_not_ready"  # nova-compute is away


#: codes of the ``closed`` column; 0 is open
CLOSED_CODES: tuple[Closed | None, ...] = (None, *Closed)
CODE_OF_CLOSED: Mapping[Closed, int] = {
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
Flat = tuple[bool, Amounts | None, tuple[tuple[str, Amounts], ...]]


def flat(node: str, consumer: Consumer) -> Flat:
    """Compact form of a consumer, to look the shared one up by."""
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


def restore(node: str, stored: StoredConsumer) -> Consumer:
    """The inverse of ``flat``."""
    return Consumer(allocations_of(node, stored), stored.member)


@lru_cache(PARTS_MAX)
def part_of_digest(node: str, uuid: str, stored: StoredConsumer) -> int:
    """A stored consumer's part of its node's digest."""
    return consumer_hash(uuid, restore(node, stored))


@dataclass(frozen=True, slots=True, eq=False)
class RootInventory:
    """The root provider's inventories with their capacities; one object for equal ones."""

    inventories: Mapping[str, Inventory]
    #: class -> (capacity, max_unit, column of the room that is left)
    limits: Mapping[str, tuple[int, int, Column]]


class Steady(NamedTuple):
    """What a host's numbers are counted against, which boots and deletes do not move."""

    vcpus: float  # vcpus_total * cpu_allocation_ratio
    least_gb: int | None  # disk_available_least


NO_INVENTORY = RootInventory({}, {})


@dataclass(slots=True, eq=False)
class Row:
    """Everything known of one node.  Only ``HostTable`` writes it.

    ``used`` sums consumers and the counted allocations of ``claims``: provider -> class -> amount.
    """

    slot: int
    node: str
    cell: str
    host: str
    nodename: str
    numbers: LateNumbers
    epoch: int = 0
    sequence: int = 0
    freshness: Freshness = Freshness.PROVISIONAL
    #: what is known of its leaves, but for those named by ``late``, which ``numbers`` has
    told: dict[str, Leaf] = field(default_factory=dict)
    late: tuple[str, ...] = ()
    #: None while nova-compute has never reported usage
    steady: Steady | None = None
    consumers: dict[str, StoredConsumer] = field(default_factory=dict)
    #: pending claims of anybody, as the agent tells: claim id -> consumer
    pending: dict[str, str] = field(default_factory=dict)
    #: own outstanding claims
    claims: dict[str, OwnClaim] = field(default_factory=dict)
    extra: Extra | None = None
    used: dict[str, dict[str, int]] = field(default_factory=dict)
    providers: Mapping[str, Provider] = field(default_factory=dict)
    root: RootInventory = NO_INVENTORY
    #: classes that another provider of the tree, or a sharing one, may give
    elsewhere: frozenset[str] = frozenset()

    @property
    def leaves(self) -> dict[str, Leaf]:
        """The leaves of the base."""
        if self.late:
            self.read_late()
        return self.told

    def read_late(self) -> None:
        """Make leaves of the numbers that came last."""
        numbers = self.numbers.of(self.slot, len(self.late))
        self.told.update(zip(self.late, numbers, strict=True))
        self.late = ()

    @property
    def version(self) -> Version:
        """Which state of the node the base is."""
        return Version(self.epoch, self.sequence)

    def takes(self) -> list[TopologyTake]:
        """What own outstanding claims take of NUMA cells and PCI pools, where the base does not show it."""
        return [c.topology for c in self.claims.values() if c.topology and c.counts_numbers]

    def is_member(self, consumer: str) -> bool:
        """Whether it counts as an instance on this node, claims included."""
        stored = self.consumers.get(consumer)
        if stored is not None and stored.member:
            return True
        return any(c.consumer == consumer and c.counts_numbers for c in self.claims.values())


def has_allocations(stored: StoredConsumer | None, node: str, wanted: Allocations) -> bool:
    """Whether a consumer of the base holds at least what a claim took on each provider."""
    if stored is None:
        return False
    held = allocations_of(node, stored)
    return all(
        held.get(provider, {}).get(rc, 0) >= amount
        for provider, amounts in wanted.items()
        for rc, amount in amounts.items()
    )
