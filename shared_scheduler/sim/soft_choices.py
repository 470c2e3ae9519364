# SPDX-License-Identifier: Apache-2.0
"""Compares each host that is claimed for a member of a soft group with the best one by weight.

A soft policy is a weight, so the best host by weight is the one that serves the policy best, among everything else that
is weighed.  Whatever orders hosts besides their weights must not change how many members a new one comes to.  An agent
that is late for a moment is no reason either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from shared_scheduler.decision.pipeline import SOFT, Decision
from shared_scheduler.decision.request import Request

if TYPE_CHECKING:
    from shared_scheduler.core.request_state import InstancePlacement
    from shared_scheduler.sim.schedulers import SimScheduler
    from shared_scheduler.sim.world import World

#: a late agent is waited for so long, unless the next host has as many members
WAITS_S = 1.0
#: the clocks of schedulers and of the world count in other steps
SLACK_S = 0.001


@dataclass(frozen=True, slots=True)
class WeighedHosts:
    """A decision, by node: the weight of each host that passed, and how many members the scheduler knew there."""

    request_id: str
    group: frozenset[str]
    weights: dict[str, float]
    members: dict[str, int]
    passed_over: frozenset[str]


@dataclass(frozen=True, slots=True)
class ChosenNode:
    """A claim for a member of a soft group."""

    request_id: str
    node: str
    at_s: float


class SoftChoices:
    """``check`` counts a check, and stores the violation if there is one (``Checkers.check``)."""

    def __init__(self, world: World, check: Callable[..., None]) -> None:
        self._world = world
        self._check = check
        #: (scheduler, server) -> the last decision for it
        self._weighed: dict[tuple[str, str], WeighedHosts] = {}
        #: (scheduler, server) -> the last claim for it
        self._chosen: dict[tuple[str, str], ChosenNode] = {}
        #: (scheduler, server) -> the other members on the host of that claim, when it was compared with others last
        self._beside: dict[tuple[str, str], int] = {}
        #: (scheduler, server) -> the first decision since that claim was left, because the agent was late
        self._left: dict[tuple[str, str], WeighedHosts] = {}
        self._compared: set[str] = set()  # claim ids

    def decided(self, scheduler: SimScheduler, request: Request, index: int, decision: Decision) -> None:
        """A scheduler has weighed the hosts for one instance."""
        consumer, group = request.instance_uuids[index], request.group
        key, weights = (scheduler.name, consumer), decision.weights()
        self._weighed.pop(key, None)
        if group is None or group.policy not in SOFT:
            return
        seen = self._weigh(scheduler, request.request_id, group.members - {consumer}, weights)
        self._note_left(scheduler, consumer, seen)
        self._weighed[key] = seen

    def _weigh(
        self, scheduler: SimScheduler, request_id: str, group: frozenset[str], weights: dict[str, float]
    ) -> WeighedHosts:
        members = {node: self._members(scheduler, group, node) for node in weights}
        passed_over = frozenset(node for node in weights if self._is_passed_over(scheduler, node))
        return WeighedHosts(request_id, group, weights, members, passed_over)

    def _note_left(self, scheduler: SimScheduler, consumer: str, seen: WeighedHosts) -> None:
        """Keep the first decision after a late agent was left, with the members of its node when it was left.

        More may come there while Placement names the candidates of the next host, or of another server."""
        key = scheduler.name, consumer
        chosen = self._chosen.get(key)
        if chosen is None or chosen.request_id != seen.request_id:
            self._left.pop(key, None)
            return
        if key in self._left:
            return
        instance, _ = self._instance(scheduler, seen, consumer)
        if instance.choice is not None:
            self._beside[key] = self._members(scheduler, seen.group, chosen.node)
        elif chosen.node in instance.late:
            late = self._beside.get(key, self._members(scheduler, seen.group, chosen.node))
            self._left[key] = replace(seen, members={**seen.members, chosen.node: late})

    @staticmethod
    def _is_passed_over(scheduler: SimScheduler, node: str) -> bool:
        core = scheduler.core
        given_up = core.quarantine.nodes - core.quarantine.only_late
        return node in given_up or node in core.agent_casts.crowded

    def assumed(self, scheduler: SimScheduler, node: str, claim_id: str, consumer: str) -> None:
        """A scheduler claims a node for an instance, or counts a claim again that had ended."""
        if claim_id in self._compared:
            return
        self._compared.add(claim_id)
        seen = self._weighed.pop((scheduler.name, consumer), None)
        if seen is None:
            return
        instance, fitting = self._instance(scheduler, seen, consumer)
        self._check_patience(scheduler, seen, instance, node)
        left = {
            one: weight
            for one, weight in seen.weights.items()
            if not (one in seen.passed_over or self._is_passed_over(scheduler, one))
            and one not in instance.out
            and (fitting is None or one in fitting)
        }
        if node not in left:  # it is taken because no other is left
            return
        best = [one for one, weight in left.items() if weight == max(left.values())]
        holds = seen.members[node] in {seen.members[one] for one in best}
        what = (node, "with", seen.members[node], "members,", best[0], "with", seen.members[best[0]], "is the best")
        self._check("soft_choice", holds, scheduler.name, seen.request_id, *what)

    def _check_patience(
        self, scheduler: SimScheduler, seen: WeighedHosts, instance: InstancePlacement, node: str
    ) -> None:
        """The host before this one was left too early if its agent was late, and this one had other members then, and
        when it was chosen.

        A host with as many members that has refused since was a good reason to leave it, and one whose weight has
        become better than that of the late one is the best."""
        key = scheduler.name, instance.consumer
        before, left, now = self._chosen.get(key), self._left.pop(key, None), self._world.now
        self._beside.pop(key, None)
        self._chosen[key] = ChosenNode(seen.request_id, node, now)
        if before is None or left is None or before.node not in instance.late:
            return
        late = left.members[before.node]
        present = self._members(scheduler, seen.group, node)
        here = {one.members.get(node, present) for one in (left, seen)}
        refused = left.members.keys() & (instance.out.keys() - {*instance.late})
        if scheduler.disturbed_s >= before.at_s or late in {left.members[one] for one in refused}:
            return
        waited_s = now - before.at_s
        preferred = left.weights.get(before.node, inf) <= left.weights.get(node, -inf)
        holds = late in here or preferred or waited_s >= WAITS_S - SLACK_S
        what = ("leaves", before.node, "with", late, "members after", waited_s, "s for", node, "with", *here)
        self._check("soft_choice", holds, scheduler.name, seen.request_id, *what)

    @staticmethod
    def _members(scheduler: SimScheduler, group: frozenset[str], node: str) -> int:
        table = scheduler.core.table
        return sum(table.is_member(node, uuid) for uuid in group) if node in table else 0

    @staticmethod
    def _instance(
        scheduler: SimScheduler, seen: WeighedHosts, consumer: str
    ) -> tuple[InstancePlacement, frozenset[str] | None]:
        (state,) = (one for one in scheduler.core.requests.under_way() if one.request.request_id == seen.request_id)
        (instance,) = (one for one in state.instances if one.consumer == consumer)
        return instance, state.fitting
