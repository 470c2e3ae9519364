# SPDX-License-Identifier: Apache-2.0
"""What the reads of a source have cost so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Cost:
    """Sums over ``reads``; ``queries`` are SQL queries and calls of Placement, ``rows`` what they returned."""

    reads: int = 0
    failures: int = 0
    seconds: float = 0.0
    queries: int = 0
    rows: int = 0
    last_s: float = 0.0

    def add(self, one: Cost) -> None:
        """One more read, which took ``one.seconds``."""
        self.reads += one.reads
        self.failures += one.failures
        self.seconds += one.seconds
        self.queries += one.queries
        self.rows += one.rows
        self.last_s = one.seconds


_CURRENT: ContextVar[Cost | None] = ContextVar("cost", default=None)


@contextmanager
def measured() -> Iterator[Cost]:
    """What this thread queries meanwhile is counted in the ``Cost``; also threads that run in its context."""
    cost = Cost(reads=1)
    token = _CURRENT.set(cost)
    try:
        yield cost
    finally:
        _CURRENT.reset(token)


def count(rows: int) -> None:
    """One query has returned so many rows."""
    cost = _CURRENT.get()
    if cost is not None:
        cost.queries += 1
        cost.rows += rows
