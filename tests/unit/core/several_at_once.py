# SPDX-License-Identifier: Apache-2.0
"""Drives one scheduler core with requests for several servers of groups, in a world that tells the truth in any order.

Unlike ``any_order.py``, Placement stores what is written, agents count, and the members are read where they are.  So
each answer can be checked: the policy holds, every server is written where the answer says, and nothing else is left.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.decision.request import Group, Request
from shared_scheduler.protocol.messages import Claim, Consumer, GroupPolicy, Increment, Reason, Release, Verdict
from tests.unit.core.scheduler_driver import CELL, SchedulerDriver, host_of, request, taken

Question = (
    Claim
    | Release
    | ef.WriteAllocation
    | ef.DeleteAllocation
    | ef.AskCandidates
    | ef.AskFitting
    | ef.AskGroup
    | ef.AskConsumer
)
#: what the parts of a world may do wrong
FAULTS = ("refuse", "lose", "never_sent", "unanswered", "conflict", "return", "no_candidate")
POLICIES = (
    (*GroupPolicy,),
    (GroupPolicy.AFFINITY,),
    (GroupPolicy.ANTI_AFFINITY,),
    (GroupPolicy.SOFT_AFFINITY, GroupPolicy.SOFT_ANTI_AFFINITY),
)


class SeveralAtOnce:
    """``homes``: what Placement has; ``promised``: what agents have accepted; ``answered``: where servers were placed.

    The agents of a world count members, or are of a release that does not (old), or there are none."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.faults = frozenset(fault for fault in FAULTS if rng.random() < 0.4)
        self.policies = rng.choice(POLICIES)
        self.count_max, self.vcpus = rng.choice((2, 3, 5, 10)), rng.choice((2, 4, 10))
        self.nodes = [f"node-{number}" for number in range(rng.choice((2, 3, 6, 15)))]
        self.requests_max, self.overlap = rng.choice((3, 8, 15)), rng.choice((0.02, 0.15, 0.5))
        self.driver = SchedulerDriver()
        kinds = rng.choice((("groups",), ("none",), ("groups", "none"), ("groups", "old", "none")))
        self.kinds = {node: rng.choice(kinds) for node in self.nodes}
        for node, kind in self.kinds.items():
            if kind == "none":
                self.driver.without_agents(node, vcpus=self.vcpus)
            else:
                self.driver.with_agents(node, vcpus=self.vcpus, agent__groups=kind == "groups")
        self.sequences = Counter({node: 1 for node in self.nodes})
        self.homes: dict[str, str] = {}
        self.promised: dict[str, dict[str, Claim]] = {node: {} for node in self.nodes}
        self.groups: dict[str, Group] = {}
        self.answered: dict[str, str] = {}
        self.requests: dict[str, Request] = {}
        self.outcomes: list[tuple[Request, Any]] = []
        self.open: list[Question] = []

    # -- the course of a world

    def run(self) -> None:
        """Let all requests come, and let everything end."""
        while (more := len(self.requests) < self.requests_max) or self.open:
            if more and (not self.open or self.rng.random() < self.overlap):
                self.ask()
            elif self.open and self.rng.random() < 0.85:
                self.one_answers()
            else:
                self.take(self.driver.wait(self.rng.choice((0.01, 0.05, 0.2, 1.0, 3.0))))
        self.end()

    def end(self) -> None:
        """No more faults: what was begun ends, and Placement has what was answered."""
        self.faults = frozenset()
        core = self.driver.core
        for _ in range(600):
            while self.open:
                self.one_answers()
            if not len(core.requests) and not len(core.claims):
                break
            self.take(self.driver.wait(2.0))
        assert not len(core.requests), [(s.phase, s.instances) for s in core.requests.under_way()]
        assert not len(core.claims), [*core.claims.open()]
        self.driver.idle()
        assert self.homes == self.answered, (self.homes, self.answered)
        assert len(self.outcomes) == len(self.requests)

    def take(self, effects: list[ef.Effect]) -> None:
        """Keep what asks for an answer, and check what ends a request."""
        for effect in effects:
            found = effect.message if isinstance(effect, ef.Send) else effect
            if isinstance(found, ef.Answer):
                self.check(found)
            elif isinstance(found, ef.Fail):
                self.outcomes.append((found.request, found))
                left = [uuid for uuid in found.request.instance_uuids if uuid in self.homes]
                pending = {claim.intent.consumer for claim in self.driver.core.claims.open()}
                assert set(left) <= pending, ("left written", left, found.code, found.text)
            elif isinstance(found, Question):
                self.open.append(found)

    def ask(self) -> None:
        """A request arrives, for a new group or an old one."""
        rng, number = self.rng, len(self.requests) + 1
        servers = tuple(f"server-{number:03}-{index}" for index in range(rng.randint(1, self.count_max)))
        if self.groups and rng.random() < 0.6:
            group = self.groups[rng.choice(sorted(self.groups))]
        else:
            uuid = f"group-{len(self.groups) + 1}"
            group = Group(uuid, rng.choice(self.policies), frozenset(), frozenset(), rng.choice((1, 1, 2, 3)))
        members = group.members | {*servers}
        hosts = frozenset(host_of(self.answered[uuid]) for uuid in group.members if uuid in self.answered)
        named = hosts if rng.random() < 0.5 else frozenset[str]()  # by then only some are built
        self.groups[group.uuid] = Group(group.uuid, group.policy, members, frozenset(), group.max_server_per_host)
        asked = request(
            *servers,
            request_id=f"req-{number}",
            group=Group(group.uuid, group.policy, members, named, group.max_server_per_host),
            root_only=rng.random() < 0.6,
            num_alternates=rng.choice((0, 2)),
        )
        self.requests[asked.request_id] = asked
        self.take(self.driver.ask(asked, within_s=rng.choice((20.0, 60.0, 60.0))))

    # -- answers

    def happens(self, fault: str, often: float = 0.12) -> bool:
        return fault in self.faults and self.rng.random() < often

    def one_answers(self) -> None:
        """One of those that are asked answers; messages to one agent keep their order."""
        asked = self.rng.choice(self.open)
        if isinstance(asked, Claim | Release):
            asked = next(one for one in self.open if isinstance(one, Claim | Release) and one.node == asked.node)
        self.open.remove(asked)
        self.take(self.answer(asked))

    def answer(self, asked: Question) -> list[ef.Effect]:
        match asked:
            case Claim():
                return self.judge(asked)
            case Release():
                return self.release(asked)
            case ef.WriteAllocation():
                return self.write(asked)
            case ef.DeleteAllocation():
                (node,) = asked.written
                if self.homes.get(asked.consumer) == node:
                    del self.homes[asked.consumer]
                return self.driver.deleted(asked)
            case ef.AskCandidates():
                found = ev.Candidate(taken(asked.node), {"": (asked.node,)})
                none = self.happens("no_candidate") or self.used(asked.node) >= self.vcpus
                return self.driver.give(
                    ev.CandidatesAnswered(asked.ask_id, () if none else (found,), cause=asked.cause)
                )
            case ef.AskFitting():
                fit = frozenset(node for node in self.nodes if self.used(node) < self.vcpus)
                return self.driver.give(ev.FittingAnswered(asked.ask_id, fit, cause=asked.cause))
            case ef.AskGroup():
                return self.read_group(asked)
            case ef.AskConsumer():
                home = self.homes.get(asked.consumer)
                return self.driver.give(
                    ev.ConsumerAnswered(asked.consumer, {} if home is None else taken(home), "", cause=asked.cause)
                )
        raise AssertionError(asked)

    def used(self, node: str) -> int:
        there = {uuid for uuid, home in self.homes.items() if home == node}
        return len(there | {claim.consumer for claim in self.promised[node].values()})

    def judge(self, claim: Claim) -> list[ef.Effect]:
        if self.happens("return", 0.03):
            return self.driver.give(ev.CastReturned(CELL, claim))
        if self.happens("lose", 0.05):
            return []
        node, kind = claim.node, self.kinds[claim.node]
        reason, group, known = None, claim.group, self.promised[node]
        if claim.claim_id not in known:
            there = {one.consumer for one in known.values()} | {u for u, home in self.homes.items() if home == node}
            there.discard(claim.consumer)
            mates = {uuid for uuid in there if group and uuid in self.groups[group.uuid].members}
            if len(there) >= self.vcpus:
                reason = Reason("no_capacity")
            elif self.happens("refuse"):
                reason = Reason(self.rng.choice(("no_capacity", "topology", "expired")))
            elif (
                group
                and kind == "groups"
                and group.policy == "anti-affinity"
                and len(mates) >= group.max_server_per_host
            ):
                reason = Reason("group_full")
            elif group and kind == "groups" and group.policy == "soft-anti-affinity" and group.seen is not None:
                reason = Reason("group_changed") if len(mates) > group.seen else None
            if reason is None:
                known[claim.claim_id] = claim
        if reason is None:
            news = self.news(claim)
            return self.driver.hear(Verdict(claim.claim_id, node, 1, True, None, self.sequences[node], (news,)))
        return self.driver.hear(Verdict(claim.claim_id, node, 1, False, reason, self.sequences[node]))

    def release(self, message: Release) -> list[ef.Effect]:
        claim = self.promised[message.node].pop(message.claim_id, None)
        return [] if claim is None else self.driver.hear(self.news(claim))

    def news(self, claim: Claim) -> Increment:
        """What the agent publishes of the consumer of a claim."""
        node, there = claim.node, [one for one in self.promised[claim.node].values() if one.consumer == claim.consumer]
        group = "" if claim.group is None or self.kinds[node] == "old" else claim.group.uuid
        consumers = {claim.consumer: Consumer(taken(node), True, group) if there else None}
        claims = {claim.claim_id: claim.consumer if claim in there else None}
        self.sequences[node] += 1
        return Increment(node, 1, self.sequences[node], {}, consumers, claims)

    def write(self, asked: ef.WriteAllocation) -> list[ef.Effect]:
        (node,) = asked.allocations
        if self.happens("never_sent"):
            return self.driver.written(asked, ev.WriteCode.NEVER_SENT)
        if self.happens("conflict", 0.05):
            return self.driver.written(asked, ev.WriteCode.PROVIDER_CONFLICT)
        if self.happens("unanswered", 0.05):
            if self.rng.random() < 0.5 and self.has_place(node):
                self.homes[asked.consumer] = node
            return self.driver.unanswered(asked)
        if asked.deadline_s < self.driver.now:
            return self.driver.written(asked, ev.WriteCode.NEVER_SENT)
        if self.homes.get(asked.consumer, node) != node:
            return self.driver.written(asked, ev.WriteCode.CONSUMER_CONFLICT)
        if not self.has_place(node):
            return self.driver.written(asked, ev.WriteCode.NO_CAPACITY)
        self.homes[asked.consumer] = node
        return self.driver.written(asked)

    def has_place(self, node: str) -> bool:
        return sum(home == node for home in self.homes.values()) < self.vcpus

    def read_group(self, asked: ef.AskGroup) -> list[ef.Effect]:
        members = self.groups[asked.group].members - asked.known
        standing = {uuid: frozenset({self.homes[uuid]}) for uuid in members if uuid in self.homes}
        return self.driver.give(ev.GroupAnswered(asked.ask_id, standing, cause=asked.cause))

    # -- what must hold

    def check(self, answer: ef.Answer) -> None:
        """All servers are written, and the policy holds with all that were answered before."""
        placed = {
            uuid: inner[0].node for uuid, inner in zip(answer.request.instance_uuids, answer.choices, strict=True)
        }
        self.outcomes.append((answer.request, answer))
        for uuid, node in placed.items():
            assert self.homes.get(uuid) == node, ("not written", uuid, node, self.homes.get(uuid))
        self.answered.update(placed)
        assert answer.request.group is not None
        group = self.groups[answer.request.group.uuid]
        there = Counter(self.answered[uuid] for uuid in group.members if uuid in self.answered)
        if group.policy == GroupPolicy.ANTI_AFFINITY:
            assert max(there.values()) <= group.max_server_per_host, (group.uuid, there, self.kinds)
        elif group.policy == GroupPolicy.AFFINITY:
            assert len(there) == 1, (group.uuid, there)
        assert max(Counter(self.homes.values()).values()) <= self.vcpus
