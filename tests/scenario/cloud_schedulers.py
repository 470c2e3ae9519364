# SPDX-License-Identifier: Apache-2.0
"""A scheduler of a scripted cloud: the real core, and an edge whose every call lies on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.planner import Approval
from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.core.scheduler_settings import Identity, SchedulerSettings
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import Request
from shared_scheduler.model.topology import TopologyUsage
from shared_scheduler.placement.consumer_conflicts import ConflictCase, find_delete
from shared_scheduler.protocol.messages import Message, Reason
from shared_scheduler.sim.placement import wanted_of
from shared_scheduler.table.host_table import HostTable
from tests.unit.compute_agent.numa_cells import CellsFit, pinned

if TYPE_CHECKING:
    from tests.scenario.cloud import Cloud

CELL = "cell-1"
Question = ef.AskCandidates | ef.AskFitting | ef.AskConsumer | ef.AskGroup


class CellsJudge:
    """Fits cells and devices as the agent does."""

    def verify(self, request: Request, index: int, view: Any, candidates: Sequence[ev.Candidate]) -> Approval | Reason:
        if not request.topology:
            return Approval(candidates[0] if candidates else None)
        after = CellsFit().consume(view.leaves, request.topology)
        if isinstance(after, Reason):
            return after
        take = TopologyUsage.between(view.leaves, after)
        return Approval(candidates[0], request.topology, take=take)


class ScriptedScheduler:
    """One life of a scheduler."""

    def __init__(self, cloud: Cloud, name: str, life: int) -> None:
        self.cloud = cloud
        self.name = name
        self.table = HostTable()
        self.core = SchedulerCore(
            Identity(name, life), SchedulerSettings(), self.table, Decider(self.table), CellsJudge(),
            Random(f"{name}.{life}"),
        )  # fmt: skip
        self._seen: dict[str, str] = {}

    def feed(self, event: ev.Event) -> None:
        for effect in self.core.step(event, self.cloud.now):
            self.carry_out(effect)
        self.tell_what_it_sees()

    def hear(self, message: Message) -> None:
        self.feed(ev.MessagesArrived(CELL, (message,)))

    def tell_what_it_sees(self) -> None:
        for node in self.table.nodes():
            state = self.state_of(node)
            if self._seen.get(node) != state:
                self._seen[node] = state
                self.cloud.note(f"{self.name} sees {node} {state}")

    def state_of(self, node: str) -> str:
        quarantined = node in self.core.quarantine.nodes
        return "quarantined" if quarantined else self.table.freshness(node).value

    # --- effects ---------------------------------------------------------------------------------

    def carry_out(self, effect: ef.Effect) -> None:
        match effect:
            case ef.Send(_, address, message):
                self.cloud.post(self.name, self.cloud.node_at(address), message)
            case ef.Broadcast(_, message):
                for name in self.cloud.hearers_of(self.name, message):
                    self.cloud.post(self.name, name, message)
            case ef.WriteAllocation() | ef.DeleteAllocation():
                self.write(effect)
            case ef.Answer():
                self.cloud.answered(self.name, effect)
            case ef.Fail(request, code, _, _):
                self.cloud.note(f"{self.name} fails {request.request_id}: {code.value}")
            case ef.RefreshNode(_, node):
                search = self.cloud.search_for
                self.call("databases", f"read {node}", lambda: search(node), lambda: None)
            case ef.RecordBuild() | ef.RecordNode() | ef.ReadBuild() | ef.ExamineChange():
                pass
            case _:
                self.ask(effect)

    def call(self, whom: str, text: str, answer: Any, lost: Any) -> None:
        self.cloud.call(self.name, whom, text, answer, lost)

    def write(self, effect: ef.WriteAllocation | ef.DeleteAllocation) -> None:
        """A write whose answer is lost is looked up by the edge; one that is lost did not happen."""
        verb = "write" if isinstance(effect, ef.WriteAllocation) else "delete"
        place = self.written if isinstance(effect, ef.WriteAllocation) else self.deleted
        failed: ev.Event = (
            ev.AllocationWritten(effect.claim_id, ev.WriteCode.UNREACHABLE, "no answer", cause=effect.cause)
            if isinstance(effect, ef.WriteAllocation)
            else ev.AllocationDeleted(effect.claim_id, False, "no answer", cause=effect.cause)
        )
        text = f"{verb} {effect.consumer}"
        self.call("placement", text, lambda: place(effect), lambda: self.feed(failed))

    def written(self, effect: Any) -> ev.Event:
        placement = self.cloud.placement
        if not placement.up:
            return ev.AllocationWritten(effect.claim_id, ev.WriteCode.UNREACHABLE, "down", cause=effect.cause)
        write = placement.begin_write(effect.consumer, effect.allocations)
        code, detail = placement.end_write(write)
        self.cloud.note(f"placement says {code.value} for {effect.consumer}")
        return ev.AllocationWritten(effect.claim_id, code, detail, effect.allocations, cause=effect.cause)

    def deleted(self, effect: Any) -> ev.Event:
        placement = self.cloud.placement
        if placement.up:
            standing = placement.standing(effect.consumer)
            if find_delete(standing, effect.written, effect.generation) is ConflictCase.AS_WANTED:
                placement.delete(effect.consumer)
            self.cloud.note(f"placement deletes {effect.consumer}")
        return ev.AllocationDeleted(effect.claim_id, placement.up, cause=effect.cause)

    def ask(self, effect: Question) -> None:
        def reply() -> ev.Event:
            return self.reply(effect, "" if self.cloud.placement.up else "Placement is down")

        def give_up() -> None:
            self.feed(self.reply(effect, "no answer"))

        self.call("placement", wording(effect), reply, give_up)

    def reply(self, effect: Question, error: str) -> ev.Event:
        match effect:
            case ef.AskCandidates(ask_id, node, queries):
                found = () if error else self.candidates(node, queries)
                return ev.CandidatesAnswered(ask_id, found, error, cause=effect.cause)
            case ef.AskFitting(ask_id, queries):
                fits = frozenset[str]() if error else self.fitting(queries)
                return ev.FittingAnswered(ask_id, fits, error, cause=effect.cause)
            case ef.AskConsumer(consumer):
                holds = self.cloud.placement.consumers.get(consumer, {})
                return ev.ConsumerAnswered(consumer, holds, error, cause=effect.cause)
            case ef.AskGroup(ask_id, group, known):
                standing = {} if error else self.cloud.standing(self.cloud.groups[group].members - known)
                return ev.GroupAnswered(ask_id, standing, error, cause=effect.cause)

    def fitting(self, queries: Sequence[str]) -> frozenset[str]:
        return frozenset[str]().union(*(self.cloud.placement.fitting(q) for q in queries))

    def candidates(self, node: str, queries: Sequence[str]) -> tuple[ev.Candidate, ...]:
        fits = [query for query in queries if node in self.cloud.placement.fitting(query)]
        return tuple(ev.Candidate({node: wanted_of(query)}, {"": (node,)}) for query in fits)

    def describe(self, node: str) -> str:
        """A row in a few words, with what its own claims take."""
        view = self.table.view(node)
        used = view.used.get(node, {}).get("VCPU", 0)
        free_mb = view.numbers.free_ram_mb if view.numbers else 0
        pins = f", {len(pinned(view.leaves))} pinned" if pinned(view.leaves) else ""
        return f"{self.state_of(node)}, VCPU used {used}, RAM free {free_mb}{pins}"

    def claims(self) -> list[str]:
        """Consumers of its own claims that rows still carry, with their nodes."""
        return [f"{own.consumer} on {node}" for node in self.table.nodes() for own in self.table.outstanding(node)]


def wording(effect: Question) -> str:
    """A question in a few words."""
    match effect:
        case ef.AskCandidates(_, node, _):
            return f"candidates of {node}"
        case ef.AskFitting():
            return "who fits"
        case ef.AskConsumer(consumer):
            return f"what holds {consumer}"
        case ef.AskGroup(_, group, _):
            return f"members of {group}"
