# SPDX-License-Identifier: Apache-2.0
"""Nodes that are read again because an operator ordered it (``shared-scheduler-manage resync``).

=====================  =========================================================================
the node has           what is done
=====================  =========================================================================
an agent               its window is distrusted: a Resync, repeated by the window, until a snapshot
                       replaces the row; the agent reads Placement before the first one
no agent               RefreshNode: databases and Placement are read again
=====================  =========================================================================

When the row has been read, the quarantine of the node ends: refusals were counted against the row that was replaced,
and a late agent has answered.  If the node refuses again, it is counted again.

A host is read at most once in ``ORDER_INTERVAL_S``, and all hosts at ``ORDERS_PER_S``; the limits of windows and of the
revalidator apply besides.  So a loop in a script cannot flood a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from shared_scheduler.core.events import ResyncOrdered
from shared_scheduler.core.nodes import Nodes
from shared_scheduler.core.quarantine import Quarantine
from shared_scheduler.core.row_corrections import RowCorrections
from shared_scheduler.core.step import Step
from shared_scheduler.protocol.rate_limits import TokenBucket, TokenBuckets
from shared_scheduler.table.host_table import HostTable

#: How often one host is read by order, and of how many hosts that is remembered.
ORDER_INTERVAL_S, HOSTS_MAX = 10.0, 16_384
#: How many hosts are read by order.
ORDERS_PER_S, ORDERS_BURST = 10.0, 20.0
#: The number of nodes whose last order is remembered; the oldest is forgotten first.
ORDERS_MAX = 16_384


class ResyncState(StrEnum):
    """How far an order has come for one node."""

    WAITING = "waiting"
    READ = "read"
    TOO_SOON = "too_soon"


@dataclass(slots=True)
class OrderedResync:
    """The last order for one node.  ``epoch`` and ``sequence``: of the row before it."""

    order: str
    ordered_s: float
    epoch: int
    sequence: int
    state: ResyncState = ResyncState.WAITING
    ended_quarantine: bool = False


class OrderedResyncs:
    """The orders of operators, by node."""

    def __init__(self, table: HostTable, nodes: Nodes, corrections: RowCorrections, quarantine: Quarantine) -> None:
        self._table = table
        self._nodes = nodes
        self._corrections = corrections
        self._quarantine = quarantine
        self._of_host = TokenBuckets(1 / ORDER_INTERVAL_S, 1, HOSTS_MAX)
        self._of_all = TokenBucket(ORDERS_PER_S, ORDERS_BURST)
        self._by_node: dict[str, OrderedResync] = {}  # the newest order is the last
        self.counters: Counter[str] = Counter()

    def get(self, node: str, order: str) -> OrderedResync | None:
        """The last order for a node; None if there was none, or it was not carried out."""
        found = self._by_node.get(node)
        return found if found is not None and found.order == order else None

    def order(self, step: Step, event: ResyncOrdered) -> None:
        """Order a read of the nodes of a host, unless that was ordered a moment ago."""
        nodes = self._nodes.of_host(event.host)
        if not nodes:
            return
        if not self._may_order(event.host, step.now):
            self.counters["resyncs_ordered_too_soon"] += 1
            return
        for node in nodes:
            self._begin(step, node, event.cause)

    def _may_order(self, host: str, now: float) -> bool:
        """Take a token of the host and one of all, or neither."""
        return not self._of_all.wait_s(now) and self._of_host.take(host, now) and self._of_all.take(now)

    def _begin(self, step: Step, node: str, order: str) -> None:
        self._by_node.pop(node, None)
        self._by_node[node] = begun = OrderedResync(order, step.now, *self.position_of(node))
        if len(self._by_node) > ORDERS_MAX:
            del self._by_node[next(iter(self._by_node))]
        self.counters["resyncs_ordered"] += 1
        if self._nodes.agent_speaks_for(node):
            self._nodes.distrust(step, node)
        elif not self._corrections.refresh(step, node, "an operator has ordered it"):
            begun.state = ResyncState.TOO_SOON

    def position_of(self, node: str) -> tuple[int, int]:
        """Epoch and sequence of the row of a node; 0 and 0 if it has none, or no agent."""
        row = self._table.row_of(node)
        return (0, 0) if row is None else (row.epoch, row.sequence)

    def row_read(self, node: str) -> None:
        """A whole row has arrived: if it was ordered, the order and the quarantine of the node end."""
        found = self._by_node.get(node)
        if found is None or found.state is not ResyncState.WAITING or not self._is_answer(node, found):
            return
        found.state = ResyncState.READ
        found.ended_quarantine = node in self._quarantine.nodes
        self._quarantine.forget([node])

    def _is_answer(self, node: str, found: OrderedResync) -> bool:
        known = self._nodes.get(node)
        if known is None:
            return False
        if self._nodes.agent_speaks_for(node):
            return not known.window.is_distrusted
        return known.read_at_s >= found.ordered_s

    def forget(self, nodes: Iterable[str]) -> None:
        """Forget nodes that no longer exist."""
        for node in nodes:
            self._by_node.pop(node, None)
