# SPDX-License-Identifier: Apache-2.0
"""One simulated compute host: a simulated nova-compute, and the real agent core.

The agent's edge is simulated: messages, ticks, reads of Placement that take time, and the state that it keeps
on its disk over restarts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

from compute_agent import effects as ef
from compute_agent import events as ev
from compute_agent.agent_settings import AgentSettings
from compute_agent.core import AgentCore
from shared_scheduler.protocol.messages import Claim, Heartbeat, Message, Reason, Release, Usage, Verdict, agent_address
from shared_scheduler.sim.acceptances import acceptances
from shared_scheduler.sim.clock import LocalClock
from shared_scheduler.sim.computes import Held, SimTracker, Size
from shared_scheduler.sim.later_release import LATER_LEAF
from shared_scheduler.sim.surroundings import Surroundings
from shared_scheduler.sim.ticking import Ticking
from shared_scheduler.sim.topology import SimFit

#: pause between the end of an instance in the tracker and of its allocation in Placement
DELETE_PAUSE_S = 0.02
#: time after which nova-compute retries to delete an allocation
DELETE_AGAIN_S = 1.0
#: time between two audits of nova-compute
AUDIT_INTERVAL_S = 60.0
#: duration of an audit, which holds the lock that builds wait for
AUDIT_S = 0.3
#: part of the audits in which the zeros of their beginning are reported (as not ready)
AUDITS_SEEN = 0.2
#: time that nova-compute takes to start, and to start again after it could not reach Placement
START_S = 2.0
START_AGAIN_S = 1.0
#: part of its heartbeats with which a newer agent sends a message of an unknown type
BABBLE = 0.2

AgentStepped = Callable[["SimNode", Message], None]
#: called with whether an instance was built
Done = Callable[[bool], None]


@dataclass(frozen=True, slots=True)
class Order:
    """A build or a delete (``usage`` None) that reached nova-compute.  ``phantom``: the build fails
    after it was counted, because nova-compute could reach neither Placement nor its database."""

    consumer: str
    usage: Usage | None = None
    topology: str = ""
    phantom: bool = False
    done: Done | None = None


class SimNode:
    """A compute host.  ``sent(node, message)`` is called for every message that its agent sends."""

    def __init__(
        self,
        number: int,
        around: Surroundings,
        rng: Random,
        settings: AgentSettings,
        size: Size,
        newer: bool,
        sent: AgentStepped,
        cell: str,
    ) -> None:
        self.node = f"node-{number:05d}"
        self.host = f"host-{number:05d}"
        #: Nova's hypervisor_hostname; that of every other node is its host
        self.nodename = self.host if number % 2 else f"{self.host}.example.org"
        self.address = agent_address(self.host)
        self.cell = cell
        self.tracker = SimTracker(self.node, self.host, self.nodename, number, size)
        self.newer = newer
        if newer:
            self.tracker.extra[LATER_LEAF] = {"number": number}
        self.clock = LocalClock(around.agenda, rng)
        self.agent: AgentCore | None = None
        self.compute_up = True
        self.frozen = False
        #: it was removed from the cloud
        self.gone = False
        #: the agent stops after it has carried out this many more effects
        self.dies_after: int | None = None
        self.lives = 0
        #: part of the audits whose zeros are reported
        self.audits_seen = AUDITS_SEEN
        self.kept: tuple[ef.KeptClaim, ...] = ()
        self.kept_groups: Mapping[str, str] = {}
        self.kept_epoch = 0
        #: what nova-compute does with evacuated servers when it starts; False: Placement was away
        self.destroy_evacuated: Callable[[], bool] = lambda: True
        self._agenda = around.agenda
        self._network = around.network
        self._placement = around.placement
        self._rng = rng
        self._trace = around.trace
        self._settings = settings
        self._placement_delay_s = around.placement_delay_s
        self._sent = sent
        self._ticking: Ticking | None = None
        self._auditing = False
        self._waiting: list[Order] = []  # for nova-compute, or for the end of its audit
        self._unheard: deque[ev.Event] = deque()  # while frozen
        around.placement.add_provider(self.node, self.nodename, size.inventories())
        around.agenda.after(AUDIT_INTERVAL_S * rng.random(), self._audit)

    # -- the agent

    def start_agent(self) -> None:
        """Start the agent, in an epoch as ``compute_agent/service/state_directory.py`` chooses it."""
        assert self.agent is None, "one life at a time"
        if self.gone:
            return
        self.lives += 1
        self.kept_epoch = max(self.kept_epoch + 1, self.clock.wall_ms)
        self.agent = AgentCore(
            self.node,
            self.host,
            self.address,
            self.kept_epoch,
            SimFit(),
            self._settings,
            Random(self._rng.random()),
            self.clock.now,
            self.kept,
            self.kept_groups,
        )
        self._ticking = Ticking(self._agenda, self._deadline_s, lambda: self.feed(ev.Tick()))
        self._network.join(self.address, False, self._receive, self.newer, self._returned)
        self._trace.note(self.node, f"agent starts, epoch {self.kept_epoch}")
        self.feed(ev.ChannelChanged(self._network.up))
        if self.compute_up:
            self.feed(ev.TrackerConnected("tap"))
            self.feed(self.tracker.report())

    def _deadline_s(self) -> float | None:
        if self.agent is None:
            return None
        deadline_s = self.agent.next_deadline_s(self.clock.now)
        return None if deadline_s is None else self.clock.in_world(deadline_s)

    def kill_agent(self) -> None:
        """End the agent without a Leave message."""
        if self.agent is None:
            return
        self._trace.note(self.node, "agent dies")
        self.agent = self.dies_after = None
        self.frozen = False
        self._unheard.clear()
        if self._ticking is not None:
            self._ticking.stop()
        self._network.leave(self.address)

    def forget(self, set_back_s: int) -> None:
        """Delete the stored state of the agent, and set the wall clock back."""
        self._trace.note(self.node, f"the agent's memory is lost, the clock {set_back_s} s back")
        self.kept, self.kept_groups, self.kept_epoch = (), {}, 0
        self.clock.set_back(set_back_s)

    def freeze(self) -> None:
        """Stop the process of the agent; messages to it wait."""
        if self.agent is None or self._ticking is None:
            return
        self._trace.note(self.node, "agent is frozen")
        self.frozen = True
        self._ticking.suspend()

    def thaw(self) -> None:
        """Continue the process."""
        self._trace.note(self.node, "agent is thawed")
        self.frozen = False
        while self._unheard:
            self.feed(self._unheard.popleft())
        if self._ticking is not None:
            self._ticking.resume()

    @property
    def is_current(self) -> bool:
        """Whether the agent has received and uses the last report of nova-compute."""
        return self.agent is not None and self.agent.ready and not self._unheard

    def jump(self, by_s: int) -> None:
        """Advance the monotonic clock of the machine."""
        self._trace.note(self.node, f"clock jumps by {by_s} s")
        self.clock.jump(by_s)
        if self._ticking is not None:
            self._ticking.reschedule()

    def channel_changed(self, connected: bool) -> None:
        """Stop the broker, or start it again."""
        self.feed(ev.ChannelChanged(connected))

    def feed(self, event: ev.Event) -> None:
        """Pass an event to the core of the agent, and carry out the effects."""
        agent = self.agent
        if agent is None:
            return
        if self.frozen:
            self._unheard.append(event)
            return
        for effect in agent.step(event, self.clock.now):
            if self._dies_now():
                return
            self._carry_out(effect)
        if self._ticking is not None:
            self._ticking.reschedule()

    def _dies_now(self) -> bool:
        if self.dies_after is None:
            return False
        self.dies_after -= 1
        if self.dies_after < 0:
            self.kill_agent()
            return True
        return False

    def _returned(self, message: Message) -> None:
        self.feed(ev.CastReturned(message))

    def _receive(self, message: Message) -> None:
        if isinstance(message, Claim | Release):
            self._trace.note(self.node, f"<- {type(message).__name__} {message.claim_id}")
        self.feed(ev.MessagesArrived((message,), self.clock.now))

    def _carry_out(self, effect: ef.Effect) -> None:
        match effect:
            case ef.Broadcast(message):
                for verdict in self.acceptances(message):
                    self._note_verdict(verdict)
                self._sent(self, message)
                self._network.broadcast(self.address, message)
                if self.newer and isinstance(message, Heartbeat) and self._rng.random() < BABBLE:
                    self._network.broadcast_unknown(self.address)
            case ef.Cast(address, message):
                self._note_verdict(message)
                self._sent(self, message)
                self._network.cast(self.address, address, message)
            case ef.ReadTree():
                self._read("tree", effect.cause)
            case ef.ReadAllocations():
                self._read("allocations", effect.cause)
            case ef.Keep(claims=claims, groups=groups):
                self.kept, self.kept_groups = claims, groups
            case ef.KeepEpoch(epoch=epoch):
                self._trace.note(self.node, f"agent goes on in epoch {epoch}")
                self.kept_epoch = epoch
            case ef.Notice():
                pass

    def acceptances(self, message: Message) -> Iterator[Verdict]:
        """The verdicts for which this message stands."""
        assert self.agent is not None
        return acceptances(message, self.agent.ledger, self.clock.now)

    def _note_verdict(self, message: Message) -> None:
        if isinstance(message, Verdict):
            word = "accepts" if message.accepted else f"refuses ({message.reason})"
            self._trace.note(self.node, f"{word} {message.claim_id}")

    # -- the agent's reads of Placement

    def _read(self, what: str, cause: str) -> None:
        delay_s = self._placement_delay_s()
        self._agenda.after(delay_s / 2, self._read_placement, what, self.clock.now, delay_s / 2, self.lives, cause)

    def _read_placement(self, what: str, started_s: float, delay_s: float, life: int, cause: str) -> None:
        found: ev.Event
        if not self._placement.up:
            found = ev.ReadFailed(what, "Placement is down", cause=cause)
        elif what == "tree":
            found = ev.TreeRead(self._placement.tree(self.node), started_s, cause=cause)
        else:
            consumers = self._placement.consumers_of(self.node)
            found = ev.AllocationsRead(consumers, started_s, self._placement.generations(consumers), cause=cause)
        self._agenda.after(delay_s, self._answered, found, life)

    def _answered(self, found: ev.Event, life: int) -> None:
        if life == self.lives:
            self.feed(found)

    # -- nova-compute

    @property
    def has_work(self) -> bool:
        """Whether its next audit, or the end of this one, changes anything."""
        return bool(self._waiting or self.tracker.phantoms or self.tracker.unnoticed)

    def build(self, consumer: str, usage: Usage, topology: str, phantom: bool, done: Done) -> None:
        """The instance claim of a build, with or without a claim of a scheduler; ``done`` is called with the result."""
        self._do(Order(consumer, usage, topology, phantom, done))

    def refuse(self, consumer: str) -> None:
        """nova-compute refuses a build (or aborts it)."""
        self._trace.note(self.node, f"refuses to build {consumer}")
        self.feed(ev.ClaimRefused(consumer, "instance_claim", "simulated failure"))

    def delete(self, consumer: str) -> None:
        """The instance is deleted: first in the tracker, then in Placement."""
        self._do(Order(consumer))

    def move_out(self, consumer: str, migration: str) -> None:
        """A live migration begins here."""
        self.feed(self.tracker.leave(consumer, migration))

    def stay(self, consumer: str) -> None:
        """A move from here has failed."""
        self.feed(self.tracker.stay(consumer))

    def moved_out(self, consumer: str, migration: str) -> Held:
        """A live migration has ended: the source runs an audit at once."""
        held = self.tracker.instances[consumer]
        self.feed(self.tracker.drop(consumer))
        self._agenda.work(DELETE_PAUSE_S, self._free, migration)
        return held

    def _do(self, order: Order) -> None:
        if not self.compute_up or self._auditing:
            self._waiting.append(order)
        elif order.usage is not None:
            self._build(order, order.usage)
        else:
            self._trace.note(self.node, f"deletes {order.consumer}")
            self.feed(self.tracker.drop(order.consumer))
            self._agenda.work(DELETE_PAUSE_S, self._free, order.consumer)

    def _build(self, order: Order, usage: Usage) -> None:
        assert order.done is not None, "a build has a callback"
        report = self._claim(order, usage)
        if isinstance(report, Reason):
            self.refuse(order.consumer)
            order.done(False)
            return
        self._trace.note(self.node, f"builds {order.consumer}{' in vain' * order.phantom}")
        if order.phantom:
            self.tracker.phantoms.add(order.consumer)
        self.feed(report)
        order.done(not order.phantom)

    def _claim(self, order: Order, usage: Usage) -> ev.TrackerReported | Reason:
        if order.topology:
            return self.tracker.fit(order.consumer, usage, order.topology)
        return self.tracker.take(order.consumer, usage)

    def _free(self, consumer: str) -> None:
        if self._placement.up:
            self._placement.delete(consumer)
        else:
            self._agenda.work(DELETE_AGAIN_S, self._free, consumer)

    def kill_compute(self) -> None:
        """End nova-compute; its instances stay."""
        self.compute_up = False
        self._trace.note(self.node, "nova-compute dies")
        self.feed(ev.TrackerLost("its socket closed"))

    def start_compute(self) -> None:
        """nova-compute starts, runs an audit, and handles the orders that wait for it."""
        self._agenda.work(START_S, self._compute_started)

    def _compute_started(self) -> None:
        if not self.destroy_evacuated():
            self._agenda.work(START_AGAIN_S, self._compute_started)
            return
        self.compute_up = True
        self._trace.note(self.node, "nova-compute is back")
        self.feed(ev.TrackerConnected("tap"))
        self._begin_audit(seen=True)

    def _audit(self) -> None:
        self.audit()
        self._agenda.after(AUDIT_INTERVAL_S, self._audit)

    def audit(self) -> None:
        """The periodic task: nova-compute counts its instances again."""
        if self.compute_up and not self._auditing:
            self._begin_audit(seen=self._rng.random() < self.audits_seen)

    def _begin_audit(self, seen: bool) -> None:
        """The numbers are zero meanwhile; ``seen``: this is reported, because no better values are known yet."""
        self._auditing = True
        if not seen:
            self._agenda.after(AUDIT_S, self._end_audit)
            return
        self.feed(self.tracker.zeros())
        self._agenda.work(AUDIT_S, self._end_audit)

    def _end_audit(self) -> None:
        self._auditing = False
        if not self.compute_up:
            return
        if self.has_work:
            self._agenda.worked()
        self.feed(self.tracker.audit())
        waiting, self._waiting = self._waiting, []
        for order in waiting:
            self._do(order)
