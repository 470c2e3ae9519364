# SPDX-License-Identifier: Apache-2.0
"""A look at a provider after a write that nobody but Placement has judged.

Placement accepts racing writes beyond a provider's capacity (placement.md 3.5): its retry runs inside
the transaction of the refused attempt.  Within one process at most one write a provider is in flight;
another scheduler may still race.  Whoever has written looks at the usages afterwards and takes its
own back if there is too much: the last one to look sees every write, so none stays too many.

The look is left out where a recent one found plenty: many times what is asked.  (Where the table knows
of plenty, nothing is serialised, and this is not asked at all: ``state/plenty.py``.)  Inventories change
rarely, and not by writes that race, so they are remembered for longer than usages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.protocol.messages import Allocations

#: A look is good for this long ...
FRESH_S = 5.0
#: ... and where it left this many times of what is asked.
PLENTY = 16
#: A provider's inventories are good for this long.
INVENTORY_FRESH_S = 60.0
#: Providers remembered; then all are forgotten, which costs looks and nothing else.
MAX_PROVIDERS = 20_000


@dataclass(frozen=True, slots=True)
class Overfull:
    """A provider holds more than it may."""

    provider: str
    resource_class: str
    used: int
    capacity: int

    def __str__(self) -> str:
        return (
            f"provider {self.provider} held {self.used} of {self.capacity} {self.resource_class} "
            "after a racing write"
        )


@dataclass(slots=True)
class _Seen:
    at_s: float
    free: dict[str, int]


class Room:
    """Knows how much room the last looks found."""

    def __init__(self, client: PlacementClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}
        self._known: dict[str, tuple[float, Mapping[str, int]]] = {}

    def look(self, allocations: Allocations) -> Overfull | None:
        """The first provider that is overfull after ``allocations`` were written, if any.

        Raises ``PlacementError`` if that cannot be learned.
        """
        for provider, asked in allocations.items():
            if not self._plenty(provider, asked):
                found = self._read(provider, asked)
                if found is not None:
                    return found
        return None

    def _plenty(self, provider: str, asked: Mapping[str, int]) -> bool:
        with self._lock:
            seen = self._seen.get(provider)
            if seen is None or seen.at_s + FRESH_S < self._clock():
                return False
            for name, amount in asked.items():
                seen.free[name] = seen.free.get(name, 0) - amount
            return all(seen.free[name] >= PLENTY * amount for name, amount in asked.items())

    def _read(self, provider: str, asked: Mapping[str, int]) -> Overfull | None:
        at_s, used = self._clock(), self._client.usages(provider)
        known = self._remembered(provider)
        capacities = known or self._capacities(provider)
        found = _overfull(provider, asked, used, capacities)
        if found is not None and known is not None:  # it may have grown
            capacities = self._capacities(provider)
            found = _overfull(provider, asked, used, capacities)
        free = {name: capacity - used.get(name, 0) for name, capacity in capacities.items()}
        with self._lock:
            if len(self._seen) >= MAX_PROVIDERS:
                self._seen.clear()
            self._seen[provider] = _Seen(at_s, free)
        return found

    def _remembered(self, provider: str) -> Mapping[str, int] | None:
        with self._lock:
            read_at_s, known = self._known.get(provider, (float("-inf"), {}))
        return known if self._clock() - read_at_s < INVENTORY_FRESH_S else None

    def _capacities(self, provider: str) -> Mapping[str, int]:
        now, inventories = self._clock(), self._client.inventories(provider)
        found = {name: one.capacity for name, one in inventories.items()}
        with self._lock:
            if len(self._known) >= MAX_PROVIDERS:
                self._known.clear()
            self._known[provider] = now, found
        return found


def _overfull(
    provider: str, asked: Iterable[str], used: Mapping[str, int], capacities: Mapping[str, int]
) -> Overfull | None:
    for name in asked:
        if used.get(name, 0) > capacities.get(name, 0):
            return Overfull(provider, name, used[name], capacities.get(name, 0))
    return None
