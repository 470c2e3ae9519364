# SPDX-License-Identifier: Apache-2.0
"""The instances of each server group and their slots, from rows and own outstanding claims.

A row has the group of each consumer if its agent knows it, and shows an instance while the consumer is a member of the
node.  A claim of this scheduler has the group of its consumer.  Both may show one instance on one slot, so the sources
of each place are counted.  An instance that moves has two places.

The slots of a group are also an array without gaps, so that a decision counts thousands of servers with one label by
domain in some microseconds.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection

import numpy as np

from shared_scheduler.table.columns import IntArray

#: an instance and a slot on which it is
Place = tuple[str, int]
NOWHERE: IntArray = np.zeros(0, dtype=np.int64)


class _Places:
    """The places of one group.  ``slots`` and ``order`` are parallel; ``position`` is the index in both."""

    __slots__ = ("at", "moving", "order", "position", "slots")

    def __init__(self) -> None:
        #: instance -> slot -> number of sources
        self.at: dict[str, dict[int, int]] = {}
        #: the instances with several places
        self.moving: set[str] = set()
        self.position: dict[Place, int] = {}
        self.order: list[Place] = []
        self.slots = array("q")

    def add(self, instance: str, slot: int) -> None:
        sources = self.at.setdefault(instance, {})
        if slot not in sources:
            self.position[instance, slot] = len(self.order)
            self.order.append((instance, slot))
            self.slots.append(slot)
        sources[slot] = sources.get(slot, 0) + 1
        if len(sources) > 1:
            self.moving.add(instance)

    def discard(self, instance: str, slot: int) -> None:
        sources = self.at[instance]
        sources[slot] -= 1
        if not sources[slot]:
            del sources[slot]
            self._remove((instance, slot))
            if len(sources) < 2:
                self.moving.discard(instance)
            if not sources:
                del self.at[instance]

    def _remove(self, place: Place) -> None:
        """Close the gap with the last place."""
        gap, last, slot = self.position.pop(place), self.order.pop(), self.slots.pop()
        if last != place:
            self.order[gap], self.slots[gap], self.position[last] = last, slot, gap


class GroupMembers:
    """group uuid -> its instances and their slots."""

    def __init__(self) -> None:
        self._of: dict[str, _Places] = {}

    def __len__(self) -> int:
        return len(self._of)

    def add(self, group: str, instance: str, slot: int) -> None:
        """Count a row or claim on this slot with this instance in this group."""
        places = self._of.get(group)
        if places is None:
            places = self._of[group] = _Places()
        places.add(instance, slot)

    def discard(self, group: str, instance: str, slot: int) -> None:
        """Remove the count of a row or claim on this slot with this instance in this group."""
        places = self._of[group]
        places.discard(instance, slot)
        if not places.at:
            del self._of[group]

    def of(self, group: str) -> frozenset[str]:
        """The instances of a group."""
        places = self._of.get(group)
        return frozenset() if places is None else frozenset(places.at)

    def moving(self, group: str) -> frozenset[str]:
        """The instances of a group that have several places."""
        places = self._of.get(group)
        return frozenset() if places is None else frozenset(places.moving)

    def slots(self, group: str, besides: Collection[str]) -> IntArray:
        """The slot of each place of a group, as a new array, without those of the instances ``besides``.

        An instance that moves has several places.
        """
        places = self._of.get(group)
        if places is None:
            return NOWHERE
        slots: IntArray = np.frombuffer(places.slots, dtype=np.int64)  # a view: no place can be added while it exists
        without = [places.position[uuid, slot] for uuid in besides for slot in places.at.get(uuid, ())]
        return np.delete(slots, without) if without else slots.copy()

    def has(self, group: str, instance: str, slot: int) -> bool:
        """Whether a row or claim on this slot has this instance in this group."""
        places = self._of.get(group)
        return places is not None and (instance, slot) in places.position
