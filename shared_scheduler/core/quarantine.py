# SPDX-License-Identifier: Apache-2.0
"""Nodes that refused several claims in a row, or whose agent is late with a verdict, are selected last for a while.

For a member of a soft group, a node whose agent was only late is not passed over for hosts with more or fewer members
(``planner.py``), unless a member has waited for it in vain.

A refusal of the agent counts, unless the node would have refused with room as well: because of the server group, or
because its agent has another epoch than the decision saw.  Such a reason is believed only of a claim that has a group,
or saw another epoch; otherwise a compromised host could refuse for ever.  A write that Placement refused because the
row is wrong about the inventories of the node counts as well.  A successful claim resets the count of refusals and ends
the quarantine.  A verdict of an agent that was late, on any claim, ends only what its lateness began.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from shared_scheduler.core.claim_state import OpenClaim
from shared_scheduler.core.events import WriteCode
from shared_scheduler.core.nodes import Nodes
from shared_scheduler.core.row_corrections import RowCorrections
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.core.step import Step, Timers
from shared_scheduler.protocol.messages import Reason, RefusalCode

#: refusals that do not concern the room on the node, if the claim has a server group
OF_GROUPS = frozenset({RefusalCode.GROUP_FULL, RefusalCode.GROUP_CHANGED})

#: refusals which show that the row, or its inventories, belong to another node
ROW_IS_OLD = frozenset({RefusalCode.WRONG_NODE, RefusalCode.NO_INVENTORY})

#: results of writes which show that a row is wrong about the inventories of its providers
ROW_IS_WRONG = frozenset({WriteCode.NO_CAPACITY, WriteCode.UNKNOWN_PROVIDER})


class Quarantine:
    """Counts the refusals of known nodes; ``nodes`` are those in quarantine, for either reason."""

    def __init__(self, settings: SchedulerSettings, timers: Timers, nodes: Nodes, corrections: RowCorrections) -> None:
        self._settings = settings
        self._timers = timers
        self._nodes = nodes
        self._corrections = corrections
        self._refusals: Counter[str] = Counter()  # node -> refusals in a row
        self._late: set[str] = set()
        self._in_vain: set[str] = set()  # of these, those for which a member of a soft group has waited
        self.nodes: frozenset[str] = frozenset()
        self.counters: Counter[str] = Counter()

    @property
    def refusing(self) -> frozenset[str]:
        """The nodes in quarantine because of refusals."""
        return self.nodes - self._late

    @property
    def only_late(self) -> frozenset[str]:
        """The nodes in quarantine because their agents did not answer in the usual time, which may answer soon."""
        return frozenset(self._late - self._in_vain)

    def claim_went_well(self, node: str) -> None:
        """Reset the count: a claim on this node was written to Placement."""
        if node in self.nodes or node in self._refusals:
            self.forget([node])

    def claim_left(self, step: Step, node: str, waited: bool) -> None:
        """Count a claim that was left because the agent is late; ``waited``: a member of a soft group has waited."""
        self.counters["late"] += 1
        self.agent_late(step, node)
        if waited and node in self._late:
            self._in_vain.add(node)

    def agent_late(self, step: Step, node: str) -> None:
        """Select a node last, because its agent did not answer a claim in the usual time."""
        if self._nodes.get(node) is not None and node not in self.nodes:
            self._late.add(node)
            self._begin(step, node)

    def claim_judged(self, node: str) -> None:
        """End the quarantine of a node that was only late: its agent has answered."""
        if node in self._late:
            self._late.discard(node)
            self._in_vain.discard(node)
            self._timers.cancel(("quarantine", node))
            self.nodes -= {node}

    def claim_refused(self, step: Step, claim: OpenClaim, reason: Reason) -> None:
        """Count a refusal by the agent of the claim's node."""
        node = claim.intent.node
        self.counters["refused"] += 1
        self.claim_judged(node)
        if self._nodes.get(node) is None or is_excused(claim, reason):
            return
        if reason.code in ROW_IS_OLD:
            self._corrections.correct(step, node, reason.code)
        self._count(step, node)

    def claim_not_written(self, step: Step, node: str, code: WriteCode) -> None:
        """Count a write for this node that Placement refused."""
        if self._nodes.get(node) is None or code not in ROW_IS_WRONG:
            return
        self._corrections.correct(step, node, f"Placement answered {code.value}")
        self._count(step, node)

    def _count(self, step: Step, node: str) -> None:
        self._refusals[node] += 1
        if self._refusals[node] < self._settings.refusals_max or node in self.refusing:
            return
        self._late.discard(node)
        self._in_vain.discard(node)
        self.counters["quarantined"] += 1
        self._begin(step, node)

    def _begin(self, step: Step, node: str) -> None:
        self._timers.set(("quarantine", node), step.now + self._settings.quarantine_s)
        self.nodes |= {node}

    def on_timer(self, _step: Step, node: str) -> None:
        """End the quarantine of a node."""
        self.forget([node])

    def forget(self, nodes: Iterable[str]) -> None:
        """Forget the refusals and the quarantine of these nodes."""
        for node in nodes:
            self._refusals.pop(node, None)
            self._late.discard(node)
            self._in_vain.discard(node)
            self._timers.cancel(("quarantine", node))
        self.nodes = self.nodes.difference(nodes)


def is_excused(claim: OpenClaim, reason: Reason) -> bool:
    """Whether the node would have refused with room: because of the server group, or because its agent has another
    epoch than the decision saw."""
    if reason.code in OF_GROUPS:
        return claim.intent.group is not None
    return reason.code == RefusalCode.EXPIRED and claim.judged_epoch != claim.seen.epoch
