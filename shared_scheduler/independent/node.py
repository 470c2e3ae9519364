# SPDX-License-Identifier: Apache-2.0
"""A node as its owner describes it, and as the scheduler sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared_scheduler.model import leaves
from shared_scheduler.model.providers import Provider
from shared_scheduler.model.resources import Inventory
from shared_scheduler.protocol.messages import Consumer, Leaf
from shared_scheduler.table.host_view import HostView


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node with everything that is known of it: ``IndependentScheduler.put`` replaces what was known before.

    ``uuid`` identifies it, and ``name`` is for people; if it is empty, the uuid is the name.  ``consumers`` is what it
    holds: consumer -> class -> amount.  ``aggregates`` are names or ids of the caller's.  A node that is not
    ``in_service`` gets no new consumers.
    """

    uuid: str
    name: str
    inventories: Mapping[str, Inventory]
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()
    consumers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    in_service: bool = True

    def leaves(self) -> dict[str, Leaf]:
        """The leaves of its row."""
        provider = Provider(self.uuid, self.name, None, 0, self.inventories, self.traits, self.aggregates)
        return {leaves.PROVIDER + self.uuid: provider.to_leaf(), REPORTED: 0}

    def held(self) -> dict[str, Consumer]:
        """The consumers of its row."""
        return {uuid: Consumer({self.uuid: dict(amounts)}, True) for uuid, amounts in self.consumers.items()}


#: a row without this leaf counts as one that was never reported
REPORTED = leaves.COMPUTE_NODE + "free_disk_gb"


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node with outstanding claims counted, for preferences."""

    uuid: str
    name: str
    capacity: Mapping[str, int]
    used: Mapping[str, int]
    traits: frozenset[str]
    aggregates: frozenset[str]
    consumers: frozenset[str]

    def free(self, resource_class: str) -> int:
        """What is left of a class; 0 without an inventory."""
        return self.capacity.get(resource_class, 0) - self.used.get(resource_class, 0)


def state_of(view: HostView) -> NodeState:
    """The state in a view of the table."""
    root = view.root
    return NodeState(
        view.node,
        view.nodename,
        {rc: inventory.capacity for rc, inventory in root.inventories.items()},
        dict(view.used.get(view.node, {})),
        root.traits,
        root.aggregates,
        view.members,
    )
