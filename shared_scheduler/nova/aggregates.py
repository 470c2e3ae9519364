# SPDX-License-Identifier: Apache-2.0
"""Nova's host aggregates, updated by the casts that nova-api fans out and by a periodic read.

The API database is the authority.  Casts keep this cache close to it; they can be lost and reordered, so everything is
read again periodically, and before a request fails because an aggregate does not exist, the database is read
(``request_filters``).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from typing import Any

from nova import objects

from shared_scheduler.core.events import AggregateFacts

#: Reads that a cast may overtake before the newest result is used anyway.
REREADS_MAX = 3


class AggregateCache:
    """All aggregates by id, as Nova's own ``objects.Aggregate``.  Any thread may use it."""

    def __init__(self) -> None:
        self._by_id: dict[int, Any] = {}
        self._of_host: dict[str, list[Any]] = {}
        self._changes = 0
        self._lock = threading.Lock()

    def read(self, context: Any) -> tuple[AggregateFacts, ...]:
        """Read all aggregates from the API database and return them.

        A cast that arrives during the read may be newer than the result; then it is read again.
        """
        for _ in range(REREADS_MAX):
            before = self._changes
            found = {each.id: each for each in objects.AggregateList.get_all(context)}
            with self._lock:
                if self._changes == before:
                    break
        with self._lock:
            self._replace(found)
        return self.facts()

    def update(self, aggregates: Iterable[Any]) -> tuple[AggregateFacts, ...]:
        """Store the aggregates of a cast or a query; returns their facts."""
        taken = list(aggregates)
        with self._lock:
            self._changes += 1
            self._replace({**self._by_id, **{each.id: each for each in taken}})
        return tuple(facts(each) for each in taken)

    def delete(self, aggregate_id: int) -> None:
        """Forget one."""
        with self._lock:
            self._changes += 1
            self._replace({k: v for k, v in self._by_id.items() if k != aggregate_id})

    def _replace(self, by_id: dict[int, Any]) -> None:
        of_host: dict[str, list[Any]] = {}
        for key in sorted(by_id):
            for host in by_id[key].hosts:
                of_host.setdefault(host, []).append(by_id[key])
        self._by_id, self._of_host = by_id, of_host

    def all(self) -> Collection[Any]:
        """Every aggregate."""
        return self._by_id.values()

    def facts(self) -> tuple[AggregateFacts, ...]:
        """Every aggregate in the form that the core uses."""
        return tuple(facts(each) for each in self.all())

    def of_host(self, host: str) -> list[Any]:
        """Aggregates that name this service host, in the order of their ids."""
        return list(self._of_host.get(host, ()))

    def with_metadata(self, key: str, value: str) -> list[Any]:
        """Aggregates whose metadata contain exactly this pair."""
        return [each for each in self.all() if each.metadata.get(key) == value]

    def with_value_under_prefix(self, prefix: str, value: str) -> list[Any]:
        """Aggregates with any metadata ``prefix*`` = ``value``."""
        return [
            each for each in self.all() if any(k.startswith(prefix) and v == value for k, v in each.metadata.items())
        ]

    def demanding(self, prefix: str, value: str, satisfied: Collection[str]) -> list[Any]:
        """Aggregates with a metadata ``prefix*`` = ``value`` whose key is not in ``satisfied``."""
        return [
            each
            for each in self.all()
            if any(k.startswith(prefix) and v == value and k not in satisfied for k, v in each.metadata.items())
        ]


def facts(aggregate: Any) -> AggregateFacts:
    """The data of one ``objects.Aggregate`` that the pure core needs."""
    return AggregateFacts(
        id=aggregate.id,
        uuid=aggregate.uuid,
        name=aggregate.name,
        hosts=frozenset(aggregate.hosts),
        metadata=dict(aggregate.metadata),
    )
