# SPDX-License-Identifier: Apache-2.0
"""Checks the policies of server groups with the state of the world.  The state of a scheduler is looked at only for
soft policies: which members it knew, and which nodes beside them it might still have tried.

Only members that a scheduler has placed are checked, because no policy holds for others.  If a member was moved by
force, or the conductor used an alternate for it, its group is *disturbed* from then on and not checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from shared_scheduler.core import effects as ef
from shared_scheduler.core.group_check import SOFT_YIELD_LEFT_S, SOFT_YIELDS_MAX, YIELDS_MAX
from shared_scheduler.core.request_state import SOFT_REFUSALS_MAX
from shared_scheduler.core.spread_check import SPREAD_TOO_FAR
from shared_scheduler.decision.pipeline import Decision
from shared_scheduler.decision.request import Request
from shared_scheduler.protocol.messages import Claim, GroupPolicy, RefusalCode, Release, Verdict
from shared_scheduler.sim.workload import SentRequest, Server, ServerGroup, ServerState
from shared_scheduler.table.host_table import HostTable

if TYPE_CHECKING:
    from shared_scheduler.sim.nodes import SimNode
    from shared_scheduler.sim.schedulers import SimScheduler
    from shared_scheduler.sim.world import World

#: the outcome of an attempt that was cancelled because another member was elsewhere
YIELDED = "group_apart"
#: answered, and neither failed nor deleted since; one that moves is where its last answer has placed it
PLACED = (ServerState.ASKED, ServerState.BUILDING, ServerState.LIVES, ServerState.MOVES)


class GroupChecks:
    """``check`` counts a check, and stores the violation if there is one (``Checkers.check``)."""

    def __init__(self, world: World, check: Callable[..., None]) -> None:
        self._world = world
        self._check = check
        #: server -> the node of its answer
        self._answered: dict[str, str] = {}
        #: claim id -> other members that its scheduler saw on the node
        self._seen: dict[str, int] = {}
        #: (scheduler, server) -> the nodes where it saw members, and where the server may go, when it began its last
        #: claim for it; none if all were claims on the node of that claim
        self._knew: dict[tuple[str, str], frozenset[str]] = {}
        #: server that was answered -> the same of its scheduler
        self._went_in_spite_of: dict[str, frozenset[str]] = {}
        #: (scheduler, server of a soft group) -> the nodes that passed beside other members, at the last decision after
        #: a yield
        self._beside: dict[tuple[str, str], frozenset[str]] = {}
        #: (scheduler, server of a soft group) -> the nodes that were claimed after a yield
        self._went: dict[tuple[str, str], set[str]] = {}
        #: (scheduler, server) -> the nodes beside other members that were left out by its last claim, for another node
        self._passed_over: dict[tuple[str, str], frozenset[str]] = {}
        #: (scheduler, server with a label): a move of another one was not known there when a claim for it began
        self._misled: set[tuple[str, str]] = set()
        #: (claim id, epoch) of the claims that an agent has accepted; a claim that arrives twice gets the same verdict
        self._accepted: set[tuple[str, int]] = set()
        #: servers that agents refused because of a soft policy, and these nodes
        self._warned: dict[str, set[str]] = {}
        #: node -> servers whose group its agent has forgotten
        self._forgotten: dict[str, set[str]] = {}
        #: claims that have told an agent the group of a server that it had forgotten
        self._told_again: set[str] = set()

    def decided(self, scheduler: SimScheduler, request: Request, index: int, decision: Decision) -> None:
        """A scheduler has weighed the hosts for one instance."""
        consumer = request.instance_uuids[index]
        server = self._world.owners().get(consumer)
        if server is None or server.group is None or request.group is None:
            return
        if (server.group.policy, request.group.policy) == (GroupPolicy.SOFT_AFFINITY, GroupPolicy.AFFINITY):
            beside = frozenset(decision.nodes())
            decided = (consumer,) if beside else request.instance_uuids  # they all go where they can, if one has none
            self._beside.update(((scheduler.name, uuid), beside) for uuid in decided)

    def assumed(self, scheduler: SimScheduler, node: str, claim_id: str, consumer: str) -> None:
        """A scheduler is about to count a claim in its table, which is still that of the decision."""
        server = self._world.owners()[consumer]
        if server.group is None or claim_id in self._seen:
            return
        table = scheduler.core.table
        others = [uuid for uuid in server.group.members if uuid != consumer]
        self._seen[claim_id] = sum(table.is_member(node, uuid) for uuid in others)
        left = {server.node} if server.state is ServerState.MOVES else set()
        known = {table.node_at(slot) for slot in table.members_at(others)} - left
        self._knew[scheduler.name, consumer] = frozenset(() if self._may_all_go(table, known, node, others) else known)
        if server.group.label and self._misses_a_move(scheduler, others):
            self._misled.add((scheduler.name, consumer))
        if server.group.policy == GroupPolicy.SOFT_AFFINITY:
            self._passed_over[scheduler.name, consumer] = self._left_out(scheduler, server, node)

    @staticmethod
    def _may_all_go(table: HostTable, known: set[str], node: str, others: list[str]) -> bool:
        """Whether all members that a scheduler knows are claims on this node, which others may give up."""
        row = table.row_of(node)
        return known == {node} and row is not None and not any(map(row.is_built, others))

    def _misses_a_move(self, scheduler: SimScheduler, others: list[str]) -> bool:
        """Whether a scheduler knows one of these servers only where it was before its move."""
        table, moves = scheduler.core.table, self._world.scheduled_moves
        sources = ((uuid, moves.source_of(uuid)) for uuid in others)
        return any({table.node_at(slot) for slot in table.members.slots(uuid)} == {node} for uuid, node in sources)

    def _left_out(self, scheduler: SimScheduler, server: Server, claimed: str) -> frozenset[str]:
        """The nodes beside other members that a scheduler, which has yielded, may still try but does not.

        That a late agent was left before the yield is no reason to leave it out.  A node that was claimed since then
        was tried, also if no node beside the others passed at first, and the request goes where it can."""
        key = scheduler.name, server.uuid
        for state in scheduler.core.requests.under_way():
            for instance in state.instances:
                if instance.consumer != server.uuid or not state.check.yields:
                    continue
                went, late = self._went.setdefault(key, set()), frozenset(instance.late)
                went.add(claimed)
                if not state.prefers_hosts:
                    beside = self._beside.get(key, frozenset()) | late
                    return beside - went - (instance.out.keys() - late)
        return frozenset()

    def agent_forgot(self, node: SimNode, consumers: Iterable[str]) -> None:
        """An agent has lost its state, with these consumers that it had accepted."""
        self._forgotten.setdefault(node.node, set()).update(consumers)

    def judged(self, node: SimNode, verdict: Verdict, claim: Claim, accepted: Iterable[str]) -> None:
        """An agent has accepted a claim.  ``accepted``: consumers that it had accepted and that are still there."""
        self._tell_again(node, claim)
        server = self._world.owners()[claim.consumer]
        group, accepted_before = server.group, (claim.claim_id, verdict.epoch) in self._accepted
        self._accepted.add((claim.claim_id, verdict.epoch))
        if group is None or claim.consumer in node.tracker.instances or accepted_before:
            return
        there = {uuid for uuid in accepted if uuid != claim.consumer and self._is_known(node, uuid, server)}
        there |= self._built(node, server)
        if group.policy == GroupPolicy.ANTI_AFFINITY:
            few = len(there) < group.max_server_per_host
            self._check("anti_affinity", few, node.node, verdict.claim_id, "beside", sorted(there))
        elif group.policy == GroupPolicy.SOFT_ANTI_AFFINITY and not self._may_insist(claim.consumer, node.node):
            seen = self._seen.get(verdict.claim_id, 0)
            what = (verdict.claim_id, "saw", seen, "members of", sorted(there))
            self._check("soft_anti_affinity", len(there) <= seen, node.node, *what)

    def _tell_again(self, node: SimNode, claim: Claim) -> None:
        forgotten = self._forgotten.get(node.node, set())
        if claim.consumer in forgotten:
            forgotten.remove(claim.consumer)
            self._told_again.add(claim.claim_id)

    def released(self, release: Release) -> None:
        """A claim is given up.  If the agent knew the server's group by this claim only, it does not know it any more,
        and a late write of an earlier claim may still place the server there."""
        if release.claim_id in self._told_again:
            self._forgotten[release.node].add(release.consumer)

    def refused(self, verdict: Verdict, consumer: str) -> None:
        """An agent has refused a claim."""
        if verdict.reason is not None and verdict.reason.code == RefusalCode.GROUP_CHANGED:
            self._warned.setdefault(consumer, set()).add(verdict.node)

    def _may_insist(self, consumer: str, node: str) -> bool:
        """Whether a claim may ignore the soft policy, because this agent or some others have refused the server."""
        warned = self._warned.get(consumer, set[str]())
        return node in warned or len(warned) >= SOFT_REFUSALS_MAX

    def _is_known(self, node: SimNode, uuid: str, server: Server) -> bool:
        """Whether the agent knows that this server, which it has accepted, is a member of the group."""
        other = self._world.owners()[uuid]
        return other.group is server.group and uuid not in self._forgotten.get(node.node, ())

    def _named(self, server: Server) -> frozenset[str]:
        group = self._world.users.asked[server.request_id].request.group
        return group.members if group is not None else frozenset()

    def _built(self, node: SimNode, server: Server) -> set[str]:
        """The members on the node that nova-compute has reported to the agent and that the request names."""
        if not node.is_current:
            return set()
        told = node.tracker.instances.keys() - node.tracker.unnoticed
        return {uuid for uuid in told & self._named(server) if uuid != server.uuid}

    # -- answers

    def answered(self, scheduler: SimScheduler, asked: SentRequest, answer: ef.Answer) -> None:
        """A scheduler answers a request."""
        nodes = {s.uuid: inner[0].node for s, inner in zip(asked.servers, answer.choices, strict=True)}
        self._answered.update(nodes)
        group = asked.servers[0].group
        if group is None or group.disturbed:
            return
        left = {server.node for server in asked.servers if server.state is ServerState.MOVES}
        apart = sorted(set(self._placed(group).values()) - set(nodes.values()) - left)
        if group.policy == GroupPolicy.AFFINITY:
            together = not apart and len(set(nodes.values())) == 1
            self._check("affinity", together, scheduler.name, asked.request.request_id, nodes, "others on", apart)
        elif group.policy == GroupPolicy.SOFT_AFFINITY:
            known = {uuid: self._knew.get((scheduler.name, uuid)) for uuid in nodes}
            self._went_in_spite_of.update((uuid, there) for uuid, there in known.items() if there)
            apart = [node for node in apart if self._may_join(group, node, nodes, asked.asked_s)]
            first = all(there == frozenset() for there in known.values())
            together = not (apart and first) or self._tried(scheduler, answer, apart) or self._joined(group, nodes)
            unread = asked.request.request_id in scheduler.groups_unread
            together = together or unread or self._hurried(scheduler, asked)
            self._check("soft_affinity", together, scheduler.name, asked.request.request_id, nodes, apart)
        elif group.label:
            self._check_spread(scheduler, group, asked, set(nodes.values()))
        elif group.policy == GroupPolicy.ANTI_AFFINITY:
            self._check_without_agents(scheduler, group, set(nodes.values()))

    def _hurried(self, scheduler: SimScheduler, asked: SentRequest) -> bool:
        """Whether the scheduler had too little time to place these servers elsewhere."""
        late = asked.deadline_s - self._world.now <= SOFT_YIELD_LEFT_S
        return late or scheduler.disturbed_s >= asked.asked_s

    def _tried(self, scheduler: SimScheduler, answer: ef.Answer, apart: list[str]) -> bool:
        """Whether a request that found other members on these nodes has yielded to them, as often as it may or until
        none of their nodes was left."""
        yields = Counter(attempt.instance for attempt in answer.record.attempts if attempt.outcome == YIELDED)
        if not yields or max(yields.values()) >= SOFT_YIELDS_MAX:
            return bool(yields)
        left = (self._passed_over.get((scheduler.name, uuid), frozenset()) for uuid in answer.request.instance_uuids)
        beside = frozenset[str]().union(*left)
        went = {inner[0].node for inner in answer.choices}
        settled = any(self._beside.get((scheduler.name, uuid), frozenset()) & went for uuid in yields)
        return beside.isdisjoint(apart) and not settled

    def _may_join(self, group: ServerGroup, node: str, nodes: Mapping[str, str], since_s: float) -> bool:
        """Whether some member on this node did not go there in spite of these servers, which its scheduler knew.

        One that was about to leave, and had no answer yet, is no reason to go there: it cannot return, and its own
        decision finds these servers.  It stays if its move fails, which nobody could know."""
        own, placed = frozenset(nodes.values()), self._placed(group)
        there = (uuid for uuid, where in placed.items() if where == node and not self._was_leaving(uuid, since_s))
        return any(own.isdisjoint(self._went_in_spite_of.get(uuid, ())) for uuid in there)

    def _was_leaving(self, uuid: str, since_s: float) -> bool:
        """Whether a member that was answered, and is there still, had begun to move at some time since then, without
        an answer yet."""
        is_there = self._answered[uuid] == self._world.owners()[uuid].node
        return is_there and self._world.scheduled_moves.was_undecided(uuid, since_s)

    def _joined(self, group: ServerGroup, nodes: Mapping[str, str]) -> bool:
        """Whether these servers are beside another one that was answered: they cannot be beside all.

        One that was evacuated counts on its source too, as long as it has allocations there."""
        owners, answered, held = self._world.owners(), self._answered, self._world.placement.consumers
        others = (uuid for uuid in group.members if uuid in answered and uuid not in nodes)
        placed = [uuid for uuid in others if owners[uuid].state in PLACED]
        return any({answered[uuid], *held.get(uuid, ())} & {*nodes.values()} for uuid in placed)

    def _check_spread(self, scheduler: SimScheduler, group: ServerGroup, asked: SentRequest, nodes: set[str]) -> None:
        """Every node is eligible; for a move every one in the cell of the server, which it does not leave.  A server
        that was deleted, or was about to move, while the request was under way leaves the others where they are.
        Nobody looks up one that the scheduler knows as built where it was before its move."""
        own = {server.uuid for server in asked.servers}
        others = [uuid for uuid in group.members if uuid not in own]
        moving = self._world.scheduled_moves.have_changed(others, asked.asked_s)
        if group.left_s >= asked.asked_s or moving or any((scheduler.name, uuid) in self._misled for uuid in own):
            return
        rack_of, eligible = self._world.rack_of, self._eligible(asked)
        counts = Counter(dict.fromkeys(map(rack_of, eligible), 0))
        counts.update(rack_of(node) for node in self._placed(group).values() if node in eligible)
        most = max(counts[rack_of(node)] for node in nodes)
        holds = most - min(counts.values()) <= group.max_skew
        self._check("spread", holds, scheduler.name, asked.request.request_id, nodes, dict(counts), group.max_skew)

    def _eligible(self, asked: SentRequest) -> frozenset[str]:
        """The nodes to which a request without a trait or aggregate may go."""
        destination, nodes = asked.request.destination, self._world.nodes.values()
        return frozenset(one.node for one in nodes if destination is None or destination.cell == one.cell)

    def failed(self, scheduler: SimScheduler, failure: ef.Fail) -> None:
        """A scheduler ends a request without a host.  A claim that was taken back because others had got no answer for
        too long breaks no constraint."""
        yielded = [one for one in failure.record.attempts if one.outcome == SPREAD_TOO_FAR]
        racks = [self._world.rack_of(one.node) for one in yielded if one.detail["constraints"]]
        stayed = len(racks) >= YIELDS_MAX and len(set(racks)) == 1
        gave_up = failure.code == ef.FailureCode.GROUP_UNSETTLED
        self._check("goes_on", not (gave_up and stayed), scheduler.name, failure.request.request_id, *racks[:1])

    def _check_without_agents(self, scheduler: SimScheduler, group: ServerGroup, nodes: set[str]) -> None:
        """Nodes that never had an agent: schedulers read Placement before they answer."""
        placed = list(self._placed(group).values())
        for node in sorted(nodes):
            if not self._world.nodes[node].lives:
                few = placed.count(node) <= group.max_server_per_host
                self._check("anti_affinity", few, scheduler.name, group.uuid, placed.count(node), "times on", node)

    def _placed(self, group: ServerGroup) -> dict[str, str]:
        """The members that were answered and still exist, and their nodes."""
        owners, answered = self._world.owners(), self._answered
        return {uuid: answered[uuid] for uuid in group.members if uuid in answered and owners[uuid].state in PLACED}
