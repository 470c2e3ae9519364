# SPDX-License-Identifier: Apache-2.0
"""Which of the nodes that fit is preferred."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shared_scheduler.decision.request import Request
from shared_scheduler.independent.ask import Ask
from shared_scheduler.independent.node import NodeState, state_of
from shared_scheduler.table.host_view import HostView

#: A number for a node that fits; the greatest is tried first.
Preference = Callable[[Ask, NodeState], float]


def emptiest(resource_class: str) -> Preference:
    """Prefer the node of which the most is left."""
    return lambda ask, node: float(node.free(resource_class))


def fullest(resource_class: str) -> Preference:
    """Prefer the node of which the least is left, so that others stay empty."""
    return lambda ask, node: -float(node.free(resource_class))


class PreferenceWeigher:
    """A preference as a ``ForeignWeigher``."""

    name = "preference"
    minval: float | None = None
    maxval: float | None = None

    def __init__(self, preference: Preference) -> None:
        self._preference = preference

    def weigh(self, request: Request, views: Sequence[HostView]) -> Sequence[float]:
        """The numbers of the nodes."""
        ask: Ask = request.spec
        return [self._preference(ask, state_of(view)) for view in views]

    def multipliers(self, views: Sequence[HostView]) -> Sequence[float]:
        """All equal."""
        return [1.0] * len(views)
