# SPDX-License-Identifier: Apache-2.0
"""What receives mutated messages, and what must hold after each of them.

A target is built for a round of inputs, so that an error can be repeated from the number of its round.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Protocol

from compute_agent import events as agent_events
from compute_agent.agent_settings import AgentSettings
from compute_agent.core import AgentCore
from shared_scheduler.core import events as ev
from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.core.scheduler_settings import Identity, SchedulerSettings
from shared_scheduler.core.unlisted_nodes import PER_HOST_MAX
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.model.providers import Provider
from shared_scheduler.model.resources import Inventory
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.codec import decode, encode
from shared_scheduler.protocol.errors import RemoteProtocolError, UnsendableMessage
from shared_scheduler.protocol.host_keys import HostKeys, HostKeysMode, Kind, MasterKeys, agent_line, parse_agent_keys
from shared_scheduler.protocol.messages import (
    Claim,
    Heartbeat,
    Hello,
    Increment,
    Leave,
    Message,
    Snapshot,
    agent_address,
)
from shared_scheduler.protocol.rate_limits import TokenBucket
from shared_scheduler.protocol.resync_turns import ResyncTurns
from shared_scheduler.protocol.signing import parse_keyring
from shared_scheduler.protocol.window import MessageWindow
from shared_scheduler.sim.topology import SimFit
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.transport.bus import ConnectionChanged, Receive
from shared_scheduler.transport.channel import Channel
from tools.laboratory.fuzz.local_targets import Connections, Page, Records
from tools.laboratory.fuzz.mutations import (
    EPOCH,
    Violated,
    mutated,
    mutated_bytes,
    mutated_envelope,
    of_agent,
    of_scheduler,
    snapshot_of,
)

CELL = "cell1"
VICTIM, EVIL = ("node-victim", "compute-victim"), ("node-evil", "compute-evil")
#: a node that its agent has reported, and that no database has yet
NEW = ("node-new", VICTIM[1])
MASTER = bytes(range(32))


class Target(Protocol):
    """Receives one input at a time."""

    def feed(self, rng: Random) -> bool:
        """Draw an input and process it; whether it was a valid message.

        :raises Exception: when an error of the program was found
        """


class Codec:
    """Bytes to messages: only errors of the protocol are raised, and what is understood is encoded alike."""

    def __init__(self, rng: Random) -> None:
        self._bodies = [encode(one) for one in (*of_agent(*EVIL, "claim-1"), *of_scheduler(EVIL[0]))]

    def feed(self, rng: Random) -> bool:
        """One mutated body."""
        body = mutated_bytes(rng.choice(self._bodies), rng)
        try:
            message = decode(body)
        except RemoteProtocolError:
            return False
        if decode(encode(message)) != message:
            raise Violated("a message changes when it is encoded again")
        return True


class Envelopes:
    """Envelopes of host keys: a mutated one has no sender, and nothing is raised."""

    def __init__(self, rng: Random) -> None:
        self._receivers = [scheduler_keys(), agent_keys(VICTIM[1])]
        body = encode(of_agent(*EVIL, "claim-1")[3])
        source = scheduler_keys()
        sealed = [source.seal(kind, body, VICTIM[1]) for kind in (Kind.TO_AGENT, Kind.SCHEDULERS, Kind.BROADCAST)]
        self._sealed = [*sealed, agent_keys(EVIL[1]).seal(Kind.AGENT, body)]

    def feed(self, rng: Random) -> bool:
        """One mutated envelope, for a scheduler and for an agent."""
        whole = rng.choice(self._sealed)
        other = rng.choice(self._sealed)
        data = mutated_bytes(whole, rng) if rng.random() < 0.5 else mutated_envelope(whole, other, rng)
        for receiver in self._receivers:
            _, sender, _ = receiver.open(data)
            if sender is not None and data not in self._sealed:
                raise Violated(f"a changed envelope is believed to be from {sender}")
        return data in self._sealed


class Window:
    """The window of one node: nothing is raised, and what is applied is in order."""

    def __init__(self, rng: Random) -> None:
        self._now = 100.0
        self._turns = ResyncTurns(str, TokenBucket(1e6, 1e6))
        self._window = MessageWindow(EVIL[0], rng, self._turns)
        self._applied = (0, 0)

    def feed(self, rng: Random) -> bool:
        """One message of the node, at a later time."""
        self._now += rng.choice((0.0, 0.01, 1.0, 60.0))
        message = decoded(mutated(rng.choice(of_agent(*EVIL, "claim-1")), rng))
        if not isinstance(message, Hello | Snapshot | Increment | Heartbeat | Leave) or message.node != EVIL[0]:
            return False
        outcome = self._window.receive(message, self._now, lambda: rng.randrange(3))
        self._window.on_tick(self._now)
        if self._turns.next(self._now) is not None:
            self._window.on_turn(self._now)
        for one in outcome.apply:
            if isinstance(one, Increment) and (one.epoch, one.sequence) != (self._applied[0], self._applied[1] + 1):
                raise Violated(f"increment {one.epoch}/{one.sequence} is applied after {self._applied}")
            self._applied = (one.epoch, one.sequence)
        return True


class Scheduler:
    """A scheduler core behind a channel that requires host keys, and a compromised host that sends what it wants, also
    of nodes that no database has.

    After each message the rows of the other host are as before, nothing was raised, and there are few invented nodes.
    """

    def __init__(self, rng: Random) -> None:
        self._now, self._asked = 100.0, 0
        self._wire = Wire()
        self._channel = Channel(self._wire, clock=lambda: self._now, host_keys=scheduler_keys())
        table = HostTable()
        identity = Identity("s1", 1)
        self._core = SchedulerCore(identity, SchedulerSettings(), table, Decider(table), AcceptAll(), rng)
        self._channel.host_of = self._core.nodes.owner_of
        self._channel.start(lambda messages: self._give(ev.MessagesArrived(CELL, tuple(messages))), lambda up: None)
        self._evil = agent_keys(EVIL[1])
        self._begin()
        self._before = self._rows()

    def _begin(self) -> None:
        services = tuple(ServiceFacts(host) for _, host in (VICTIM, EVIL))
        self._give(ev.ServicesRead(CELL, services, True))
        hosts = dict((VICTIM, EVIL))
        self._give(ev.MessagesArrived(CELL, (snapshot_of(*VICTIM), snapshot_of(*EVIL, vcpus=1))))
        self._give(ev.NodesListed(CELL, hosts, frozenset(), self._now))
        self._wire.receive([agent_keys(NEW[1]).seal(Kind.AGENT, encode(snapshot_of(*NEW)))])

    def _give(self, event: ev.Event) -> None:
        self._core.step(event, self._now)

    def _rows(self) -> list[str]:
        return [self._row(node) for node, _ in (VICTIM, NEW)]

    def _row(self, node: str) -> str:
        facts: dict[str, Any] = self._core.table.describe(node)
        return json.dumps([facts, self._core.table.freshness(node).value], default=repr, sort_keys=True)

    def feed(self, rng: Random) -> bool:
        """Messages that the compromised host signs, delivered at once: of its own node, of the other one, or of a
        scheduler."""
        self._now += 0.01
        bodies = [body for _ in range(rng.choice((1, 1, 2, 5))) if (body := self._drawn(rng)) is not None]
        before = self._channel.counters["messages_rejected"]
        self._wire.receive([self._evil.seal(Kind.AGENT, body) for body in bodies])
        if (now := self._rows()) != self._before:
            raise Violated(f"a row of another host has changed from {self._before} to {now}")
        if (invented := len(self._core.nodes) - len((VICTIM, EVIL, NEW))) > PER_HOST_MAX:
            raise Violated(f"one host has brought {invented} nodes that no database has")
        return bool(bodies) and self._channel.counters["messages_rejected"] == before

    def _drawn(self, rng: Random) -> bytes | None:
        claims = [claim.claim_id for claim in self._core.claims.open()]
        node, host = rng.choice((EVIL, EVIL, EVIL, VICTIM, NEW, (f"node-{rng.randrange(20)}", EVIL[1])))
        message = rng.choice((*of_agent(node, host, rng.choice([*claims, "claim-1"])), *of_scheduler(node)))
        return encoded(mutated(message, rng))


class Agent:
    """The core of one agent: nothing is raised, and its claims never take more than it has."""

    def __init__(self, rng: Random) -> None:
        self._now = 100.0
        node, host = VICTIM
        fit = SimFit()
        self._core = AgentCore(node, host, agent_address(host), EPOCH, fit, AgentSettings(), rng, self._now)
        inventories = {"VCPU": Inventory(4, max_unit=4), "MEMORY_MB": Inventory(8192), "DISK_GB": Inventory(100)}
        leaves = {name: leaf for name, leaf in snapshot_of(*VICTIM).leaves.items() if not name.startswith("rp.")}
        for event in (
            agent_events.ChannelChanged(True),
            agent_events.TrackerConnected("tap"),
            agent_events.TrackerReported(leaves, {}, True),
            agent_events.TreeRead((Provider(node, host, None, 1, inventories, frozenset()),), self._now),
            agent_events.AllocationsRead({}, self._now),
        ):
            self._core.step(event, self._now)

    def feed(self, rng: Random) -> bool:
        """One message of a scheduler."""
        self._now += rng.choice((0.0, 0.01, 1.0))
        drawn = rng.choice(of_scheduler(VICTIM[0]))
        if isinstance(drawn, Claim) and rng.random() < 0.7:  # otherwise each is a copy of the first
            drawn = replace(drawn, claim_id=f"claim-{rng.random()}", consumer=f"vm-{rng.random()}")
        message = decoded(mutated(drawn, rng))
        if message is None:
            return False
        self._core.step(agent_events.MessagesArrived((message,), self._now), self._now)
        pending = self._core.ledger.pending.values()
        taken = sum(held.claim.allocations.get(VICTIM[0], {}).get("VCPU", 0) for held in pending)
        if taken > 4:
            raise Violated(f"claims of {taken} VCPU are accepted on 4")
        return True


TARGETS: Mapping[str, Callable[[Random], Target]] = {
    "codec": Codec, "envelopes": Envelopes, "window": Window, "scheduler": Scheduler, "agent": Agent,
    "records": Records, "page": Page, "connections": Connections,
}  # fmt: skip


def scheduler_keys() -> HostKeys:
    """Those of a scheduler."""
    return HostKeys(HostKeysMode.REQUIRE, MasterKeys(parse_keyring(f"one:{MASTER.hex()}")))


def agent_keys(host: str) -> HostKeys:
    """Those of a host."""
    return HostKeys(HostKeysMode.REQUIRE, parse_agent_keys(agent_line("one", MASTER, host), host))


def encoded(message: Message) -> bytes | None:
    """Its body; None if it cannot be sent."""
    try:
        return encode(message)
    except (UnsendableMessage, AttributeError, TypeError):  # the last two: a field of another type than declared
        return None


def decoded(message: Message) -> Message | None:
    """What a receiver reads of it; None if it cannot be sent, or is refused."""
    body = encoded(message)
    try:
        return None if body is None else decode(body)
    except RemoteProtocolError:
        return None


class AcceptAll:
    """A ``HostJudge`` that is never asked, because no request arrives."""

    def verify(self, *_: Any) -> Any:
        """See ``HostJudge``."""
        raise Violated("a request was decided, and none arrived")


class Wire:
    """An endpoint whose messages the target writes itself."""

    address = "ssched.scheduler.a"
    receive: Receive

    has_more = False

    def start(self, receive: Receive, changed: ConnectionChanged) -> None:
        """See ``bus.Endpoint``."""
        self.receive = receive

    def broadcast(self, body: bytes) -> bool:
        """See ``bus.Endpoint``."""
        return True

    def broadcast_to_schedulers(self, body: bytes) -> bool:
        """See ``bus.Endpoint``."""
        return True

    def cast(self, address: str, body: bytes, returned: Callable[[], None] | None = None) -> bool:
        """See ``bus.Endpoint``."""
        return True

    def close(self) -> None:
        """See ``bus.Endpoint``."""
