# SPDX-License-Identifier: Apache-2.0
"""A tiny language in which stories about one node and its schedulers are told.

A script is text: a story in comments, then commands, each followed by ``----`` and what it prints, up
to an empty line.  Nothing moves by itself but what ``wait`` says: messages lie on the wire until the
script delivers, loses or doubles them.  ``SCENARIO_REWRITE=1`` writes what the commands print into
the scripts; read the difference before you believe it.

=============================  ===============================================================
``schedulers s1 s2``           who listens
``agent start [epoch=N]``      a new life of the agent: it says hello and broadcasts a snapshot
``agent goodbye``              a clean shutdown
``set cn.a=1 numa.0=none``     the node changes; the pipe sends what is due
``consumer u1 VCPU=2``         a consumer comes (``gone``: it goes)
``claim c1 u1``                a claim is accepted (``ended``: it has ended)
``beat``, ``snapshot``         the agent broadcasts one now
``wait 0.2``                   time passes; timers fire, nothing is delivered
``flow 30``                    time passes in a kind world: everything is delivered at once
``wire``                       what is on its way
``deliver WORDS``              messages whose label has all these words arrive, oldest first; a
                               number as first word takes so many; without words all do
``lose``, ``double WORDS``     the same, but they vanish, or arrive and stay
``reconnect s1``               the scheduler's channel was away
``rot s1 cn.a=7``              a bit flips in its copy
``forget s1``                  it drops its copy
``show``                       what each scheduler believes
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
from shared_scheduler.protocol.bucket import TokenBucket
from shared_scheduler.protocol.codec import decode, encode
from shared_scheduler.protocol.digest import digest_of
from shared_scheduler.protocol.messages import (
    Beat,
    Consumer,
    Goodbye,
    Hello,
    Increment,
    Message,
    Resync,
    Role,
    Snapshot,
)
from shared_scheduler.protocol.pipe import MessagePipe
from shared_scheduler.protocol.window import MessageWindow, Outcome

NODE = "node-1"
STEP_S = 0.05  # how often a kind world delivers
PARTS = ("leaves", "consumers", "claims")


@dataclass
class Scheduler:
    """A window and the copy that it feeds."""

    name: str
    window: MessageWindow
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


@dataclass
class Flight:
    """One message on its way, as bytes, so that nothing is shared by accident."""

    sender: str
    receiver: str
    body: bytes

    @property
    def label(self) -> str:
        return f"{self.sender} to {self.receiver}: {describe(decode(self.body))}"


class World:
    """What the commands of a script act upon."""

    def __init__(self) -> None:
        self.now = 0.0
        self.epoch = 0
        self.pipe: MessagePipe | None = None
        self.schedulers: dict[str, Scheduler] = {}
        self.wire: list[Flight] = []
        self.out: list[str] = []

    def run(self, line: str) -> list[str]:
        """Carry out one command; returns what it prints."""
        name, *words = line.split()
        command: Callable[..., None] = getattr(self, f"do_{name}")
        self.out = []
        command(*words)
        for scheduler in self.schedulers.values():
            scheduler.window.validate()
        return self.out

    # --- the agent -------------------------------------------------------------------------------

    def do_agent(self, what: str, epoch: str = "") -> None:
        if what == "goodbye":
            self.broadcast(*self.the_pipe.say_goodbye(self.now))
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

    def do_beat(self) -> None:
        self.broadcast(self.the_pipe.beat())

    def do_snapshot(self) -> None:
        flushed, snapshot = self.the_pipe.take_snapshot(self.now)
        self.broadcast(*flushed, snapshot)

    def poll(self) -> None:
        if self.pipe is not None:
            self.broadcast(*self.pipe.poll(self.now))

    def broadcast(self, *messages: Message) -> None:
        for message in messages:
            self.out.append(f"agent says {describe(message)}")
            self.wire += [Flight("agent", name, encode(message)) for name in self.schedulers]

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
            self.wire.append(Flight("agent", ask.scheduler, encode(message)))

    # --- the schedulers --------------------------------------------------------------------------

    def do_schedulers(self, *names: str) -> None:
        for name in names:
            bucket = TokenBucket(limits.SCHEDULER_RESYNCS_PER_S, limits.SCHEDULER_RESYNCS_BURST)
            self.schedulers[name] = Scheduler(name, MessageWindow(NODE, Random(name), bucket))

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

    def receive(self, flight: Flight) -> None:
        message = decode(flight.body)
        if isinstance(message, Resync):
            self.answer(message)
            return
        assert isinstance(message, Hello | Snapshot | Increment | Beat | Goodbye)
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
            self.wire.append(Flight(scheduler.name, "agent", encode(ask)))

    def note_freshness(self, scheduler: Scheduler, before: object) -> None:
        if scheduler.window.freshness is not before:
            self.out.append(f"{scheduler.name} is {scheduler.window.freshness}")

    # --- the network -----------------------------------------------------------------------------

    def do_wire(self) -> None:
        self.out += [flight.label for flight in self.wire]

    def chosen(self, words: tuple[str, ...]) -> list[Flight]:
        most = len(self.wire)
        if words and words[0].isdigit():
            most, words = int(words[0]), words[1:]
        fitting = [f for f in self.wire if set(words) <= set(f.label.replace(":", "").split())]
        assert fitting, f"nothing on the wire fits {words}"
        return fitting[:most]

    def do_deliver(self, *words: str) -> None:
        for flight in self.chosen(words):
            self.wire.remove(flight)
            self.receive(flight)

    def do_double(self, *words: str) -> None:
        for flight in self.chosen(words):
            self.receive(flight)

    def do_lose(self, *words: str) -> None:
        for flight in self.chosen(words):
            self.wire.remove(flight)
            self.out.append(f"lost: {flight.label}")

    # --- time ------------------------------------------------------------------------------------

    def do_wait(self, seconds: str) -> None:
        end = self.now + float(seconds)
        while (due := self.next_deadline()) <= end:
            self.now = max(self.now, due)
            self.tick()
        self.now = end

    def next_deadline(self) -> float:
        moments = [s.window.next_deadline_s() for s in self.schedulers.values()]
        moments.append(self.pipe.next_deadline_s() if self.pipe is not None else None)
        return min((moment for moment in moments if moment is not None), default=float("inf"))

    def tick(self) -> None:
        self.poll()
        for scheduler in self.schedulers.values():
            before = scheduler.window.freshness
            self.carry_out(scheduler, scheduler.window.on_tick(self.now))
            self.note_freshness(scheduler, before)

    def do_flow(self, seconds: str) -> None:
        end = self.now + float(seconds)
        while self.now < end:
            while self.wire:
                self.receive(self.wire.pop(0))
            self.do_wait(str(min(STEP_S, end - self.now)))
        while self.wire:
            self.receive(self.wire.pop(0))

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
    assert isinstance(message, Snapshot | Increment | Beat | Goodbye)
    text = f"{kind} {message.epoch}.{message.sequence}"
    return f"{text} {contents(message)}" if isinstance(message, Increment) else text


def contents(increment: Increment) -> str:
    """What changed, in braces."""
    parts = [f"{name}={json.dumps(value)}" for name, value in increment.leaves.items()]
    parts += [f"{uuid}{' gone' if c is None else ''}" for uuid, c in increment.consumers.items()]
    parts += [
        f"{claim}{' ended' if c is None else f' for {c}'}" for claim, c in increment.claims.items()
    ]
    return "{" + ", ".join(parts) + "}"


def verb(outcome: Outcome) -> str:
    """What a window does with a message."""
    if not outcome.apply:
        return "applies nothing"
    return "applies " + ", ".join(
        f"{type(m).__name__.lower()} {m.epoch}.{m.sequence}" for m in outcome.apply
    )
