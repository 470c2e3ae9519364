# SPDX-License-Identifier: Apache-2.0
"""One host as filters see it: the row with own outstanding claims counted.

A view is valid until the table changes, because its expensive parts are computed on first use; the generation shows
whether the table has changed.  Do not change anything in a view: its values are shared with the table and other hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from shared_scheduler.model import leaves
from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.model.providers import Provider
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.messages import Consumer, Leaf
from shared_scheduler.table.numbers import DefaultRatios, HostNumbers, consumed_leaves, numbers_of
from shared_scheduler.table.row import Freshness, OwnClaim, Row, StoredConsumer, Version, allocations_of, restore


class HostView:
    """The facts of one row.  ``instances`` are those of the whole service host, as in Nova."""

    def __init__(
        self,
        row: Row,
        generation: int,
        service: ServiceFacts | None,
        aggregates: tuple[AggregateFacts, ...],
        instances: Callable[[], frozenset[str]],
        ratios: DefaultRatios,
    ) -> None:
        self._row = row
        self._instances = instances
        self.ratios = ratios
        self.slot = row.slot
        self.node = row.node
        self.cell = row.cell
        self.host = row.host
        self.nodename = row.nodename
        self.version: Version = row.version
        self.freshness: Freshness = row.freshness
        self.generation = generation
        self.service = service
        self.aggregates = aggregates

    @cached_property
    def instances(self) -> frozenset[str]:
        """Instances of the whole service host, including own outstanding claims."""
        return self._instances()

    @cached_property
    def leaves(self) -> Mapping[str, Leaf]:
        """Effective leaves (``model/leaves.py``), with own outstanding claims consumed."""
        row = self._row
        found = row.leaves if row.extra is None else consumed_leaves(row.leaves, row.extra)
        takes = row.takes()
        if takes:
            found = dict(found)
            for take in takes:
                take.consume_from(found)
        return MappingProxyType(found)

    @cached_property
    def numbers(self) -> HostNumbers | None:
        """HostState's numbers; None until nova-compute reports usage."""
        return numbers_of(self._row.leaves, self._row.extra, self.ratios)

    @cached_property
    def consumers(self) -> Mapping[str, Consumer]:
        """Consumers by uuid, including own outstanding claims."""
        row = self._row
        groups = row.groups
        found = {uuid: restore(row.node, stored, groups.get(uuid, "")) for uuid, stored in row.consumers.items()}
        for claim in row.claims.values():
            if claim.counts_allocations:
                found[claim.consumer] = Consumer(claim.allocations, True, claim.group)
        return found

    @property
    def members(self) -> frozenset[str]:
        """Instances on this node, including own outstanding claims."""
        row = self._row
        claimed = {c.consumer for c in row.claims.values() if c.counts_numbers}
        return frozenset(claimed | {uuid for uuid, stored in row.consumers.items() if stored.member})

    @property
    def used(self) -> Mapping[str, Mapping[str, int]]:
        """Amounts in use: provider -> class -> amount, including own outstanding claims."""
        return MappingProxyType(self._row.used)

    @property
    def providers(self) -> Mapping[str, Provider]:
        """The node's provider tree, by uuid."""
        return MappingProxyType(dict(self._row.providers))

    @property
    def root(self) -> Provider:
        """The root provider; an empty one if it is not known."""
        return self._row.providers.get(self.node) or Provider(self.node)

    @property
    def other_provider_classes(self) -> frozenset[str]:
        """Classes of which a descendant of the root or a sharing provider has an inventory."""
        return self._row.other_provider_classes

    @property
    def stats(self) -> Mapping[str, Leaf]:
        """``ComputeNode.stats``."""
        start = len(leaves.STATS)
        return {name[start:]: value for name, value in self.leaves.items() if name.startswith(leaves.STATS)}

    @property
    def pools(self) -> tuple[tuple[Mapping[str, Leaf], int], ...]:
        """PCI pools: (key of the pool, free devices)."""
        return pools_of(self.leaves)


def pools_of(node_leaves: Mapping[str, Leaf]) -> tuple[tuple[Mapping[str, Leaf], int], ...]:
    """PCI pools of a node: (key of the pool, free devices)."""
    start = len(leaves.PCI_STATIC)
    found = []
    for name, key in node_leaves.items():
        if name.startswith(leaves.PCI_STATIC) and isinstance(key, dict):
            free = node_leaves.get(leaves.PCI + name[start:])
            found.append((key, free if isinstance(free, int) else 0))
    return tuple(found)


def described(row: Row) -> dict[str, Any]:
    """Base and overlay of a row as plain data, for operators and for comparisons."""
    return {
        "node": row.node,
        "cell": row.cell,
        "host": row.host,
        "nodename": row.nodename,
        "freshness": row.freshness.value,
        "epoch": row.version.epoch,
        "sequence": row.version.sequence,
        "leaves": dict(row.leaves),
        "consumers": {uuid: _described_consumer(row, uuid, stored) for uuid, stored in row.consumers.items()},
        "claims": dict(row.pending),
        "outstanding": [_described_claim(claim) for claim in row.claims.values()],
        "used": {provider: dict(amounts) for provider, amounts in row.used.items()},
    }


def _described_consumer(row: Row, uuid: str, stored: StoredConsumer) -> dict[str, Any]:
    found = {"allocations": allocations_of(row.node, stored), "member": stored.member}
    group = row.groups.get(uuid)
    return found if group is None else {**found, "group": group}


def _described_claim(claim: OwnClaim) -> dict[str, Any]:
    return {
        "claim_id": claim.claim_id,
        "consumer": claim.consumer,
        "allocations": {rp: dict(amounts) for rp, amounts in claim.allocations.items()},
        "confirmed": claim.confirmed,
    }
