# SPDX-License-Identifier: Apache-2.0
"""Provider trees of nodes without an agent, in the form in which an agent publishes them.

The generation of a provider changes with its inventories and traits, and with each allocation, but *not* when an
allocation is deleted, and not when a client sets its aggregates with a microversion below 1.19.  Therefore the cached
inventories and traits of a provider are valid while its generation is unchanged, and the cached allocations while its
usages are unchanged too.  Its aggregates are always read: a provider without changes needs two small reads instead of
four.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from shared_scheduler.model.leaves import PROVIDER
from shared_scheduler.model.providers import SHARING_TRAIT, Provider
from shared_scheduler.model.resources import Inventory
from shared_scheduler.placement.client import PlacementClient, Summary
from shared_scheduler.placement.reader import ListedProvider, ProviderAllocation, common_generation
from shared_scheduler.protocol.messages import Leaf

#: Maximum number of cached providers; a full cache is emptied, which only costs reads.
MAX_PROVIDERS = 50_000
#: A consumer that represents all consumers of a provider while only their sum is known.
SUM_OF = "sum-of-"

Consumers = dict[str, dict[str, dict[str, int]]]
#: Generation, parent and root of providers.
Seen = dict[str, tuple[int, str | None, str]]


@dataclass(frozen=True, slots=True)
class Tree:
    """The providers of a node as ``rp.<uuid>`` leaves, and the allocations and generation of each consumer."""

    leaves: dict[str, Leaf] = field(default_factory=dict)
    consumers: Consumers = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Known:
    provider: Provider
    consumers: Mapping[str, ProviderAllocation]

    def used(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for held in self.consumers.values():
            for name, amount in held.amounts.items():
                total[name] = total.get(name, 0) + amount
        return total


class PlacementMirror:
    """Reads provider trees.  Several threads use it.  Every method may raise ``PlacementError``."""

    def __init__(self, client: PlacementClient, max_providers: int = MAX_PROVIDERS) -> None:
        self._client = client
        self._max_providers = max_providers
        self._known: dict[str, _Known] = {}
        self._swept: Seen = {}
        self._watched: dict[str, Seen] = {}  # by root
        self._lock = threading.Lock()

    def sweep(self) -> frozenset[str]:
        """The roots of the trees that changed since the last sweep, with one call for the whole cloud.

        The first sweep returns all roots.  It detects new, deleted and moved providers, changed inventories and traits,
        and new allocations, but neither deleted allocations nor aggregates that were set without the generation.
        """
        swept = _seen(self._client.providers())
        with self._lock:
            before, self._swept = self._swept, swept
            for uuid in self._known.keys() - swept.keys():
                del self._known[uuid]
        changed = {uuid for uuid, seen in swept.items() if before.get(uuid) != seen}
        roots = {swept[uuid][2] for uuid in changed}
        return frozenset(roots | {before[uuid][2] for uuid in before.keys() - swept.keys()})

    def changed_among(self, roots: Collection[str]) -> frozenset[str]:
        """Like ``sweep``, for these trees only, with one call for each: changes since the last call for the tree."""
        watched = {root: _seen(self._client.providers(in_tree=root)) for root in roots}
        with self._lock:
            before, self._watched = self._watched, watched
        return frozenset(root for root, seen in watched.items() if before.get(root) != seen)

    def read(self, node: str) -> Tree:
        """Read the tree of one node; empty if Placement does not know it."""
        tree = Tree()
        for listed in self._client.providers(in_tree=node):
            known = self._read(listed)
            tree.leaves[PROVIDER + listed.uuid] = known.provider.to_leaf()
            _add(tree, listed.uuid, known.consumers)
        return tree

    def sharing(self) -> dict[str, Provider]:
        """All sharing providers, with the amounts that their consumers leave."""
        return {listed.uuid: _sharing(self._read(listed)) for listed in self._client.providers(required=SHARING_TRAIT)}

    def overview(self, resources: str = "MEMORY_MB:1") -> dict[str, Tree]:
        """root -> tree of every node that has any of ``resources`` left, with one call for all of them.

        The trees are approximate: capacities instead of inventories, sums instead of consumers, without aggregates and
        generations.  This is sufficient at the start; ``read`` returns exact trees.
        """
        trees: dict[str, Tree] = {}
        answer = self._client.candidates(f"resources={resources}")
        for summary in answer.summaries.values():
            tree = trees.setdefault(summary.root, Tree())
            tree.leaves[PROVIDER + summary.uuid] = _rough_leaf(summary)
            used = {name: amount for name, amount in summary.used.items() if amount}
            if used:
                tree.consumers[SUM_OF + summary.uuid] = {summary.uuid: used}
        return trees

    # -- inside ------------------------------------------------------------------------------

    def _read(self, listed: ListedProvider) -> _Known:
        with self._lock:
            known = self._known.get(listed.uuid)
        provider = self._client.provider(listed, None if known is None else known.provider)
        if (
            known is None
            or known.provider.generation != listed.generation
            or known.used() != _positive(self._client.usages(listed.uuid))
        ):
            known = _Known(provider, self._client.allocations(listed.uuid))
        elif provider == known.provider:
            return known
        else:
            known = _Known(provider, known.consumers)
        with self._lock:
            if len(self._known) >= self._max_providers:
                self._known.clear()
            self._known[listed.uuid] = known
        return known


def _seen(listed: Iterable[ListedProvider]) -> Seen:
    return {one.uuid: (one.generation, one.parent, one.root) for one in listed}


def _sharing(known: _Known) -> Provider:
    """A sharing provider without its generation, because each allocation changes it, and the table updates all rows
    when a sharing provider changes."""
    used = known.used()
    rows = {rc: _left_of(row, used.get(rc, 0)) for rc, row in known.provider.inventories.items()}
    inventories = {rc: row for rc, row in rows.items() if row.max_unit > 0}
    return replace(known.provider, generation=0, inventories=inventories)


def _left_of(row: Inventory, used: int) -> Inventory:
    """An inventory whose max_unit is the free amount, rounded up to a power of two so that it changes rarely."""
    free = row.capacity - used
    bound = 1 << (free - 1).bit_length() if free > 0 else 0
    return replace(row, max_unit=min(row.max_unit, bound))


def _rough_leaf(summary: Summary) -> dict[str, Leaf]:
    rows = {rc: Inventory(capacity) for rc, capacity in summary.capacity.items() if capacity > 0}
    rough = Provider(summary.uuid, parent=summary.parent, inventories=rows, traits=frozenset(summary.traits))
    return rough.to_leaf()


def _add(tree: Tree, provider: str, found: Mapping[str, ProviderAllocation]) -> None:
    for consumer, held in found.items():
        tree.consumers.setdefault(consumer, {})[provider] = dict(held.amounts)
        tree.generations[consumer] = common_generation(tree.generations.get(consumer), held.generation)


def _positive(used: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in used.items() if amount}
