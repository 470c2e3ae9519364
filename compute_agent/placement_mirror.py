# SPDX-License-Identifier: Apache-2.0
"""The agent's own mirror of its provider tree in Placement: inventories and allocations.

What is known about a consumer carries the time at which it was true: the start of the read that showed it.  A read that
began before that time does not change it.

Placement shows the consumers of a provider, not their allocations of other trees.  A consumer of generation 1 was
written once.  If the agent accepted a claim for it, and Placement shows exactly the allocations of the claim, that
write is known completely: the consumer has nothing in other trees (``is_whole``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from shared_scheduler.model import leaves
from shared_scheduler.model.providers import Provider
from shared_scheduler.model.resources import same_allocations
from shared_scheduler.protocol.messages import Allocations, Leaf

#: The generation of a consumer after its first write.
WRITTEN_ONCE = 1


@dataclass(frozen=True, slots=True)
class KnownAllocations:
    """The ``allocations`` that a consumer had in Placement at ``true_at_s``.  ``generation`` 0: not known."""

    allocations: Allocations
    true_at_s: float
    generation: int = 0


class NodeMirror:
    """Providers and consumers of one node's tree."""

    def __init__(self) -> None:
        self.providers: dict[str, Provider] = {}
        self.known: dict[str, KnownAllocations] = {}
        #: consumer -> all allocations of the last claim that was accepted for it
        self._claimed: dict[str, Allocations] = {}
        self.tree_known = False
        self.allocations_known = False

    def set_tree(self, providers: Iterable[Provider]) -> bool:
        """Take the result of a read of the tree.  Return whether the set of providers changed.

        A provider with the same content keeps its old generation.  Each write of an allocation increases the
        generation, and that alone is not published.
        """
        before = self.providers
        self.providers = {
            provider.uuid: before[provider.uuid]
            if provider.uuid in before and _same_content(before[provider.uuid], provider)
            else provider
            for provider in providers
        }
        self.tree_known = bool(self.providers)
        return before.keys() != self.providers.keys()

    def set_allocations(
        self, consumers: Mapping[str, Allocations], started_at_s: float, generations: Mapping[str, int]
    ) -> None:
        """Take a complete read of the tree's consumers that began at ``started_at_s``."""
        kept = {consumer: known for consumer, known in self.known.items() if known.true_at_s > started_at_s}
        read = {
            consumer: KnownAllocations(allocations, started_at_s, generations.get(consumer, 0))
            for consumer, allocations in consumers.items()
        }
        self.known = read | kept
        self.allocations_known = True

    def set_known(self, consumer: str, allocations: Allocations, true_at_s: float) -> None:
        self.known[consumer] = KnownAllocations(allocations, true_at_s)

    def set_claimed(self, consumer: str, allocations: Allocations) -> None:
        """Remember all allocations of an accepted claim."""
        self._claimed[consumer] = allocations

    def forget_claimed(self, waiting: Collection[str]) -> None:
        """Forget the claims of consumers that have no allocation here and no pending claim."""
        for consumer in self._claimed.keys() - self.known.keys() - frozenset(waiting):
            del self._claimed[consumer]

    def is_whole(self, consumer: str) -> bool:
        """Whether the consumer is known to have no allocations in other trees."""
        known, claimed = self.known.get(consumer), self._claimed.get(consumer)
        if known is None or claimed is None or known.generation != WRITTEN_ONCE:
            return False
        return same_allocations(known.allocations, claimed)

    def holds(self, consumer: str, allocations: Allocations, since_s: float) -> bool:
        """Whether a read since ``since_s`` showed exactly these amounts for the consumer, perhaps among others.

        No read shows empty allocations: a claim whose providers have left the tree is not held.
        """
        known = self.known.get(consumer)
        if known is None or known.true_at_s < since_s or not allocations:
            return False
        return all(
            known.allocations.get(provider, {}).get(resource_class) == amount
            for provider, resources in allocations.items()
            for resource_class, amount in resources.items()
        )

    def allocations_of(self, consumer: str) -> Allocations:
        known = self.known.get(consumer)
        return known.allocations if known else {}

    def leaves(self) -> dict[str, Leaf]:
        return {leaves.PROVIDER + uuid: provider.to_leaf() for uuid, provider in self.providers.items()}


def _same_content(one: Provider, other: Provider) -> bool:
    return one == replace(other, generation=one.generation)
