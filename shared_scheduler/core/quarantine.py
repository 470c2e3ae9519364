# SPDX-License-Identifier: Apache-2.0
"""Nodes that refused several claims in a row are selected last for a while.

An agent's refusal counts, unless it says nothing of what the node can take; so does a write that Placement
did not take because the row is wrong about what the node has.  A claim that goes well ends the row of
refusals, and the quarantine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from shared_scheduler.core.events import WriteCode
from shared_scheduler.core.nodes import Nodes
from shared_scheduler.core.row_corrections import RowCorrections
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.core.step import Step, Timers
from shared_scheduler.protocol.messages import Reason, RefusalCode

#: refusals that say nothing of what the node can take
NO_FAULT = frozenset(
    {RefusalCode.RELEASED, RefusalCode.EXPIRED, RefusalCode.GROUP_FULL, RefusalCode.GROUP_CHANGED}
)

#: refusals that show that the row is of another node, or that its inventories are
ROW_IS_OLD = frozenset({RefusalCode.WRONG_NODE, RefusalCode.NO_INVENTORY})

#: writes that show that a row is wrong about what its providers have
ROW_IS_WRONG = frozenset({WriteCode.NO_CAPACITY, WriteCode.UNKNOWN_PROVIDER})


class Quarantine:
    """Counts refusals of known nodes; ``nodes`` are those that are selected last now."""

    def __init__(
        self, settings: SchedulerSettings, timers: Timers, nodes: Nodes, corrections: RowCorrections
    ) -> None:
        self._settings = settings
        self._timers = timers
        self._nodes = nodes
        self._corrections = corrections
        self._refusals: Counter[str] = Counter()  # node -> refusals in a row
        self.nodes: frozenset[str] = frozenset()
        self.counters: Counter[str] = Counter()

    def claim_went_well(self, node: str) -> None:
        """A claim on this node stands in Placement."""
        if node in self.nodes or node in self._refusals:
            self.forget([node])

    def claim_refused(self, step: Step, node: str, reason: Reason) -> None:
        """The agent of this node refused a claim."""
        self.counters["refused"] += 1
        if self._nodes.get(node) is None or reason.code in NO_FAULT:
            return
        if reason.code in ROW_IS_OLD:
            self._corrections.correct(step, node, reason.code)
        self._count(step, node)

    def claim_not_written(self, step: Step, node: str, code: WriteCode) -> None:
        """Placement did not take an allocation for this node."""
        if self._nodes.get(node) is None or code not in ROW_IS_WRONG:
            return
        self._corrections.correct(step, node, f"Placement answered {code.value}")
        self._count(step, node)

    def _count(self, step: Step, node: str) -> None:
        self._refusals[node] += 1
        if self._refusals[node] < self._settings.refusals_max or node in self.nodes:
            return
        self.counters["quarantined"] += 1
        self._timers.set(("quarantine", node), step.now + self._settings.quarantine_s)
        self.nodes |= {node}

    def on_timer(self, _step: Step, node: str) -> None:
        """The node is selected as the others are."""
        self.forget([node])

    def forget(self, nodes: Iterable[str]) -> None:
        """Begin anew with these nodes, or end with them."""
        for node in nodes:
            self._refusals.pop(node, None)
            self._timers.cancel(("quarantine", node))
        self.nodes = self.nodes.difference(nodes)
