# SPDX-License-Identifier: Apache-2.0
"""A look at a provider after a write that nobody but Placement has judged.

Placement accepts racing writes beyond a provider's capacity (placement.md 3.5): its retry runs inside
the transaction of the refused attempt.  Within one process at most one write a provider is in flight;
another scheduler may still race.  Whoever has written looks at the usages afterwards and takes its
own back if there is too much: the last one to look sees every write, so none stays too many.

The look is left out where a recent one found plenty: many times what is asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.protocol.messages import Allocations

#: A look is good for this long ...
FRESH_S = 5.0
#: ... and where it left this many times of what is asked.
PLENTY = 16
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
        inventories = self._client.inventories(provider)
        at_s, used = self._clock(), self._client.usages(provider)
        free = {name: one.capacity - used.get(name, 0) for name, one in inventories.items()}
        with self._lock:
            if len(self._seen) >= MAX_PROVIDERS:
                self._seen.clear()
            self._seen[provider] = _Seen(at_s, dict(free))
        for name in asked:
            if free.get(name, 0) < 0:
                return Overfull(provider, name, used[name], inventories[name].capacity)
        return None
