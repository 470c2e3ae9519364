# SPDX-License-Identifier: Apache-2.0
"""The cost of the reads of a source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Cost:
    """Sums over ``reads``.  ``queries``: SQL queries and calls of Placement; ``rows``: the rows that they returned."""

    reads: int = 0
    failures: int = 0
    seconds: float = 0.0
    queries: int = 0
    rows: int = 0
    last_s: float = 0.0

    def add(self, one: Cost) -> None:
        """Add the cost of one read, which took ``one.seconds``."""
        self.reads += one.reads
        self.failures += one.failures
        self.seconds += one.seconds
        self.queries += one.queries
        self.rows += one.rows
        self.last_s = one.seconds


_CURRENT: ContextVar[Cost | None] = ContextVar("cost", default=None)


@contextmanager
def measured() -> Iterator[Cost]:
    """Counts the queries of this thread, and of threads that run in its context, in the yielded ``Cost``."""
    cost = Cost(reads=1)
    token = _CURRENT.set(cost)
    try:
        yield cost
    finally:
        _CURRENT.reset(token)


def count(rows: int) -> None:
    """Count one query that returned this number of rows."""
    cost = _CURRENT.get()
    if cost is not None:
        cost.queries += 1
        cost.rows += rows
