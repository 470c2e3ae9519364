# SPDX-License-Identifier: Apache-2.0
"""A Placement for the simulator that behaves as the real one (docs: Placement's allocation API).

* Capacity by the one rule of ``model/resources.py``.
* A consumer is new (generation null) or it exists; a write for a consumer with other allocations
  is a conflict, and one that repeats the existing allocations is a success (the writer reads it back).
* The check reads the state at the beginning of a write and the rows appear at its end, so that
  racing writes for one provider over-commit it, as the real one does: Placement alone does not
  prevent it.  ``races=False`` turns the race off.
* A DELETE frees resources at once.  It does not change the generation of a provider, so no scheduler notices it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared_scheduler.core.events import WriteCode
from shared_scheduler.model.providers import Provider
from shared_scheduler.model.resources import Inventory, Shortage, add_amounts, first_shortage, same_allocations
from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.sim.selections import is_selected


@dataclass(slots=True)
class Write:
    """A write under way: the allocations to write, those that it replaces, and the shortage found when it began."""

    consumer: str
    allocations: Allocations
    shortage: Shortage | None
    before: Allocations | None


@dataclass(slots=True)
class SimPlacement:
    """Providers and allocations; each node is a tree that consists of its root only."""

    races: bool = True
    up: bool = True
    #: how slow it is: seconds for each consumer of a write, and for each call, besides the usual time of a call
    consumer_s: float = 0.0
    call_s: float = 0.0
    providers: dict[str, Provider] = field(default_factory=dict)
    consumers: dict[str, Allocations] = field(default_factory=dict)
    _on: dict[str, dict[str, Allocations]] = field(default_factory=dict)
    _used: dict[str, dict[str, int]] = field(default_factory=dict)

    # -- providers

    def add_provider(self, node: str, name: str, inventories: Mapping[str, Inventory]) -> None:
        """Add the root provider of a compute node."""
        self.providers[node] = Provider(node, name, None, 1, inventories)
        self._on.setdefault(node, {})

    def tree(self, node: str) -> tuple[Provider, ...]:
        """The providers of a node's tree."""
        return (self.providers[node],) if node in self.providers else ()

    def consumers_of(self, node: str) -> dict[str, Allocations]:
        """The consumers of a provider: consumer -> its allocations of this provider."""
        return dict(self._on.get(node, {}))

    def used(self, node: str) -> Mapping[str, int]:
        """Resource class -> amount in use on this provider."""
        return self._used.get(node, {})

    def over_commit(self, node: str) -> dict[str, int]:
        """Resource class -> amount above the capacity; empty if there is no over-commit."""
        inventories = self.providers[node].inventories
        used = self.used(node)
        return {
            rc: amount - inventories[rc].capacity for rc, amount in used.items() if amount > inventories[rc].capacity
        }

    # -- writing

    def takes_s(self, consumers: int) -> float:
        """The additional time of a call that writes, or reads, so many consumers."""
        return self.call_s + consumers * self.consumer_s

    def begin_write(self, consumer: str, allocations: Allocations) -> Write:
        """Begin a write: check the capacity."""
        return Write(consumer, allocations, self._shortage(allocations), self.consumers.get(consumer))

    def begin_writes(self, writes: Sequence[tuple[str, Allocations]]) -> list[Write]:
        """Begin a call with several writes (consumer, allocations): each is checked beside those before it."""
        begun = []
        for consumer, allocations in writes:
            begun.append(self.begin_write(consumer, allocations))
            add_amounts(self._used, allocations)
        for _, allocations in writes:
            add_amounts(self._used, allocations, -1)
        return begun

    def refusal(self, write: Write) -> tuple[WriteCode, str] | None:
        """Why a write is refused at its end; None if it is carried out."""
        stands = self.consumers.get(write.consumer)
        if stands is not None:
            same = same_allocations(stands, write.allocations)
            return None if same else (WriteCode.CONSUMER_CONFLICT, f"{write.consumer} holds other allocations")
        if any(node not in self.providers for node in write.allocations):
            return WriteCode.UNKNOWN_PROVIDER, "no such resource provider"
        shortage = write.shortage if self.races else self._shortage(write.allocations)
        if shortage is not None:
            return WriteCode.NO_CAPACITY, f"{shortage.resource_class}: {shortage.detail()}"
        return None

    def end_write(self, write: Write) -> tuple[WriteCode, str]:
        """End a write: store the allocations, or return why they are refused."""
        refusal = self.refusal(write)
        if refusal is None and write.consumer not in self.consumers:
            self._put(write.consumer, write.allocations)
        return refusal or (WriteCode.WRITTEN, "")

    def _put(self, consumer: str, allocations: Allocations) -> None:
        self.consumers[consumer] = allocations
        for node, amounts in allocations.items():
            self._on[node][consumer] = {node: amounts}
        add_amounts(self._used, allocations)

    def delete(self, consumer: str) -> None:
        """Delete all allocations of a consumer."""
        held = self.consumers.pop(consumer, {})
        for node in held:
            self._on[node].pop(consumer, None)
        add_amounts(self._used, held, -1)

    def begin_move(self, consumer: str, migration: str, node: str) -> bool:
        """The conductor's write for a live migration: the migration holds the source's part from now on, the consumer
        the same amounts on ``node``.  False if there is no room."""
        (amounts,) = self.consumers[consumer].values()
        if self._shortage({node: amounts}) is not None:
            return False
        held = self.consumers[consumer]
        self.delete(consumer)
        self._put(migration, held)
        self._put(consumer, {node: amounts})
        return True

    def holds_exactly(self, consumer: str, written: Allocations) -> bool:
        """Whether the allocations of the consumer are the ones that were written."""
        stands = self.consumers.get(consumer)
        return stands is not None and same_allocations(stands, written)

    # -- asking

    def fitting(self, query: str) -> frozenset[str]:
        """The root providers that have what a query asks for, and enough capacity in each class."""
        wanted, providers = wanted_of(query), self.providers.items()
        selected = (node for node, provider in providers if is_selected(provider, query))
        return frozenset(node for node in selected if self._shortage({node: wanted}) is None)

    def _shortage(self, allocations: Allocations) -> Shortage | None:
        inventories = {node: self.providers[node].inventories for node in allocations if node in self.providers}
        used = {node: self.used(node) for node in inventories}
        return first_shortage(inventories, used, allocations)


def wanted_of(query: str) -> dict[str, int]:
    """The amounts of a query string's ``resources`` (simulated requests have no numbered groups)."""
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name == "resources":
            pairs = (item.split(":") for item in value.split(","))
            return {rc: int(amount) for rc, amount in pairs}
    return {}
