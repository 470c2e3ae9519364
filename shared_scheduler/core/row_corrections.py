# SPDX-License-Identifier: Apache-2.0
"""Rows that are in doubt are corrected by whoever speaks for them.

==========================================  ========================================================
who speaks for the node                     what is done
==========================================  ========================================================
nobody here has heard of the node           RefreshNode in all cells: it may be new
its agent                                   Resync: the agent checks Placement, then sends a snapshot
no agent                                    RefreshNode: databases and Placement are read again, at
                                            most once in ``refresh_interval_s``
==========================================  ========================================================

nova-api tells us of a change of a host aggregate before it tells Placement.  An agent reads its
aggregates in Placement only now and then, and ``member_of`` is judged by what it says.  So some seconds
after such a change the agents of its hosts are told to check.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared_scheduler.core.effects import RefreshNode
from shared_scheduler.core.nodes import Nodes
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.core.step import Step, Timers
from shared_scheduler.table.host_table import HostTable


class RowCorrections:
    """Has rows corrected, and remembers when each was read from the databases last."""

    def __init__(self, settings: SchedulerSettings, table: HostTable, timers: Timers, nodes: Nodes) -> None:
        self._settings = settings
        self._table = table
        self._timers = timers
        self._nodes = nodes
        self._refreshed_s: dict[str, float] = {}  # of nodes that are known

    def correct(self, step: Step, node: str, why: str) -> bool:
        """Have the row corrected; False if that cannot be done now."""
        if self._nodes.get(node) is None:
            step.emit(RefreshNode("", node, why, cause=step.cause))
            return True
        if self._nodes.agent_speaks_for(node):
            return self._nodes.ask_to_check_placement(step, node)
        return self.refresh(step, node, why)

    def refresh(self, step: Step, node: str, why: str) -> bool:
        """Have a node read again; False if that was done a moment ago."""
        known = self._nodes.get(node)
        if known is None or step.now - self._refreshed_s.get(node, float("-inf")) < self._settings.refresh_interval_s:
            return False
        self._refreshed_s[node] = step.now
        step.emit(RefreshNode(known.cell, node, why, cause=step.cause))
        return True

    def forget(self, nodes: Iterable[str]) -> None:
        """These nodes are no more."""
        for node in nodes:
            self._refreshed_s.pop(node, None)
            self._timers.cancel(("mirrored", node))

    def check_aggregates_later(self, step: Step, hosts: frozenset[str]) -> None:
        """These hosts joined a host aggregate or left one: their agents are to read Placement soon."""
        for host in sorted(hosts):
            for slot in self._table.slots_of_host(host):
                node = self._table.view_at(slot).node
                if self._nodes.agent_speaks_for(node):
                    self._check_later(step, node)

    def on_aggregates_timer(self, step: Step, node: str) -> None:
        """nova-api had the time to tell Placement."""
        if not self.correct(step, node, "its aggregates changed"):
            self._check_later(step, node)

    def _check_later(self, step: Step, node: str) -> None:
        self._timers.set(("mirrored", node), step.now + self._settings.mirrored_after_s)
