# SPDX-License-Identifier: Apache-2.0
"""Drives one scheduler core with events in a random order.

Nodes go and return, move to other hosts and cells, get other names and boot.  Agents answer late, refuse and repeat
themselves; the broker returns casts.  Placement answers anything, and each question at any time, but only once.  After
each event, nobody may wait for what will not come; in the end, nothing is left.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from math import inf
from random import Random
from typing import Any

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.claim_state import ClaimState, OpenClaim
from shared_scheduler.core.request_state import (
    SOFT_REFUSALS_MAX,
    InstancePlacement,
    InstanceState,
    RequestPhase,
    RequestState,
)
from shared_scheduler.decision.request import Group
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.digest import digest_of
from shared_scheduler.protocol.messages import (
    Claim,
    Consumer,
    GroupPolicy,
    Increment,
    Reason,
    RefusalCode,
    Snapshot,
    Verdict,
)
from tests.unit.core.scheduler_driver import (
    CELL,
    OTHER_CELL,
    SchedulerDriver,
    host_of,
    node_leaves,
    node_read,
    request,
    taken,
)

NODES = ("node-1", "node-2", "node-3", "node-4")
HOSTS = (*map(host_of, NODES), "host-9")
NAME_LEAF = "cn.hypervisor_hostname"
REFUSALS = ("no_capacity", "group_changed", "expired", "wrong_node", "topology")
#: events after which everything must have ended, each after another pause
ENDS_WITHIN = 400

Question = (
    Claim
    | ef.WriteAllocation
    | ef.DeleteAllocation
    | ef.AskCandidates
    | ef.AskFitting
    | ef.AskGroup
    | ef.AskConsumer
    | ef.Answer
)


class AnyOrder:
    """The world around one core.  ``open``: what waits for an answer; an answered request may not have been heard."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.driver = SchedulerDriver(requests_max=50)
        self.open: list[Question] = []
        self.hosts, self.names = {node: host_of(node) for node in NODES}, {node: host_of(node) for node in NODES}
        self.epochs, self.sequences = Counter({node: 1 for node in NODES}), Counter[str]()
        self.count = 0
        #: server -> nodes whose agents have said that they have more members of its group
        self.warned: defaultdict[str, set[str]] = defaultdict(set)
        self.give(ev.ServicesRead(CELL, tuple(map(ServiceFacts, HOSTS)), False))
        self._acts: dict[Callable[[str], None], int] = {
            self.ask: 8, self.answer: 22, self.go: 2, self.is_read: 4, self.speak: 3, self.boot: 2, self.change: 3,
            self.wait: 7, self.move: 1, self.rename: 1,
        }  # fmt: skip

    def run(self, steps: int) -> None:
        """Let so many things happen, then let everything end."""
        acts, weights = [*self._acts], [*self._acts.values()]
        for _ in range(steps):
            self.rng.choices(acts, weights)[0](self.rng.choice(NODES))
            self.check()
        self.end()

    def give(self, event: ev.Event) -> None:
        """An event; what it causes is answered later."""
        self.take(self.driver.give(event))

    def take(self, effects: list[ef.Effect]) -> None:
        """Keep what asks for an answer."""
        for effect in effects:
            found = effect.message if isinstance(effect, ef.Send) else effect
            if isinstance(found, ef.Answer):
                assert all(choice.nodename for inner in found.choices for choice in inner), found.choices
            if isinstance(found, Question):
                self.open.append(found)

    # -- requests

    def ask(self, _node: str) -> None:
        """A request arrives, some of them again."""
        self.count += 1
        count, rng = self.rng.choice((1, 1, 2, 3)), self.rng
        known = "again" if rng.random() < 0.2 else self.count
        servers = tuple(f"server-{known}-{number}" for number in range(count))
        asked = request(*servers, request_id=f"req-{self.count}", num_alternates=rng.choice((0, 2)), **self._facts())
        if (policy := rng.choice((None, *GroupPolicy))) is not None:
            others = {f"server-{rng.randrange(1, self.count + 1)}-0" for _ in range(3)}
            asked = replace(asked, group=Group(f"group-{policy}", policy, others | {*servers}))
        self.take(self.driver.ask(asked, within_s=rng.choice((5.0, 20.0, 60.0))))

    def _facts(self) -> dict[str, Any]:
        rng = self.rng
        rare = {"dry_run": True, "merge_with_existing": True, "force_nodes": (rng.choice([*self.names.values()]),)}
        found: dict[str, Any] = {name: value for name, value in rare.items() if rng.random() < 0.1}
        return found | {"root_only": rng.random() > 0.35}

    # -- answers

    def answer(self, _node: str) -> None:
        """One of those that are asked answers; only an agent does so twice."""
        if not self.open:
            return
        asked = self.rng.choice(self.open)
        if not isinstance(asked, Claim) or self.rng.random() < 0.8:
            self.open.remove(asked)
        if isinstance(asked, Claim):
            self._judge(asked)
        else:
            self.give(self._answer_of(asked))

    def _judge(self, claim: Claim) -> None:
        rng, epoch = self.rng, self.epochs[claim.node]
        if rng.random() < 0.1:
            self.give(ev.CastReturned(CELL, claim))
            return
        reason = None if rng.random() < 0.7 else Reason(rng.choice(REFUSALS))
        if reason is not None and reason.code == RefusalCode.GROUP_CHANGED:
            self.warned[claim.consumer].add(claim.node)
        sequence = self.sequences[claim.node] + rng.randrange(3)
        verdict = Verdict(claim.claim_id, claim.node, epoch, reason is None, reason, 0 if reason else sequence)
        self.give(ev.MessagesArrived(CELL, (verdict,)))

    def _answer_of(self, asked: Question) -> ev.Event:
        rng = self.rng
        match asked:
            case ef.WriteAllocation():
                return self._written(asked)
            case ef.DeleteAllocation(claim_id=claim_id):
                return ev.AllocationDeleted(claim_id, rng.random() < 0.8, cause=asked.cause)
            case ef.AskCandidates(ask_id=ask_id, node=node):
                candidate = ev.Candidate({key: dict(of) for key, of in taken(node).items()}, {"": (node,)})
                return ev.CandidatesAnswered(ask_id, rng.choice(((), (candidate,))), cause=asked.cause)
            case ef.AskFitting(ask_id=ask_id):
                fitting = frozenset(rng.sample(NODES, rng.randrange(4)))
                return ev.FittingAnswered(ask_id, fitting, cause=asked.cause)
            case ef.AskGroup(ask_id=ask_id):
                others = {f"server-{rng.randrange(1, self.count + 1)}-0" for _ in range(rng.randrange(3))}
                standing = {other: frozenset({rng.choice(NODES)}) for other in sorted(others)}
                return ev.GroupAnswered(ask_id, standing, cause=asked.cause)
            case ef.AskConsumer(consumer=consumer):
                return ev.ConsumerAnswered(consumer, rng.choice(({}, taken("node-1"))), "", cause=asked.cause)
            case ef.Answer(claim_ids=claim_ids):
                return ev.AnswerUnheard(claim_ids if rng.random() < 0.3 else (), cause="unheard")
        raise AssertionError(asked)

    def _written(self, asked: ef.WriteAllocation) -> ev.AllocationWritten:
        code = self.rng.choice([ev.WriteCode.WRITTEN] * 8 + [*ev.WriteCode])
        failed = code not in (ev.WriteCode.WRITTEN, ev.WriteCode.NEVER_SENT)
        may_arrive = failed and self.rng.random() < 0.3
        done = asked.allocations if may_arrive or not failed else {}
        generation = self.rng.choice((None, 1, 2))
        return ev.AllocationWritten(
            asked.claim_id, code, "", done, generation=generation, cause=asked.cause, may_arrive=may_arrive
        )

    # -- nodes

    def go(self, node: str) -> None:
        """A node is removed, maybe from a cell that does not have it."""
        self.give(ev.NodesGone(self.rng.choice((CELL, CELL, OTHER_CELL)), frozenset({node})))

    def is_read(self, node: str) -> None:
        """A read of the databases ends, which may have begun long ago."""
        cell = self.rng.choice((CELL, CELL, CELL, OTHER_CELL))
        began_s = self.driver.now - self.rng.choice((0.0, 0.0, 2.0))
        found = node_read(node, cell, self.rng.choice((0, 1, 4)), read_at_s=began_s)
        leaves = {**found.leaves, NAME_LEAF: self.names[node]}
        self.give(replace(found, host=self.hosts[node], nodename=self.names[node], leaves=leaves))

    def speak(self, node: str, *, whole: bool = True) -> None:
        """An agent sends a snapshot, maybe of a new run; not whole: it has heard nothing from nova-compute."""
        if self.rng.random() < 0.4:
            self.epochs[node], self.sequences[node] = self.epochs[node] + 1, 0
        self.sequences[node] += 1
        leaves = node_leaves(node, 4, 8192) | {NAME_LEAF: self.names[node], "agent.groups": True}
        if not whole:
            leaves = {name: leaf for name, leaf in leaves.items() if not name.startswith(("cn.", "stats."))}
            leaves["agent.ready"] = False
        place = (node, self.epochs[node], self.sequences[node], self.hosts[node])
        self.give(ev.MessagesArrived(CELL, (Snapshot(*place, leaves, {}, {}, digest_of(leaves, {}, {})),)))

    def boot(self, node: str) -> None:
        """The host of a node boots."""
        self.speak(node, whole=False)

    def change(self, node: str) -> None:
        """An agent sends an increment."""
        self.sequences[node] += 1
        news: dict[str, Any] = self.rng.choice(
            ({NAME_LEAF: self.names[node], "cn.free_disk_gb": 50, "agent.ready": True}, {NAME_LEAF: None}, {})
        )
        group = self.rng.choice(("", *(f"group-{policy}" for policy in GroupPolicy)))
        server = f"server-{self.rng.choice(('again', self.rng.randrange(1, self.count + 2)))}-0"
        gone = self.rng.random() < 0.2
        consumers = {server: None if gone else Consumer(taken(node), True, group)}
        claims = {f"claim-{node}": self.rng.choice((None, server))}
        place = (node, self.epochs[node], self.sequences[node])
        self.give(ev.MessagesArrived(CELL, (Increment(*place, news, consumers, claims),)))

    def move(self, node: str) -> None:
        """Nova gives a node to another host."""
        self.hosts[node] = self.rng.choice(HOSTS)
        self.give(ev.NodesListed(CELL, dict(self.hosts), frozenset({node}), self.driver.now))

    def rename(self, node: str) -> None:
        """A node gets another name."""
        self.names[node] = self.rng.choice((self.hosts[node], f"{self.hosts[node]}.example.org"))

    def wait(self, _node: str) -> None:
        """Time passes."""
        self.take(self.driver.wait(self.rng.choice((0.05, 0.2, 1.0, 3.0, 15.0, 70.0))))

    # -- what must hold

    def check(self) -> None:
        """Nobody waits for what will not come."""
        for state in self.driver.core.requests.under_way():
            if not state.request.dry_run:
                self._check_request(state)
        for claim in self.driver.core.claims.open():
            self._check_claim(claim)

    def _is_asked(self, ask_id: str) -> bool:
        return any(getattr(asked, "ask_id", "") == ask_id for asked in self.open)

    def _rings(self, kind: str, name: str) -> bool:
        return self.driver.core.timers.at_s((kind, name)) < inf

    def _check_request(self, state: RequestState) -> None:
        for instance in state.instances:
            assert self._goes_on(state, instance), (state.phase, instance)
        if state.phase == RequestPhase.CHECKING:
            assert self._is_asked(state.check.ask_id) or self._rings("group", str(state.key)), state.check
        if state.phase == RequestPhase.YIELDING:
            assert any(state.claims()), state
        if state.phase == RequestPhase.PLACING and state.all_in(InstanceState.WRITTEN):
            assert state.alternates is not None and state.alternates.waiting, state.alternates

    def _goes_on(self, state: RequestState, instance: InstancePlacement) -> bool:
        placing = state.phase == RequestPhase.PLACING
        match instance.state:
            case InstanceState.OPEN:
                return not placing or not state.all_in(InstanceState.OPEN, InstanceState.WRITTEN)
            case InstanceState.WAITING:
                return not placing or self._rings("again", str(state.key))
            case InstanceState.ASKING:
                return self._is_asked(instance.ask_id)
            case InstanceState.CLAIMING | InstanceState.WRITTEN:
                return instance.claim is not None and self.driver.core.claims.is_open(instance.claim.claim_id)

    def _check_claim(self, claim: OpenClaim) -> None:
        if (claim.owner[0], claim.claim_id) in self._own_claims():
            self._check_group(claim)
        if claim.state == ClaimState.CLAIMING:
            assert self._rings("verdict", claim.claim_id), claim
        if claim.state == ClaimState.WRITING:
            assert self._rings("write", claim.claim_id), claim

    def _own_claims(self) -> set[tuple[int, str]]:
        states = self.driver.core.requests.under_way()
        return {(state.key, claim.claim_id) for state in states for claim in state.claims()}

    def _check_group(self, claim: OpenClaim) -> None:
        """The agent gets the policy of the request, and counts for a soft one until some have refused the server."""
        (state,) = (one for one in self.driver.core.requests.under_way() if one.key == claim.owner[0])
        asked, told = state.request.group, claim.intent.group
        assert (asked is None) == (told is None), told
        if asked is None or told is None:
            return
        assert told.policy == asked.policy and (
            told.max_server_per_host == asked.max_server_per_host or state.request.force_nodes
        )
        refused = self.warned[claim.intent.consumer]
        assert told.seen is not None or claim.intent.node in refused or len(refused) >= SOFT_REFUSALS_MAX, refused

    def end(self) -> None:
        """What was begun ends, and the table counts what it has."""
        core = self.driver.core
        for _ in range(ENDS_WITHIN):
            for delete in [one for one in self.open if isinstance(one, ef.DeleteAllocation)]:
                self.open.remove(delete)
                self.give(ev.AllocationDeleted(delete.claim_id, True, cause=delete.cause))
            if not len(core.requests) and not len(core.claims):
                break
            self.take(self.driver.wait(10.0))
        self.driver.idle()
        for row in core.table.rows():
            own = [claim.allocations for claim in row.claims.values() if claim.counts_allocations]
            used = Counter[str]()
            for amounts in [dict(one.root or ()) for one in row.consumers.values()] + [
                each.get(row.node, {}) for each in own
            ]:
                used.update(amounts)
            assert row.used.get(row.node, {}) == dict(used)
