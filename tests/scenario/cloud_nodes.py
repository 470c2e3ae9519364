# SPDX-License-Identifier: Apache-2.0
"""A compute host of a scripted cloud: a nova-compute, and beside it the real agent core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from compute_agent import effects as ef
from compute_agent import events as ev
from compute_agent.agent_settings import AgentSettings
from compute_agent.core import AgentCore
from shared_scheduler.protocol.messages import Leaf, Message, Reason, RefusalCode, Usage, agent_address
from shared_scheduler.sim.computes import SimTracker, Size
from tests.unit.compute_agent.numa_cells import CellsFit, cell_leaves

if TYPE_CHECKING:
    from tests.scenario.cloud import Cloud

#: notices that belong into a story
TOLD = {
    ef.NoticeCode.READY: "is ready",
    ef.NoticeCode.NOT_READY: "is not ready",
    ef.NoticeCode.ACCEPTED: "accepts",
    ef.NoticeCode.REFUSED: "refuses",
    ef.NoticeCode.ENDED: "ends",
    ef.NoticeCode.EPOCH_BEGUN: "begins epoch",
}


class Compute:
    """nova-compute's tracker, with cells and devices, and the agent in one of its lives."""

    def __init__(self, cloud: Cloud, node: str, number: int, size: Size, pins: int, nics: int) -> None:
        self.cloud = cloud
        self.node, self.host = node, node.replace("node", "host")
        self.address = agent_address(self.host)
        self.nodename = f"{self.host}.example.org"
        self.tracker = SimTracker(node, self.host, self.nodename, number, size)
        self.cells = cell_leaves(pins, nics)
        self.topologies: dict[str, str] = {}
        self.pins, self.nics = pins, nics
        self.up = True
        self.stubborn = False
        self.epoch = 0
        self.rng = Random(node)  # goes on over its lives, as chance does
        self.kept: tuple[ef.KeptClaim, ...] = ()
        self.kept_groups: Mapping[str, str] = {}
        self.agent: AgentCore | None = None

    # --- the agent -------------------------------------------------------------------------------

    def start_agent(self) -> None:
        self.epoch += 1
        self.agent = AgentCore(
            self.node, self.host, self.address, self.epoch, self, AgentSettings(),
            self.rng, self.cloud.now, self.kept, self.kept_groups,
        )  # fmt: skip
        self.feed(ev.ChannelChanged(self.cloud.broker_up))
        if self.up:
            self.connect()

    def connect(self) -> None:
        self.feed(ev.TrackerConnected("tap"))
        self.audit()

    def feed(self, event: ev.Event) -> None:
        if self.agent is not None:
            for effect in self.agent.step(event, self.cloud.now):
                self.carry_out(effect)

    def consume(self, leaves: Mapping[str, Leaf], topology: str) -> Mapping[str, Leaf] | Reason:
        """The agent's fit."""
        if self.stubborn:
            return Reason(RefusalCode.TOPOLOGY, {"why": "stubborn"})
        return CellsFit().consume(leaves, topology)

    def carry_out(self, effect: ef.Effect) -> None:
        match effect:
            case ef.Broadcast(message):
                for name in self.cloud.schedulers:
                    self.cloud.post(self.node, name, message)
            case ef.Cast(address, message):
                self.cloud.post(self.node, address, message)
            case ef.ReadTree():
                self.read("tree")
            case ef.ReadAllocations():
                self.read("allocations")
            case ef.Keep(claims=claims, groups=groups):
                self.kept, self.kept_groups = claims, groups
            case ef.KeepEpoch(epoch=epoch):
                self.epoch = epoch
            case ef.Notice(code, _, detail):
                self.tell(code, detail)

    def tell(self, code: ef.NoticeCode, detail: Mapping[str, Leaf]) -> None:
        if code not in TOLD:
            return
        words = [self.node, TOLD[code]]
        words += [str(detail[key]) for key in ("consumer", "epoch") if key in detail]
        why = [str(detail[key]) for key in ("reason", "how") if key in detail]
        self.cloud.note(" ".join(words) + (f": {why[0]}" if why else ""))

    def read(self, what: str) -> None:
        """Ask Placement; the answer is of the moment at which it was asked."""
        started_s, agent = self.cloud.now, self.agent

        def answer() -> ev.Event:
            placement = self.cloud.placement
            if not placement.up:
                return failed
            if what == "tree":
                return ev.TreeRead(placement.tree(self.node), started_s)
            return ev.AllocationsRead(placement.consumers_of(self.node), started_s)

        def give_up() -> None:
            if self.agent is agent:
                self.feed(failed)

        failed = ev.ReadFailed(what, "no answer")
        self.cloud.call(self.node, "placement", f"read {what}", answer, give_up)

    def hear(self, message: Message) -> None:
        self.feed(ev.MessagesArrived((message,), self.cloud.now))

    # --- nova-compute ----------------------------------------------------------------------------

    def leaves(self) -> dict[str, Leaf]:
        """The cells with everything in them that nova-compute has built."""
        found = dict(self.cells)
        for topology in self.topologies.values():
            taken = CellsFit().consume(found, topology)
            assert isinstance(taken, Mapping), taken
            found |= taken
        return found

    def with_cells(self, report: ev.TrackerReported) -> ev.TrackerReported:
        return replace(report, leaves=dict(report.leaves) | self.leaves())

    def audit(self) -> None:
        self.feed(self.with_cells(self.tracker.audit()))

    def build(self, consumer: str, usage: Usage, topology: str) -> None:
        self.feed(ev.ClaimBegun(consumer))
        if topology:
            self.topologies[consumer] = topology
        self.feed(self.with_cells(self.tracker.take(consumer, usage)))

    def drop(self, consumer: str) -> None:
        self.topologies.pop(consumer, None)
        self.feed(self.with_cells(self.tracker.drop(consumer)))

    def die(self) -> None:
        self.up = False
        self.feed(ev.TrackerLost("its socket closed"))

    def rise(self) -> None:
        self.up = True
        self.connect()
