# SPDX-License-Identifier: Apache-2.0
"""Reads the state of a resource tracker as leaves and members, and finds the changes since the last report.

It is read only while Nova's own lock is held, because during each audit the numbers are zero for a time, and not after
an audit that has failed meanwhile (``hooks.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeVar

from compute_agent.events import Member
from compute_agent.sources.compute_node_leaves import scalar_leaves
from compute_agent.tap_wire import NodeReported
from shared_scheduler.model import leaves as names
from shared_scheduler.novalib.image_properties import InstanceImages
from shared_scheduler.novalib.topology import topology_leaves
from shared_scheduler.protocol.messages import Leaf

Value = TypeVar("Value")


@dataclass(slots=True)
class NodeSnapshot:
    """The state of one node in its last report."""

    node: str
    leaves: dict[str, Leaf] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    ready: bool = False
    told: bool = False

    def complete(self) -> NodeReported:
        return NodeReported(self.node, dict(self.leaves), dict(self.members), True, self.ready)

    def update(self, leaves: Mapping[str, Leaf], members: Mapping[str, Member], ready: bool) -> NodeReported | None:
        """Take the new state.  Return the changes or None; at first, and when ``ready`` changes, a complete report."""
        changed = NodeReported(self.node, changes(self.leaves, leaves), changes(self.members, members), False, ready)
        partial = self.told and ready == self.ready  # an agent becomes ready by a complete report only
        self.leaves, self.members, self.ready = dict(leaves), dict(members), ready
        self.told = True
        if not partial:
            return self.complete()
        return changed if changed.leaves or changed.members else None


class TrackerReader:
    """Reads one resource tracker.  Parses each NUMA text once, because parsing is expensive."""

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker
        self._topologies: dict[str, tuple[object, dict[str, Leaf]]] = {}
        self._images = InstanceImages()
        self._stays = False  # whether the instance of the dropped move stays here
        self._left: dict[str, dict[str, object]] = {}  # nodename -> uuid that moved away -> its state then

    def leaves(self, nodename: str) -> dict[str, Leaf]:
        compute_node = self._tracker.compute_nodes[nodename]
        stats = self._tracker.stats.get(nodename, {})
        found = scalar_leaves(compute_node, stats) | self.topology(nodename)
        return found | self._images.leaves(self._here(nodename))

    def see(self, instance: Any) -> None:
        """Read the image of an instance before the tracker changes its usage."""
        self._images.see(instance)

    def topology(self, nodename: str) -> dict[str, Leaf]:
        """NUMA and PCI leaves.  The pools are those of the tracker, because the object gets them later."""
        compute_node = self._tracker.compute_nodes[nodename]
        text = compute_node.numa_topology if "numa_topology" in compute_node else None
        pools = [_flat(pool) for pool in self._pools()]
        now_is = (text, pools)
        before = self._topologies.get(nodename)
        if before is not None and before[0] == now_is:
            return before[1]
        found = topology_leaves(text, pools)
        self._topologies[nodename] = (now_is, found)
        return found

    def members(self, nodename: str) -> dict[str, Member]:
        """The node's instances and those that move in or out (never ``tracked_instances``)."""
        found = {uuid: Member() for uuid in self._here(nodename)}
        for uuid, migration in self._tracker.tracked_migrations.items():
            if nodename in (_of(migration, "source_node"), _of(migration, "dest_node")):
                found[uuid] = Member(uuid in found, _of(migration, "uuid") or "unknown")
        return found

    def _here(self, nodename: str) -> frozenset[str]:
        """Instances that the tracker counts as the node's own."""
        states = self._states(nodename)
        return frozenset(states.keys() - self._still_left(nodename, states).keys())

    def _states(self, nodename: str) -> Mapping[str, object]:
        stats = self._tracker.stats.get(nodename)
        return stats.states if stats is not None else {}

    def forget_gone(self) -> None:
        """Drop the images of instances that no node counts any more."""
        self._images.keep(frozenset().union(*map(self._states, self._tracker.stats)))

    def move_ends(self, uuid: str) -> None:
        """The tracker is about to forget a move of this instance."""
        migration = self._tracker.tracked_migrations.get(uuid)
        source = "" if migration is None else _of(migration, "source_node")
        self._stays = bool(source) and source == _of(migration, "dest_node")

    def move_ended(self, nodename: str, uuid: str) -> None:
        """The tracker has forgotten the move.  Nova's statistics keep the instance until the next audit."""
        states = self._tracker.stats[nodename].states
        if uuid in states and not self._stays:
            self._left.setdefault(nodename, {})[uuid] = states[uuid]

    def _still_left(self, nodename: str, states: Mapping[str, object]) -> dict[str, object]:
        """Instances that moved away and whose state in the statistics is unchanged since then."""
        left = self._left.get(nodename, {})
        self._left[nodename] = {uuid: was for uuid, was in left.items() if uuid in states and states[uuid] is was}
        return self._left[nodename]

    def tree_digest(self, node: str) -> bytes:
        """A digest of the content of the node's providers, without generations."""
        tree = self._tracker.provider_tree
        content = [_content(tree.data(uuid)) for uuid in tree.get_provider_uuids(node)]
        return blake2b(repr(content).encode(), digest_size=16).digest()

    def _pools(self) -> Any:
        pci_tracker = self._tracker.pci_tracker
        return pci_tracker.stats.pools if pci_tracker is not None else ()


def changes(before: Mapping[str, Value], now_is: Mapping[str, Value]) -> dict[str, Value | None]:
    """New values of what changed, None for what is gone."""
    changed: dict[str, Value | None] = dict.fromkeys(before.keys() - now_is.keys())
    changed.update((key, value) for key, value in now_is.items() if before.get(key) != value)
    return changed


def is_topology(name: str) -> bool:
    return name.startswith((names.NUMA, names.PCI)) or name == names.PCI_ORDER


def _flat(pool: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in pool.items() if key != "devices"}


def _of(migration: Any, name: str) -> str:
    value = getattr(migration, name, None) if name in migration else None
    return str(value) if value else ""


def _content(data: Any) -> tuple[Any, ...]:
    inventory = sorted((rc, sorted(values.items())) for rc, values in data.inventory.items())
    return (data.uuid, data.name, data.parent_uuid, inventory, sorted(data.traits), sorted(data.aggregates))
