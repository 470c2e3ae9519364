# SPDX-License-Identifier: Apache-2.0
"""Reads the usage of a provider after a write that only Placement has judged.

Placement accepts racing writes beyond the capacity of a provider (doc/source/admin/placement.rst): it retries inside
the transaction of the refused attempt.  Within one process, at most one write per provider is in flight; another
scheduler may still race.  Each writer reads the usage afterwards and deletes its own allocation if the provider is
over-committed (``overcommit_rules``).  The last reader sees every write, so no over-commit stays.

The read is never omitted here, however much an earlier one found: other schedulers may have taken the rest since, and
a writer that does not read while it races for the last unit is noticed by nobody.  (If the table shows enough, writes
are not serialised and this check is not used at all: ``table/assumed_claims.py``.)  Inventories change rarely and not
by racing writes, so they are cached.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.overcommit_rules import Overfull, overfull
from shared_scheduler.protocol.messages import Allocations

#: The inventories of a provider are valid for this time.
INVENTORY_FRESH_S = 60.0
#: Maximum number of cached providers; a full cache is emptied, which only costs reads.
MAX_PROVIDERS = 20_000


class OvercommitCheck:
    """Checks providers after writes, and caches their capacities."""

    def __init__(self, client: PlacementClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Mapping[str, int]]] = {}

    def check(self, allocations: Allocations) -> Overfull | None:
        """The first provider that is overfull after ``allocations`` were written, if any.

        :raises PlacementError: when Placement cannot be read
        """
        for provider, asked in allocations.items():
            found = self._read(provider, asked)
            if found is not None:
                return found
        return None

    def _read(self, provider: str, asked: Mapping[str, int]) -> Overfull | None:
        used = self._client.usages(provider)
        known = self._remembered(provider)
        found = overfull(provider, asked, used, known or self._capacities(provider))
        if found is not None and known is not None:  # the inventory may have grown
            found = overfull(provider, asked, used, self._capacities(provider))
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
