# SPDX-License-Identifier: Apache-2.0
"""A tiny language in which stories about one node and its schedulers are told.

A script is text: a story in comments, then commands, each followed by ``----`` and what it prints, up
to an empty line.  Nothing moves by itself but what ``wait`` says: messages lie on the wire until the
script delivers, loses or doubles them.  ``SCENARIO_REWRITE=1`` writes what the commands print into
the scripts; read the difference before you commit it.

=============================  ===============================================================
``schedulers s1 s2``           who listens
``agent start [epoch=N]``      a new life of the agent: it says hello and broadcasts a snapshot
``agent leave``              a clean shutdown
``set cn.a=1 numa.0=none``     the node changes; the pipe sends what is due
``consumer u1 VCPU=2``         a consumer comes (``gone``: it goes)
``claim c1 u1``                a claim is accepted (``ended``: it has ended)
``heartbeat``, ``snapshot``         the agent broadcasts one now
``wait 0.2``                   time passes; timers fire, nothing is delivered
``flow 30``                    time passes in a kind world: everything is delivered at once
``wire``                       what is on its way
``deliver WORDS``              messages whose label has all these words arrive, oldest first; a
                               number as first word takes so many; without words all do
``lose``, ``double WORDS``     the same, but they vanish, or arrive and stay
``sign``                       from now on both sides sign, and take nothing else
``forge s1 cn.a=7``            somebody else speaks for the node, to s1
``spoil HOW WORDS``            bytes change on the way: ``cut``, ``padded`` (too large), ``newer``
                               (of a version that nobody speaks yet)
``reconnect s1``               the scheduler's channel was away
``rot s1 cn.a=7``              a bit flips in its copy
``forget s1``                  it drops its copy
``show``                       what each scheduler has
``check``                      does each scheduler hold the truth?
=============================  ===============================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.codec import decode, encode
from shared_scheduler.protocol.digest import digest_of
from shared_scheduler.protocol.errors import RemoteProtocolError
from shared_scheduler.protocol.messages import (
    Consumer,
    Heartbeat,
    Hello,
    Increment,
    Leave,
    Message,
    Resync,
    Role,
    Snapshot,
)
from shared_scheduler.protocol.pipe import MessagePipe
from shared_scheduler.protocol.resync_turns import ResyncTurns
from shared_scheduler.protocol.signing import Signer, Signing, parse_keyring
from shared_scheduler.protocol.window import MessageWindow, Outcome
from tests.scenario.stage import Flight, Stage

NODE = "node-1"
PARTS = ("leaves", "consumers", "claims")


@dataclass
class Scheduler:
    """A window and the copy that it feeds."""

    name: str
    window: MessageWindow
    turns: ResyncTurns
    leaves: dict[str, Any] = field(default_factory=dict)
    consumers: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)

    def digest(self) -> int:
        return digest_of(self.leaves, self.consumers, self.claims)

    def apply(self, message: Snapshot | Increment) -> None:
        for part in PARTS:
            mine, news = getattr(self, part), getattr(message, part)
            if isinstance(message, Snapshot):
                mine.clear()
            for key, value in news.items():
                mine.pop(key, None)
                if value is not None:
                    mine[key] = value


class World(Stage):
    """What the commands of a script act upon."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0
        self.pipe: MessagePipe | None = None
        self.schedulers: dict[str, Scheduler] = {}
        self.signer = Signer()

    def validate(self) -> None:
        for scheduler in self.schedulers.values():
            scheduler.window.validate()

    def send(self, sender: str, receiver: str, message: Message) -> None:
        body = self.signer.seal(encode(message))
        self.wire.append(Flight(sender, receiver, describe(message), body))

    # --- the agent -------------------------------------------------------------------------------

    def do_agent(self, what: str, epoch: str = "") -> None:
        if what == "leave":
            self.broadcast(*self.the_pipe.leave(self.now))
            self.pipe = None
            return
        assert what == "start", what
        self.epoch = int(epoch.removeprefix("epoch=")) if epoch else self.epoch + 1
        self.pipe = MessagePipe(NODE, "compute-1", self.epoch, Random(self.epoch))
        self.pipe.set_leaf("agent.ready", True)
        hello = Hello(Role.AGENT, "agent", self.epoch, NODE, "compute-1")
        _, snapshot = self.pipe.take_snapshot(self.now)
        self.pipe.poll(self.now)
        self.broadcast(hello, snapshot)

    @property
    def the_pipe(self) -> MessagePipe:
        assert self.pipe is not None, "no agent lives"
        return self.pipe

    def do_set(self, *changes: str) -> None:
        for name, value in pairs(changes):
            self.the_pipe.set_leaf(name, value)
        self.poll()

    def do_consumer(self, uuid: str, *amounts: str) -> None:
        gone = amounts == ("gone",)
        self.the_pipe.set_consumer(uuid, None if gone else Consumer({NODE: dict(pairs(amounts))}))
        self.poll()

    def do_claim(self, claim_id: str, consumer: str) -> None:
        self.the_pipe.set_claim(claim_id, None if consumer == "ended" else consumer)
        self.poll()

    def do_heartbeat(self) -> None:
        self.broadcast(self.the_pipe.heartbeat())

    def do_snapshot(self) -> None:
        flushed, snapshot = self.the_pipe.take_snapshot(self.now)
        self.broadcast(*flushed, snapshot)

    def poll(self) -> None:
        if self.pipe is not None:
            self.broadcast(*self.pipe.poll(self.now))

    def broadcast(self, *messages: Message) -> None:
        for message in messages:
            self.out.append(f"agent says {describe(message)}")
            for name in self.schedulers:
                self.send("agent", name, message)

    def answer(self, ask: Resync) -> None:
        """What the agent does with a resync."""
        if self.pipe is None:
            return
        if ask.epoch > self.epoch:
            self.out.append(f"agent learns of epoch {ask.epoch}")
            self.do_agent("start", f"epoch={ask.epoch + 1}")
            return
        replay = self.pipe.since(ask.epoch, ask.after_sequence)
        messages: tuple[Message, ...] = replay or ()
        if replay is None:
            flushed, snapshot = self.pipe.take_snapshot(self.now)
            self.broadcast(*flushed)
            messages = (snapshot,)
        for message in messages:
            self.out.append(f"agent answers {ask.scheduler} with {describe(message)}")
            self.send("agent", ask.scheduler, message)

    # --- the schedulers --------------------------------------------------------------------------

    def do_schedulers(self, *names: str) -> None:
        for name in names:
            turns = ResyncTurns(str)
            self.schedulers[name] = Scheduler(name, MessageWindow(NODE, Random(name), turns), turns)

    def do_reconnect(self, name: str) -> None:
        self.schedulers[name].window.reconnected(self.now)
        self.show(self.schedulers[name])

    def do_forget(self, name: str) -> None:
        scheduler = self.schedulers[name]
        scheduler.window.forget(self.now)
        for part in PARTS:
            getattr(scheduler, part).clear()
        self.show(scheduler)

    def do_rot(self, name: str, *changes: str) -> None:
        self.schedulers[name].leaves.update(pairs(changes))

    def arrive(self, flight: Flight) -> None:
        try:
            message = decode(self.signer.open(flight.cargo))
        except RemoteProtocolError as problem:
            self.out.append(f"{flight.receiver} refuses {type(problem).__name__}: {problem}")
            return
        if isinstance(message, Resync):
            self.answer(message)
            return
        assert isinstance(message, Hello | Snapshot | Increment | Heartbeat | Leave)
        scheduler = self.schedulers[flight.receiver]
        before = scheduler.window.freshness
        outcome = scheduler.window.receive(message, self.now, scheduler.digest)
        self.out.append(f"{scheduler.name} gets {describe(message)}: {verb(outcome)}")
        self.carry_out(scheduler, outcome)
        self.note_freshness(scheduler, before)

    def carry_out(self, scheduler: Scheduler, outcome: Outcome) -> None:
        for message in outcome.apply:
            scheduler.apply(message)
        if outcome.resync is not None:
            wish = outcome.resync
            ask = Resync(NODE, scheduler.name, wish.epoch, wish.after_sequence)
            self.out.append(f"{scheduler.name} asks for {describe(ask)}")
            self.send(scheduler.name, "agent", ask)

    def note_freshness(self, scheduler: Scheduler, before: object) -> None:
        if scheduler.window.freshness is not before:
            self.out.append(f"{scheduler.name} is {scheduler.window.freshness}")

    # --- strangers and faults on the way -----------------------------------------------------------

    def do_sign(self) -> None:
        self.signer = signer_with("ours")

    def do_forge(self, name: str, *changes: str) -> None:
        pipe = self.the_pipe
        forged = Increment(NODE, pipe.epoch, pipe.sequence + 1, dict(pairs(changes)))
        body = signer_with("theirs").seal(encode(forged)) if self.signs else encode(forged)
        self.wire.append(Flight("stranger", name, describe(forged), body))

    @property
    def signs(self) -> bool:
        return self.signer.mode is Signing.ENFORCE

    def do_spoil(self, how: str, *words: str) -> None:
        for flight in self.chosen(words):
            flight.cargo = SPOILS[how](flight.cargo)

    # --- time ------------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        moments = [s.window.next_deadline_s() for s in self.schedulers.values()]
        moments += [s.turns.next_s(self.now) for s in self.schedulers.values()]
        moments.append(self.pipe.next_deadline_s() if self.pipe is not None else None)
        return min((moment for moment in moments if moment is not None), default=float("inf"))

    def tick(self) -> None:
        self.poll()
        for scheduler in self.schedulers.values():
            before = scheduler.window.freshness
            self.carry_out(scheduler, scheduler.window.on_tick(self.now))
            if scheduler.turns.next(self.now) is not None:
                self.carry_out(scheduler, scheduler.window.on_turn(self.now))
            self.note_freshness(scheduler, before)

    # --- what can be seen ------------------------------------------------------------------------

    def do_show(self) -> None:
        for scheduler in self.schedulers.values():
            self.show(scheduler)

    def show(self, scheduler: Scheduler) -> None:
        window = scheduler.window
        position = f"{window.epoch}.{window.sequence}" if window.sequence is not None else "nothing"
        state = f"{scheduler.name}: {window.freshness} ({window.phase}), holds {position}"
        self.out.append(f"{state}, lag {window.lag}, {window.held} early")

    def do_check(self) -> None:
        _, truth = self.the_pipe.take_snapshot(self.now)
        for scheduler in self.schedulers.values():
            false = [p for p in PARTS if getattr(scheduler, p) != getattr(truth, p)]
            verdict = f"is wrong about {', '.join(false)}" if false else "holds the truth"
            self.out.append(f"{scheduler.name} {verdict}")


