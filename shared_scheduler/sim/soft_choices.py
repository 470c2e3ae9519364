# SPDX-License-Identifier: Apache-2.0
"""Compares each host that is claimed for a member of a soft group with the best one by weight.

A soft policy is a weight, so the best host by weight is the one that serves the policy best, among everything else that
is weighed.  Whatever orders hosts besides their weights must not change how many members a new one comes to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared_scheduler.decision.pipeline import Decision
from shared_scheduler.decision.request import Request
from shared_scheduler.protocol.messages import GroupPolicy

if TYPE_CHECKING:
    from shared_scheduler.sim.schedulers import SimScheduler

SOFT = frozenset({GroupPolicy.SOFT_AFFINITY, GroupPolicy.SOFT_ANTI_AFFINITY})


@dataclass(frozen=True, slots=True)
class Weighed:
    """A decision, by node: the weight of each host that passed, and how many members the scheduler knew there."""

    request_id: str
    weights: dict[str, float]
    members: dict[str, int]
    passed_over: frozenset[str]


class SoftChoices:
    """``check`` counts a check, and stores the violation if there is one (``Checkers.check``)."""

    def __init__(self, check: Callable[..., None]) -> None:
        self._check = check
        #: (scheduler, server) -> the last decision for it
        self._weighed: dict[tuple[str, str], Weighed] = {}
        self._compared: set[str] = set()  # claim ids

    def decided(self, scheduler: SimScheduler, request: Request, index: int, decision: Decision) -> None:
        """A scheduler has weighed the hosts for one instance."""
        consumer, group = request.instance_uuids[index], request.group
        if group is None or group.policy not in SOFT:
            self._weighed.pop((scheduler.name, consumer), None)
            return
        weights, table = decision.weights(), scheduler.core.table
        members = {node: sum(table.is_member(node, uuid) for uuid in group.members) for node in weights}
        passed_over = frozenset(node for node in weights if self._is_passed_over(scheduler, node))
        self._weighed[scheduler.name, consumer] = Weighed(request.request_id, weights, members, passed_over)

    @staticmethod
    def _is_passed_over(scheduler: SimScheduler, node: str) -> bool:
        core = scheduler.core
        return node in core.quarantine.nodes or not core.claims.has_room_on(node)

    def assumed(self, scheduler: SimScheduler, node: str, claim_id: str, consumer: str) -> None:
        """A scheduler claims a node for an instance, or counts a claim again that had ended."""
        if claim_id in self._compared:
            return
        self._compared.add(claim_id)
        seen = self._weighed.pop((scheduler.name, consumer), None)
        if seen is None:
            return
        left = {
            one: weight for one, weight in seen.weights.items() if self._may_be_tried(scheduler, seen, consumer, one)
        }
        if node not in left:  # it is taken because no other is left
            return
        best = [one for one, weight in left.items() if weight == max(left.values())]
        holds = seen.members[node] in {seen.members[one] for one in best}
        what = (node, "with", seen.members[node], "members,", best[0], "with", seen.members[best[0]], "is the best")
        self._check("soft_choice", holds, scheduler.name, seen.request_id, *what)

    def _may_be_tried(self, scheduler: SimScheduler, seen: Weighed, consumer: str, node: str) -> bool:
        if node in seen.passed_over or self._is_passed_over(scheduler, node):
            return False
        (state,) = (one for one in scheduler.core.requests.under_way() if one.request.request_id == seen.request_id)
        (instance,) = (one for one in state.instances if one.consumer == consumer)
        return not state.leaves_out(instance, node)
