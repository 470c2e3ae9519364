# SPDX-License-Identifier: Apache-2.0
"""A simple model of a host table: nothing is counted in advance, everything is summed on demand.

A claim's parts count where the base does not show them (the table in ``table/assumed_claims.py``); this is that
table, word by word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from shared_scheduler.model.topology import TopologyUsage
from shared_scheduler.protocol.messages import Allocations, Consumer, Usage


@dataclass
class ModelClaim:
    """One claim of ours."""

    claim_id: str
    consumer: str
    allocations: Allocations
    usage: Usage
    take: TopologyUsage | None
    confirmed: bool = False
    ended: bool = False
    read: bool = False
    shown_from: tuple[int, int] = (0, 0)  # epoch and sequence of the verdict


@dataclass
class ModelNode:
    """One node: its last reported state, and our claims, oldest first."""

    node: str
    host: str
    leaves: dict[str, Any] = field(default_factory=dict)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    version: tuple[int, int] = (0, 0)
    claims: list[ModelClaim] = field(default_factory=list)

    # --- which parts of a claim count ------------------------------------------------------------

    def is_sure(self, claim: ModelClaim) -> bool:
        epoch, sequence = claim.shown_from
        reached = sequence > 0 and self.version[0] == epoch and self.version[1] >= sequence
        return claim.ended or claim.claim_id in self.pending or reached

    def shows_allocations(self, claim: ModelClaim) -> bool:
        stored = self.consumers.get(claim.consumer)
        held = stored.allocations if stored else {}
        return self.is_sure(claim) or (
            stored is not None
            and all(
                held.get(rp, {}).get(rc, 0) >= amount
                for rp, amounts in claim.allocations.items()
                for rc, amount in amounts.items()
            )
        )

    def shows_numbers(self, claim: ModelClaim) -> bool:
        stored = self.consumers.get(claim.consumer)
        return self.is_sure(claim) or (stored is not None and stored.member)

    def settle(self) -> None:
        """Claims that Placement holds and an agent shows are over, and those that databases showed once."""
        self.claims = [c for c in self.claims if not (c.confirmed and self.is_over(c))]

    def is_over(self, claim: ModelClaim) -> bool:
        shown = self.shows_allocations(claim) and self.shows_numbers(claim)
        if self.version[0]:
            return shown
        was_read, claim.read = claim.read, claim.read or shown
        return was_read and not shown

    # --- what is said ----------------------------------------------------------------------------

    def load(self, leaves: Any, consumers: Any, pending: Any, version: tuple[int, int]) -> None:
        self.leaves, self.consumers, self.pending = dict(leaves), dict(consumers), dict(pending)
        self.version = version
        self.settle()

    def apply(self, leaves: Any, consumers: Any, pending: Any, version: tuple[int, int]) -> None:
        self.version = version
        for mine, news in (
            (self.leaves, leaves),
            (self.consumers, consumers),
            (self.pending, pending),
        ):
            for key, value in news.items():
                mine.pop(key, None)
                if value is not None:
                    mine[key] = value
        for claim in self.claims:
            claim.ended |= claim.claim_id in pending and pending[claim.claim_id] is None
        self.settle()

    # --- what follows ----------------------------------------------------------------------------

    def taken(self) -> Iterator[Usage]:
        return (c.usage for c in self.claims if not self.shows_numbers(c))

    def used(self) -> dict[str, dict[str, int]]:
        """Provider -> class -> amount above 0."""
        parts = [consumer.allocations for consumer in self.consumers.values()]
        parts += [c.allocations for c in self.claims if not self.shows_allocations(c)]
        found: dict[str, dict[str, int]] = {}
        for part in parts:
            for provider, amounts in part.items():
                mine = found.setdefault(provider, {})
                for rc, amount in amounts.items():
                    mine[rc] = mine.get(rc, 0) + amount
        return found

    def members(self) -> set[str]:
        base = {uuid for uuid, one in self.consumers.items() if one.member}
        return base | {c.consumer for c in self.claims if not self.shows_numbers(c)}

    def free_ram_mb(self) -> int:
        return int(self.leaves["cn.free_ram_mb"]) - sum(usage.memory_mb for usage in self.taken())

    def instances(self) -> int:
        return int(self.leaves["stats.num_instances"]) + sum(u.instances for u in self.taken())

    def free_devices(self) -> int:
        takes = [c.take for c in self.claims if c.take and not self.shows_numbers(c)]
        return int(self.leaves["pci.nic"]) - sum(take.devices["pci.nic"] for take in takes)

    def pinned(self) -> int:
        """The bit mask of taken CPUs."""
        mask = int(self.leaves["numa.0"][2], 16)
        for claim in self.claims:
            if claim.take and not self.shows_numbers(claim):
                mask |= claim.take.cells["numa.0"].pinned
        return mask
