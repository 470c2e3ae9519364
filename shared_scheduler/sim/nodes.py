# SPDX-License-Identifier: Apache-2.0
"""One simulated compute host: a nova-compute, and beside it the real agent core.

The agent's edge is imitated: messages, ticks, reads of Placement that take time, and what it keeps
on its disk over restarts.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from compute_agent import effects as ef
from compute_agent import events as ev
from compute_agent.core import AgentCore
from compute_agent.ledger import NoTopology
from compute_agent.settings import Settings
from shared_scheduler.protocol.addresses import agent_address
from shared_scheduler.protocol.messages import Claim, Message, Release, Usage, Verdict
from shared_scheduler.sim.agenda import Agenda, Trace
from shared_scheduler.sim.computes import SimTracker, Size
from shared_scheduler.sim.network import Network
from shared_scheduler.sim.placement import SimPlacement
from shared_scheduler.sim.ticking import Ticking

#: pause between the end of an instance in the tracker and of its allocation in Placement
DELETE_PAUSE_S = 0.02
#: nova-compute audits this often
AUDIT_INTERVAL_S = 60.0
#: how long a nova-compute takes to start
START_S = 2.0

AgentStepped = Callable[["SimNode", Message], None]


class SimNode:
    """A compute host.  ``sent(node, message)`` hears of every message that its agent sends."""

    def __init__(
        self,
        number: int,
        agenda: Agenda,
        network: Network,
        placement: SimPlacement,
        rng: Random,
        trace: Trace,
        settings: Settings,
        size: Size,
        placement_delay_s: Callable[[], float],
        sent: AgentStepped,
    ) -> None:
        self.node = f"node-{number:05d}"
        self.host = f"host-{number:05d}"
        self.address = agent_address(self.host)
        self.tracker = SimTracker(self.node, self.host, number, size)
        self.agent: AgentCore | None = None
        self.epoch = 0
        self.compute_up = True
        self.kept: tuple[ef.KeptClaim, ...] = ()
        self._agenda = agenda
        self._network = network
        self._placement = placement
        self._rng = rng
        self._trace = trace
        self._settings = settings
        self._placement_delay_s = placement_delay_s
        self._sent = sent
        self._ticking: Ticking | None = None
        self._waiting: list[tuple[str, Usage | None]] = []  # casts that wait for nova-compute
        placement.add_provider(self.node, self.host, size.inventories())
        agenda.after(AUDIT_INTERVAL_S * rng.random(), self._audit)

    # -- the agent

    def start_agent(self) -> None:
        """A new life of the agent."""
        assert self.agent is None, "one life at a time"
        self.epoch += 1
        now = self._agenda.now
        self.agent = agent = AgentCore(
            self.node,
            self.host,
            self.address,
            self.epoch,
            NoTopology(),
            self._settings,
            Random(self._rng.random()),
            now,
            self.kept,
        )
        self._ticking = Ticking(
            self._agenda,
            lambda: agent.next_deadline_s(self._agenda.now),
            lambda: self.feed(ev.Tick()),
        )
        self._network.join(self.address, False, self._receive)
        self._trace.note(self.node, f"agent starts, epoch {self.epoch}")
        self.feed(ev.ChannelChanged(True))
        if self.compute_up:
            self.feed(ev.TrackerConnected("tap"))
            self.feed(self.tracker.audit())

    def kill_agent(self) -> None:
        """The agent dies without a word."""
        if self.agent is None:
            return
        self._trace.note(self.node, "agent dies")
        self.agent = None
        if self._ticking is not None:
            self._ticking.stop()
        self._network.leave(self.address)

    def feed(self, event: ev.Event) -> None:
        """Give the agent an event, and carry out what it wants."""
        agent = self.agent
        if agent is None:
            return
        for effect in agent.step(event, self._agenda.now):
            self._carry_out(effect)
        if self.agent is agent and self._ticking is not None:
            self._ticking.look()

    def _receive(self, message: Message) -> None:
        if isinstance(message, Claim | Release):
            self._trace.note(self.node, f"<- {type(message).__name__} {message.claim_id}")
        self.feed(ev.MessagesArrived((message,), self._agenda.now))

    def _carry_out(self, effect: ef.Effect) -> None:
        match effect:
            case ef.Broadcast(message):
                self._sent(self, message)
                self._network.broadcast(self.address, message)
            case ef.Cast(address, message):
                self._note_verdict(message)
                self._sent(self, message)
                self._network.cast(self.address, address, message)
            case ef.ReadTree():
                self._read("tree")
            case ef.ReadAllocations():
                self._read("allocations")
            case ef.Keep(claims=claims):
                self.kept = claims
            case ef.Notice():
                pass

    def _note_verdict(self, message: Message) -> None:
        if isinstance(message, Verdict):
            word = "accepts" if message.accepted else f"refuses ({message.reason})"
            self._trace.note(self.node, f"{word} {message.claim_id}")

    # -- the agent's reads of Placement

    def _read(self, what: str) -> None:
        delay_s = self._placement_delay_s()
        self._agenda.after(delay_s / 2, self._look, what, self._agenda.now, delay_s / 2, self.epoch)

    def _look(self, what: str, started_s: float, delay_s: float, epoch: int) -> None:
        found: ev.Event
        if not self._placement.up:
            found = ev.ReadFailed(what, "Placement is down")
        elif what == "tree":
            found = ev.TreeRead(self._placement.tree(self.node), started_s)
        else:
            found = ev.AllocationsRead(self._placement.consumers_of(self.node), started_s)
        self._agenda.after(delay_s, self._answered, found, epoch)

    def _answered(self, found: ev.Event, epoch: int) -> None:
        if epoch == self.epoch:
            self.feed(found)

    # -- nova-compute

    def build(self, consumer: str, usage: Usage) -> None:
        """The instance claim of a build, invited or not."""
        self._do(consumer, usage)

    def refuse(self, consumer: str) -> None:
        """nova-compute refuses a build (or aborts it)."""
        self._trace.note(self.node, f"refuses to build {consumer}")
        self.feed(ev.ClaimRefused(consumer, "instance_claim", "simulated failure"))

    def delete(self, consumer: str) -> None:
        """The instance is deleted: first in the tracker, then in Placement."""
        self._do(consumer, None)

    def _do(self, consumer: str, usage: Usage | None) -> None:
        if not self.compute_up:
            self._waiting.append((consumer, usage))
        elif usage is not None:
            self._trace.note(self.node, f"builds {consumer}")
            self.feed(self.tracker.take(consumer, usage))
        else:
            self._trace.note(self.node, f"deletes {consumer}")
            self.feed(self.tracker.drop(consumer))
            self._agenda.after(DELETE_PAUSE_S, self._free, consumer)

    def _free(self, consumer: str) -> None:
        if self._placement.up:
            self._placement.delete(consumer)
        else:
            self._agenda.after(1.0, self._free, consumer)  # nova-compute's periodic task does it

    def kill_compute(self) -> None:
        """nova-compute dies; the instances stay."""
        self.compute_up = False
        self._trace.note(self.node, "nova-compute dies")
        self.feed(ev.TrackerLost("its socket closed"))

    def start_compute(self) -> None:
        """nova-compute starts, audits, and finds what waits for it."""
        self._agenda.after(START_S, self._compute_started)

    def _compute_started(self) -> None:
        self.compute_up = True
        self._trace.note(self.node, "nova-compute is back")
        self.feed(ev.TrackerConnected("tap"))
        self.feed(self.tracker.audit())
        waiting, self._waiting = self._waiting, []
        for consumer, usage in waiting:
            self._do(consumer, usage)

    def _audit(self) -> None:
        if self.compute_up:
            self.feed(self.tracker.audit())
        self._agenda.after(AUDIT_INTERVAL_S, self._audit)