#: what can become of bytes on their way
SPOILS: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda body: body[:-1],
    "padded": lambda body: body + bytes(limits.BODY_MAX_BYTES),
    "newer": lambda body: body[:1] + b"\x7f" + body[2:],
}


def signer_with(key: str) -> Signer:
    """One that signs with this key, and takes nothing else."""
    return Signer(Signing.ENFORCE, parse_keyring(f"{key}:{key.encode().hex() * 16}"))


def pairs(words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """``a=1 b=none`` as names and values."""
    for word in words:
        name, _, text = word.partition("=")
        yield name, None if text == "none" else json.loads(text)


def describe(message: Message) -> str:
    """A message in a few words; those that have a position show it as epoch.sequence."""
    kind = type(message).__name__.lower()
    if isinstance(message, Resync):
        after = f"after {message.epoch}.{message.after_sequence}"
        return f"resync {after if message.epoch else 'snapshot'}"
    if isinstance(message, Hello):
        return f"hello {message.epoch}"
    assert isinstance(message, Snapshot | Increment | Heartbeat | Leave)
    text = f"{kind} {message.epoch}.{message.sequence}"
    return f"{text} {contents(message)}" if isinstance(message, Increment) else text


def contents(increment: Increment) -> str:
    """What changed, in braces."""
    parts = [f"{name}={json.dumps(value)}" for name, value in increment.leaves.items()]
    parts += [f"{uuid}{' gone' if c is None else ''}" for uuid, c in increment.consumers.items()]
    parts += [f"{claim}{' ended' if c is None else f' for {c}'}" for claim, c in increment.claims.items()]
    return "{" + ", ".join(parts) + "}"


def verb(outcome: Outcome) -> str:
    """What a window does with a message."""
    if not outcome.apply:
        return "applies nothing"
    return "applies " + ", ".join(f"{type(m).__name__.lower()} {m.epoch}.{m.sequence}" for m in outcome.apply)
