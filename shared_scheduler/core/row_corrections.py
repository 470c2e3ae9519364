# SPDX-License-Identifier: Apache-2.0
"""Rows that may be wrong are corrected by the agent of the node, or by a new read.

==========================================  ========================================================
the node has                                what is done
==========================================  ========================================================
no row in the table                         RefreshNode in all cells: it may be new
an agent                                    Resync: the agent checks Placement, then sends a snapshot
no agent                                    RefreshNode: databases and Placement are read again, at
                                            most once in ``refresh_interval_s``
no agent any more                           RefreshNode: at once for the first nodes, then for some
                                            nodes a second (``SILENT_READS_PER_S``)
==========================================  ========================================================

nova-api announces a change of a host aggregate before it writes it to Placement.  ``member_of`` is judged by the
agent's report, and an agent reads its aggregates in Placement at long intervals.  Therefore, some seconds after such
a change, the agents of the hosts are asked to read Placement.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared_scheduler.core.effects import RefreshNode
from shared_scheduler.core.nodes import Nodes
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.core.step import Step, Timers
from shared_scheduler.protocol.limits import SILENT_READS_BURST, SILENT_READS_PER_S
from shared_scheduler.table.host_table import HostTable


class RowCorrections:
    """Requests corrections of rows, and remembers when each row was last read from the databases."""

    def __init__(self, settings: SchedulerSettings, table: HostTable, timers: Timers, nodes: Nodes) -> None:
        self._settings = settings
        self._table = table
        self._timers = timers
        self._nodes = nodes
        self._refreshed_s: dict[str, float] = {}  # known nodes only
        #: when the last of the nodes that have fallen silent would be read, if there were no burst
        self._silent_read_s = float("-inf")

    def correct(self, step: Step, node: str, why: str) -> bool:
        """Request the correction of a row; False if that is not possible now."""
        if self._nodes.get(node) is None:
            step.emit(RefreshNode("", node, why, cause=step.cause))
            return True
        if self._nodes.agent_speaks_for(node):
            return self._nodes.ask_to_check_placement(step, node)
        return self.refresh(step, node, why)

    def known_first(self, nodes: Iterable[str]) -> list[str]:
        """Sort nodes: those that are not known, which may be providers that computes have left, are the last."""
        return sorted(nodes, key=lambda node: (self._nodes.get(node) is None, node))

    def refresh(self, step: Step, node: str, why: str) -> bool:
        """Request a new read of a node; False if it was read recently."""
        known = self._nodes.get(node)
        if known is None or step.now - self._refreshed_s.get(node, float("-inf")) < self._settings.refresh_interval_s:
            return False
        self._refreshed_s[node] = step.now
        step.emit(RefreshNode(known.cell, node, why, cause=step.cause))
        return True

    def silent(self, step: Step, node: str, why: str) -> None:
        """Read a node whose agent has fallen silent, later if many have.

        Placement goes on to judge claims for the node, and a poll finds what changes there meanwhile.
        """
        in_s = self._turn_of_silent_s(step.now)
        if not in_s:
            self.refresh(step, node, why)
        elif (known := self._nodes.get(node)) is not None:
            step.emit(RefreshNode(known.cell, node, why, in_s, cause=step.cause))

    def _turn_of_silent_s(self, now: float) -> float:
        """In how many seconds the next of these nodes is read; 0: now."""
        burst_s = SILENT_READS_BURST / SILENT_READS_PER_S
        self._silent_read_s = max(self._silent_read_s, now) + 1 / SILENT_READS_PER_S
        return max(0.0, self._silent_read_s - now - burst_s)

    def forget(self, nodes: Iterable[str]) -> None:
        """Forget nodes that no longer exist."""
        for node in nodes:
            self._refreshed_s.pop(node, None)
            self._timers.cancel(("mirrored", node))

    def check_aggregates_later(self, step: Step, hosts: frozenset[str]) -> None:
        """Set a timer for hosts that joined or left a host aggregate, so that their agents read Placement soon."""
        for host in sorted(hosts):
            for slot in self._table.slots_of_host(host):
                node = self._table.view_at(slot).node
                if self._nodes.agent_speaks_for(node):
                    self._check_later(step, node)

    def on_aggregates_timer(self, step: Step, node: str) -> None:
        """Ask the agent to read Placement; nova-api has had time to write the aggregate."""
        if not self.correct(step, node, "its aggregates changed"):
            self._check_later(step, node)

    def _check_later(self, step: Step, node: str) -> None:
        self._timers.set(("mirrored", node), step.now + self._settings.mirrored_after_s)
