# SPDX-License-Identifier: Apache-2.0
"""Host aggregates of the Nova API database, by service host.

The aggregates of a resource provider, which Placement stores, are a different thing (``model/providers.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class AggregateFacts:
    """One host aggregate of the Nova API database."""

    id: int
    uuid: str
    name: str
    hosts: frozenset[str]
    metadata: Mapping[str, str]


class HostAggregates:
    """All host aggregates.  Every change returns the hosts that it affects."""

    def __init__(self) -> None:
        self._by_id: dict[int, AggregateFacts] = {}
        #: hosts in the same aggregates share one tuple if they were indexed together
        self._of_host: dict[str, tuple[AggregateFacts, ...]] = {}
        self._keys: frozenset[str] = frozenset()

    def copy(self) -> HostAggregates:
        """The same aggregates; later changes of one do not affect the other."""
        found = HostAggregates()
        found._by_id, found._of_host, found._keys = dict(self._by_id), dict(self._of_host), self._keys
        return found

    def all(self) -> tuple[AggregateFacts, ...]:
        """All aggregates, by id."""
        return tuple(self._by_id[key] for key in sorted(self._by_id))

    def of(self, host: str) -> tuple[AggregateFacts, ...]:
        """The aggregates of ``host``, by id."""
        return self._of_host.get(host, ())

    def has_key(self, key: str) -> bool:
        """Whether the metadata of any aggregate with hosts may have this key."""
        return key in self._keys

    def replace(self, aggregates: Iterable[AggregateFacts]) -> frozenset[str]:
        """Replace all aggregates."""
        given = {aggregate.id: aggregate for aggregate in aggregates}
        return self.update(given.values()) | self.delete(self._by_id.keys() - given.keys())

    def update(self, aggregates: Iterable[AggregateFacts]) -> frozenset[str]:
        """Add aggregates, or replace those with the same id.  Changes of other hosts do not affect a host."""
        concerned: set[str] = set()
        touched: set[str] = set()
        for aggregate in aggregates:
            before = self._by_id.get(aggregate.id)
            if before == aggregate:
                continue
            self._by_id[aggregate.id] = aggregate
            earlier = before.hosts if before else frozenset[str]()
            touched |= aggregate.hosts | earlier
            same = before is not None and aggregate == replace(before, hosts=aggregate.hosts)
            concerned |= aggregate.hosts ^ earlier if same else aggregate.hosts | earlier
        self._reindex(touched)
        return frozenset(concerned)

    def delete(self, ids: Iterable[int]) -> frozenset[str]:
        """Remove aggregates; unknown ids are ignored."""
        concerned: set[str] = set()
        for aggregate_id in list(ids):
            gone = self._by_id.pop(aggregate_id, None)
            concerned |= gone.hosts if gone else frozenset()
        return self._reindex(concerned)

    def _reindex(self, hosts: set[str]) -> frozenset[str]:
        if not hosts:
            return frozenset()
        found: dict[str, list[AggregateFacts]] = {host: [] for host in hosts}
        for aggregate in self.all():
            for host in hosts & aggregate.hosts:
                found[host].append(aggregate)
        same: dict[tuple[int, ...], tuple[AggregateFacts, ...]] = {}
        for host, its in found.items():
            if its:
                key = tuple(aggregate.id for aggregate in its)
                self._of_host[host] = same.setdefault(key, tuple(its))
            else:
                self._of_host.pop(host, None)
        self._keys = frozenset(key for one in self._by_id.values() for key in one.metadata)
        return frozenset(hosts)
