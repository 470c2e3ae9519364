# SPDX-License-Identifier: Apache-2.0
"""One compute node as the table keeps it: the base, and the overlay of own outstanding claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from shared_scheduler.protocol.messages import Allocations, Consumer, Leaf
from shared_scheduler.state.claims import OwnClaim
from shared_scheduler.state.numbers import Extra
from shared_scheduler.state.providers import Provider
from shared_scheduler.state.resources import Inventory


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


NO_VERSION = Version(0, 0)

#: the root provider in a stored consumer: its uuid is the node's
ROOT = ""


class StoredConsumer(NamedTuple):
    """A consumer, compact: equal ones are one object for the whole table.

    ``rows`` are (provider uuid or ``ROOT``, ((resource class, amount), ...)).
    """

    member: bool
    rows: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]


#: the fields of a stored consumer as a plain tuple, which is equal to it and cheaper to make
Flat = tuple[bool, tuple[tuple[str, tuple[tuple[str, int], ...]], ...]]


def flat(node: str, consumer: Consumer) -> Flat:
    """Compact form of a consumer, to look the shared one up by."""
    allocations = consumer.allocations
    if len(allocations) == 1 and node in allocations:  # nearly always
        return (consumer.member, ((ROOT, tuple(allocations[node].items())),))
    rows = [
        (ROOT if provider == node else provider, tuple(amounts.items()))
        for provider, amounts in allocations.items()
    ]
    return (consumer.member, tuple(rows))


def allocations_of(node: str, stored: StoredConsumer) -> dict[str, dict[str, int]]:
    """The allocations of a stored consumer."""
    return {provider or node: dict(amounts) for provider, amounts in stored.rows}


def restore(node: str, stored: StoredConsumer) -> Consumer:
    """The inverse of ``flat``."""
    return Consumer(allocations_of(node, stored), stored.member)


@dataclass(frozen=True, slots=True, eq=False)
class RootInventory:
    """The root provider's inventories with their capacities; one object for equal ones."""

    inventories: Mapping[str, Inventory]
    #: class -> (capacity, max_unit)
    limits: Mapping[str, tuple[int, int]]


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
    version: Version = NO_VERSION
    freshness: Freshness = Freshness.PROVISIONAL
    leaves: dict[str, Leaf] = field(default_factory=dict)
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
