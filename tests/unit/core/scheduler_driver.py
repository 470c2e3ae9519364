# SPDX-License-Identifier: Apache-2.0
"""Drives a scheduler core in unit tests: real table and decider; events are passed one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.planner import Approval, HostJudge
from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.core.scheduler_settings import Identity, SchedulerSettings
from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.pipeline import NOVA_DEFAULTS, Decider
from shared_scheduler.decision.request import Flavor, PlacementForm, Request
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.digest import digest_of
from shared_scheduler.protocol.messages import (
    Allocations,
    Claim,
    Consumer,
    Increment,
    Leaf,
    Message,
    Reason,
    Release,
    Resync,
    Snapshot,
    Usage,
    Verdict,
    agent_address,
)
from shared_scheduler.table.host_table import HostTable

CELL = "cell-1"
OTHER_CELL = "cell-2"
ME = "scheduler-a"
SMALL = Flavor("small", vcpus=1, memory_mb=1024, root_gb=10)
QUERY = "resources=DISK_GB:10,MEMORY_MB:1024,VCPU:1"

Effect = TypeVar("Effect", bound=ef.Effect)


def host_of(node: str) -> str:
    """The host of node-1 is host-1."""
    return node.replace("node", "host")


def node_leaves(node: str, vcpus: int, free_mb: int, **more: Leaf) -> dict[str, Leaf]:
    """The leaves that an agent publishes for a node with ``free_mb`` of its 8 GiB left."""
    found: dict[str, Leaf] = {
        "cn.uuid": node,
        "cn.id": 1,
        "cn.host": host_of(node),
        "cn.hypervisor_hostname": host_of(node),
        "cn.hypervisor_type": "fake",
        "cn.hypervisor_version": 1,
        "cn.vcpus": vcpus,
        "cn.vcpus_used": 0,
        "cn.memory_mb": 8192,
        "cn.memory_mb_used": 8192 - free_mb,
        "cn.free_ram_mb": free_mb,
        "cn.local_gb": 100,
        "cn.local_gb_used": 0,
        "cn.free_disk_gb": 100,
        "cn.disk_available_least": 100,
        "cn.running_vms": 0,
        "cn.current_workload": 0,
        "cn.cpu_allocation_ratio": 1.0,
        "cn.ram_allocation_ratio": 1.0,
        "cn.disk_allocation_ratio": 1.0,
        "cn.supported_hv_specs": [],
        "stats.num_instances": 0,
        "stats.io_workload": 0,
        "agent.mode": "tap",
        "agent.ready": True,
        f"rp.{node}": {
            "name": host_of(node),
            "parent": None,
            "generation": 1,
            "inventories": {
                "VCPU": [vcpus, 0, 1, vcpus, 1, 1.0],
                "MEMORY_MB": [8192, 0, 1, 8192, 1, 1.0],
                "DISK_GB": [100, 0, 1, 100, 1, 1.0],
            },
            "traits": [],
            "aggregates": [],
        },
    }
    found.update({name.replace("__", "."): value for name, value in more.items()})
    return found


def snapshot(
    node: str,
    sequence: int = 1,
    epoch: int = 1,
    vcpus: int = 4,
    free_mb: int = 8192,
    consumers: dict[str, Consumer] | None = None,
    claims: dict[str, str] | None = None,
    **more: Leaf,
) -> Snapshot:
    """A snapshot of a node."""
    leaves, held, pending = node_leaves(node, vcpus, free_mb, **more), consumers or {}, claims or {}
    digest = digest_of(leaves, held, pending)
    return Snapshot(node, epoch, sequence, host_of(node), leaves, held, pending, digest)


def node_read(node: str, cell: str = CELL, vcpus: int = 4, free_mb: int = 8192, read_at_s: float = 0.0) -> ev.NodeRead:
    """A node as it is read from the databases and Placement."""
    leaves = node_leaves(node, vcpus, free_mb)
    del leaves["agent.mode"], leaves["agent.ready"]
    host = host_of(node)
    return ev.NodeRead(cell, node, host, host, leaves, {}, frozenset(), read_at_s)


def request(*servers: str, **changes: Any) -> Request:
    """A root-only request for the small flavor, one instance for each name."""
    made = Request(
        request_id="req-1",
        project_id="project",
        user_id="user",
        flavor=SMALL,
        forms=(PlacementForm({"VCPU": 1, "MEMORY_MB": 1024, "DISK_GB": 10}),),
        usage=Usage(1, 1024, 10, 1, 1),
        instance_uuids=servers or ("server-1",),
        queries=(QUERY,),
    )
    return replace(made, **changes)


def taken(node: str) -> Allocations:
    """The allocations of the small flavor on a node."""
    return {node: {"VCPU": 1, "MEMORY_MB": 1024, "DISK_GB": 10}}


class Picky:
    """A judge that refuses some hosts."""

    def __init__(self, *refused: str) -> None:
        self.refused = set(refused)
        self.asked: list[str] = []

    def verify(self, request: Request, index: int, view: Any, candidates: Sequence[ev.Candidate]) -> Approval | Reason:
        """Refuse the named hosts."""
        self.asked.append(view.node)
        if view.node in self.refused:
            return Reason("filter", {"filter": "PickyFilter"})
        return Approval(candidates[0] if candidates else None)


class AcceptAll:
    """Approves every host with its first candidate."""

    def verify(self, request: Request, index: int, view: Any, candidates: Sequence[ev.Candidate]) -> Approval | Reason:
        return Approval(candidates[0] if candidates else None, request.topology)


class SchedulerDriver:
    """The core and its effects so far.  ``now`` is the time, which the test sets."""

    def __init__(
        self,
        judge: HostJudge | None = None,
        decision: DecisionSettings = NOVA_DEFAULTS,
        **settings: Any,
    ) -> None:
        self.table = HostTable()
        self.now = 100.0
        self.core = SchedulerCore(
            Identity(ME, 1),
            SchedulerSettings(**settings),
            self.table,
            Decider(self.table, decision),
            judge or AcceptAll(),
            Random(1),
        )
        #: kept apart from the other effects, because many events record a node beside what a test is about
        self.node_records: list[ef.RecordNode] = []
        #: kept apart as well: each server that was placed is read some time later
        self.build_reads: list[ef.ReadBuild] = []

    # -- events

    def give(self, event: ev.Event) -> list[ef.Effect]:
        """Pass one event, at the current time.  Returns all effects but ``node_records`` and ``build_reads``."""
        effects = self.core.step(event, self.now)
        self.node_records += of_kind(ef.RecordNode, effects)
        self.build_reads += of_kind(ef.ReadBuild, effects)
        return [one for one in effects if not isinstance(one, ef.RecordNode | ef.ReadBuild)]

    def hear(self, *messages: Message, cell: str = CELL) -> list[ef.Effect]:
        """Pass messages of a state channel."""
        return self.give(ev.MessagesArrived(cell, messages))

    def wait(self, for_s: float) -> list[ef.Effect]:
        """Advance the time, with every tick that the core requests in between."""
        until_s, found = self.now + for_s, list[ef.Effect]()
        while (at_s := self.core.next_deadline_s()) is not None and at_s <= until_s:
            self.now = max(self.now, at_s)
            found += self.give(ev.Tick())
        self.now = until_s
        return found

    def ask(self, asked: Request | None = None, within_s: float = 60.0) -> list[ef.Effect]:
        """A request arrives."""
        return self.give(ev.RequestArrived(asked or request(), self.now + within_s))

    # -- the world around it

    def with_agents(self, *nodes: str, cell: str = CELL, **facts: Any) -> SchedulerDriver:
        """Add nodes with an agent."""
        self._services(nodes, cell)
        for node in nodes:
            self.hear(snapshot(node, **facts), cell=cell)
        return self

    def without_agents(self, *nodes: str, cell: str = CELL, **facts: Any) -> SchedulerDriver:
        """Add nodes without an agent, read from the databases."""
        self._services(nodes, cell)
        for node in nodes:
            self.give(node_read(node, cell, **facts))
        return self

    def _services(self, nodes: Sequence[str], cell: str) -> None:
        facts = tuple(ServiceFacts(host_of(node)) for node in nodes)
        self.give(ev.ServicesRead(cell, facts, False))

    # -- answers to what it asked for

    def accept(self, claim: Claim, sequence: int = 2, epoch: int = 1) -> list[ef.Effect]:
        """The agent accepts."""
        return self.hear(Verdict(claim.claim_id, claim.node, epoch, True, None, sequence))

    def refuse(self, claim: Claim, code: str = "no_capacity", news: tuple[Increment, ...] = ()) -> list[ef.Effect]:
        """The agent refuses."""
        reason = Reason(code)
        return self.hear(Verdict(claim.claim_id, claim.node, 1, False, reason, 0, news))

    def written(
        self, write: ef.WriteAllocation, code: ev.WriteCode = ev.WriteCode.WRITTEN, consumer_s: float = 0.0
    ) -> list[ef.Effect]:
        """Placement answers a write."""
        done = write.allocations if code == ev.WriteCode.WRITTEN else {}
        event = ev.AllocationWritten(write.claim_id, code, "", done, consumer_s=consumer_s, cause=write.cause)
        return self.give(event)

    def unanswered(self, write: ef.WriteAllocation, code: ev.WriteCode = ev.WriteCode.UNREACHABLE) -> list[ef.Effect]:
        """The last attempt of a write ended so, and an earlier one may still be carried out."""
        event = ev.AllocationWritten(write.claim_id, code, "", write.allocations, cause=write.cause, may_arrive=True)
        return self.give(event)

    def deleted(self, delete: ef.DeleteAllocation, gone: bool = True) -> list[ef.Effect]:
        """Placement answers a delete."""
        return self.give(ev.AllocationDeleted(delete.claim_id, gone, cause=delete.cause))

    # -- what is left

    def idle(self) -> None:
        """Assert that nothing is under way and that all assumed claims are confirmed."""
        assert len(self.core.requests) == 0
        assert len(self.core.claims) == 0
        for node in self.table.nodes():
            for own in self.table.outstanding(node):
                assert own.confirmed, f"{own.claim_id} was neither confirmed nor forgotten"


def claims_in(effects: Sequence[ef.Effect]) -> list[Claim]:
    """The claims that were cast; each went to the right agent."""
    found = []
    for effect in effects:
        if isinstance(effect, ef.Send) and isinstance(effect.message, Claim):
            assert effect.address == agent_address(host_of(effect.message.node))
            assert effect.message.scheduler == ME
            found.append(effect.message)
    return found


def only_claim(effects: Sequence[ef.Effect]) -> Claim:
    """The one effect, a claim."""
    assert len(effects) == 1, effects
    return claims_in(effects)[0]


def only(kind: type[Effect], effects: Sequence[ef.Effect]) -> Effect:
    """The one effect, of this kind."""
    assert len(effects) == 1 and isinstance(effects[0], kind), effects
    return effects[0]


def releases_in(effects: Sequence[ef.Effect]) -> list[str]:
    """Claim ids that were released."""
    sends = (effect for effect in effects if isinstance(effect, ef.Send))
    return [send.message.claim_id for send in sends if isinstance(send.message, Release)]


def resyncs_in(effects: Sequence[ef.Effect]) -> list[str]:
    """Nodes whose agents got a Resync."""
    sends = (effect for effect in effects if isinstance(effect, ef.Send))
    return [send.message.node for send in sends if isinstance(send.message, Resync)]


def of_kind(kind: type[Effect], effects: Sequence[ef.Effect]) -> list[Effect]:
    """The effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def nodes_of(answer: ef.Answer) -> list[str]:
    """The claimed node of each instance."""
    return [inner[0].node for inner in answer.choices]
