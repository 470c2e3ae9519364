# SPDX-License-Identifier: Apache-2.0
"""Reads the usage of a provider after a write that only Placement has judged.

Placement accepts racing writes beyond the capacity of a provider (doc/source/admin/placement.rst): it retries inside
the transaction of the refused attempt.  Within one process, at most one write per provider is in flight; another
scheduler may still race.  Each writer reads the usage afterwards and deletes its own allocation if the provider is
over-committed. The last reader sees every write, so no over-commit stays.

The read is omitted while a recent read showed ``PLENTY`` times what this scheduler has written since, because as many
schedulers may have read the same and written as much without a check.  (If the table shows enough, writes are
not serialised and this check is not used at all: ``table/assumed_claims.py``.)  Inventories change rarely and not by
racing writes, so they are cached for longer than usages.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.protocol.messages import Allocations

#: A read is valid for this long ...
FRESH_S = 5.0
#: ... if it left this many times what this scheduler has written since.
PLENTY = 16
#: The inventories of a provider are valid for this time.
INVENTORY_FRESH_S = 60.0
#: Maximum number of cached providers; a full cache is emptied, which only costs reads.
MAX_PROVIDERS = 20_000


@dataclass(frozen=True, slots=True)
class Overfull:
    """A provider has more allocations than capacity."""

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
    free: Mapping[str, int]
    #: the amount that this scheduler has written since the read
    written: Counter[str] = field(default_factory=Counter)


class OvercommitCheck:
    """Checks providers after writes, and caches the room that the last checks found."""

    def __init__(self, client: PlacementClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}
        self._known: dict[str, tuple[float, Mapping[str, int]]] = {}

    def check(self, allocations: Allocations) -> Overfull | None:
        """The first provider that is overfull after ``allocations`` were written, if any.

        :raises PlacementError: when Placement cannot be read
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
            seen.written.update(asked)
            return all(seen.free.get(name, 0) >= PLENTY * seen.written[name] for name in asked)

    def _read(self, provider: str, asked: Mapping[str, int]) -> Overfull | None:
        at_s, used = self._clock(), self._client.usages(provider)
        known = self._remembered(provider)
        capacities = known or self._capacities(provider)
        found = _overfull(provider, asked, used, capacities)
        if found is not None and known is not None:  # the inventory may have grown
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
