# SPDX-License-Identifier: Apache-2.0
"""The agents of the nodes: they accept every claim, some of them late, and publish what Placement has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from shared_scheduler.core import events as ev
from shared_scheduler.protocol.messages import Claim, Consumer, Verdict
from shared_scheduler.sim.agenda import Agenda
from tests.unit.core.scheduler_driver import CELL, snapshot
from tests.unit.placement.one_server.nova import Nova
from tests.unit.placement.one_server.plan import SERVER, Plan
from tests.unit.placement.one_server.unsure_placement import UnsurePlacement


class Agents:
    """``sequences``: of the last snapshot of each node."""

    def __init__(
        self,
        plan: Plan,
        rng: Random,
        steps: Agenda,
        placement: UnsurePlacement,
        nova: Nova,
        give: Callable[[ev.Event], None],
    ) -> None:
        self._plan, self._rng, self._steps, self._give = plan, rng, steps, give
        self._placement, self._nova = placement, nova
        self._sequences = Counter({node: 1 for node in plan.nodes})

    def judge(self, claim: Claim) -> None:
        """Accept a claim."""
        self._steps.after(self._rng.choice((0.01, 0.01, 0.5, 5.5)), self._accept, claim)

    def _accept(self, claim: Claim) -> None:
        shown = self._sequences[claim.node] + 1
        self._give(ev.MessagesArrived(CELL, (Verdict(claim.claim_id, claim.node, 1, True, None, shown),)))

    def publish(self, changed_s: float) -> None:
        """Something has changed: it is read soon."""
        if self._plan.agents:
            read_s = changed_s + self._rng.choice((0.05, 0.05, 0.5, 2.0))
            for node in self._plan.nodes:
                self._steps.at(read_s, self._tell, node)

    def _tell(self, node: str) -> None:
        self._sequences[node] += 1
        shown = {consumer: self._shown(consumer, node) for consumer in self._placement.consumers}
        told = {consumer: one for consumer, one in shown.items() if one.allocations}
        facts = snapshot(node, self._sequences[node], vcpus=self._plan.vcpus, consumers=told)
        self._give(ev.MessagesArrived(CELL, (facts,)))

    def _shown(self, consumer: str, node: str) -> Consumer:
        standing = self._placement.stands(consumer)
        here = {name: dict(amounts) for name, amounts in standing.allocations.items() if name == node}
        is_member = consumer == SERVER and self._nova.is_at_rest_on(node)
        whole = len(here) == len(standing.allocations)
        return Consumer(here, is_member, generation=standing.generation or 0, whole=whole)
