# SPDX-License-Identifier: Apache-2.0
"""What filters have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.columns import BoolArray
from shared_scheduler.table.host_view import HostView

Aggregates = tuple[AggregateFacts, ...]


class NativeFilter(ABC):
    """One of Nova's filters over columns.  Class attributes are those of Nova's class.

    ``screens``: it may pass hosts that Nova's filter refuses; the exact answer is
    given by Nova's own object when the host is tried.
    """

    code = ""
    once = False
    on_rebuild = False
    screens = False

    @abstractmethod
    def mask(self, context: DecisionContext) -> BoolArray | None:
        """Which slots pass; None: all of them."""

    @abstractmethod
    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        """What was compared, for a host that did not pass."""


def metadata_of(aggregates: Aggregates) -> dict[str, set[str]]:
    """All metadata of a host's aggregates; values are comma-separated lists."""
    found: dict[str, set[str]] = {}
    for aggregate in aggregates:
        for key, value in aggregate.metadata.items():
            found.setdefault(key, set()).update(word.strip() for word in value.split(","))
    return found


def values_of(aggregates: Aggregates, key: str) -> set[str]:
    """The values that a host's aggregates have for one key, as they are."""
    return {one.metadata[key] for one in aggregates if key in one.metadata}


def least_of(values: set[str], otherwise: float, convert: Callable[[str], float]) -> float:
    """The smallest of several values of aggregates; ``otherwise`` if there is none, or a bad one."""
    try:
        return min(convert(value) for value in values) if values else otherwise
    except ValueError:
        return otherwise


def listed(values: set[str] | frozenset[str]) -> list[Leaf]:
    """For a detail."""
    return list(sorted(values))
