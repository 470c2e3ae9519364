# SPDX-License-Identifier: Apache-2.0
"""The base class of filters, and functions that several filters use."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.columns import BoolArray
from shared_scheduler.table.host_view import HostView

Aggregates = tuple[AggregateFacts, ...]


class NativeFilter:
    """One of Nova's filters over columns.  Class attributes are those of Nova's class.

    ``selects``: the filter compares the request with lasting properties of a host, as node affinity in Kubernetes does
    (``spreading.py``).  ``screens``: the filter may pass hosts that Nova's filter refuses.  Nova's own object then
    decides when the host is tried.

    The class is not an ``ABC``: each decision asks for the type of each filter, and that of an ``ABC`` takes five times
    as long.  mypy refuses a filter without its methods as well.
    """

    code = ""
    once = False
    on_rebuild = False
    selects = False
    screens = False

    @abstractmethod
    def mask(self, context: DecisionContext) -> BoolArray | None:
        """The mask of the slots that pass; None: all."""

    @abstractmethod
    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        """The values that were compared, for a host that did not pass."""


def metadata_of(aggregates: Aggregates) -> dict[str, set[str]]:
    """All metadata of a host's aggregates; values are comma-separated lists."""
    found: dict[str, set[str]] = {}
    for aggregate in aggregates:
        for key, value in aggregate.metadata.items():
            found.setdefault(key, set()).update(word.strip() for word in value.split(","))
    return found


def values_of(aggregates: Aggregates, key: str) -> set[str]:
    """The values that a host's aggregates have for one key, not split."""
    return {one.metadata[key] for one in aggregates if key in one.metadata}


def least_of(values: set[str], otherwise: float, convert: Callable[[str], float]) -> float:
    """The smallest of several values of aggregates; ``otherwise`` if there is none or one is malformed."""
    try:
        return min(convert(value) for value in values) if values else otherwise
    except ValueError:
        return otherwise


def listed(values: set[str] | frozenset[str]) -> list[Leaf]:
    """The values in a form for ``detail``."""
    return list(sorted(values))
