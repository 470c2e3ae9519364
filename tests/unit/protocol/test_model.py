# SPDX-License-Identifier: Apache-2.0
"""Pipe and window as machines that hypothesis drives, each against a model a child could read.

The world of ``Channel`` is as bad as it gets: every message may be lost, doubled, held back for ever
so long, and overtaken; the agent restarts, the scheduler's channel goes away, a leaf of its copy rots.
Whatever happens: nothing is applied out of order, no gap is stepped over, no older epoch changes
anything; and once the world is kind again, the copy becomes the truth by itself.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

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
    Role,
    Snapshot,
)
from shared_scheduler.protocol.pipe import MessagePipe
from shared_scheduler.protocol.window import Freshness, MessageWindow, Outcome

NODE = "node-1"
names = st.sampled_from(["cn.a", "cn.b", "numa.0", "pci.x"])
values = st.one_of(st.none(), st.integers(0, 3), st.lists(st.integers(0, 1), max_size=2))
uuids = st.sampled_from(["u1", "u2", "u3"])
consumers = st.one_of(st.none(), st.builds(Consumer, st.just({NODE: {"VCPU": 1}}), st.booleans()))


class Copy:
    """A scheduler's copy of a node: what the messages say, applied plainly."""

    def __init__(self) -> None:
        self.position = (0, 0)
        self.leaves: dict[str, Any] = {}
        self.consumers: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}

    def apply(self, message: Snapshot | Increment) -> None:
        if isinstance(message, Snapshot):
            assert (message.epoch, message.sequence) >= self.position, "rolled back"
            self.leaves, self.consumers, self.claims = {}, {}, {}
        else:
            assert (message.epoch, message.sequence - 1) == self.position, "out of order"
        self.position = (message.epoch, message.sequence)
        for mine, news in zip(
            self.parts, (message.leaves, message.consumers, message.claims), strict=True
        ):
            for key, value in news.items():
                mine.pop(key, None)
                if value is not None:
                    mine[key] = value

    @property
    def parts(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return self.leaves, self.consumers, self.claims

    def digest(self) -> int:
        return digest_of(*self.parts)


class PipeMachine(RuleBasedStateMachine):
    """A pipe against plain dictionaries of what is true, and of what was told."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.pipe = MessagePipe(NODE, "h", 1, Random(1), body_max_bytes=400)
        self.truth: tuple[dict[str, Any], dict[str, Any], dict[str, Any]] = ({}, {}, {})
        self.told = Copy()
        self.told.position = (1, 0)
        self.log: list[Increment] = []
        self.began: set[str] = set()
        self.ended: set[str] = set()
        self.flushed_at: list[float] = []

    def note(self, part: int, key: str, value: Any) -> None:
        self.truth[part].pop(key, None)
        if value is not None:
            self.truth[part][key] = value

    def hear(self, messages: Any) -> None:
        for message in messages:
            again = decode(encode(message))
            assert again == message
            if isinstance(message, Increment):
                assert message.leaves or message.consumers or message.claims, "an empty increment"
                assert len(encode(message)) <= 400
                self.told.apply(message)
                self.log.append(message)
                self.ended -= {claim for claim, who in message.claims.items() if who is None}
            else:
                assert message == Beat(NODE, 1, self.told.position[1], "h", self.told.digest())

    @rule(name=names, value=values)
    def a_leaf_changes(self, name: str, value: Any) -> None:
        self.pipe.set_leaf(name, value)
        self.note(0, name, value)

    @rule(name=uuids, value=consumers)
    def a_consumer_changes(self, name: str, value: Any) -> None:
        self.pipe.set_consumer(name, value)
        self.note(1, name, value)

    @rule(claim=uuids)
    def a_claim_begins(self, claim: str) -> None:
        self.pipe.set_claim(claim, "u9")
        self.note(2, claim, "u9")
        self.began.add(claim)
        self.ended.discard(claim)

    @rule(claim=uuids)
    def a_claim_ends(self, claim: str) -> None:
        if claim in self.truth[2]:
            self.ended.add(claim)
        self.pipe.set_claim(claim, None)
        self.note(2, claim, None)

    @rule(seconds=st.sampled_from([0.0, 0.03, 0.1, 1.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        before = self.pipe.sequence
        self.hear(self.pipe.poll(self.now))
        if self.pipe.sequence > before:
            if self.flushed_at:
                assert self.now - self.flushed_at[-1] >= limits.FLUSH_INTERVAL_S - 1e-9
            self.flushed_at.append(self.now)
        assert self.pipe.poll(self.now) == (), "the same moment twice sends nothing"

    @rule()
    def a_snapshot_is_taken(self) -> None:
        before = self.pipe.sequence
        flushed, snapshot = self.pipe.take_snapshot(self.now)
        if self.pipe.sequence > before:
            self.flushed_at.append(self.now)
        self.hear(flushed)
        assert (snapshot.leaves, snapshot.consumers, snapshot.claims) == self.truth
        assert snapshot.sequence == self.told.position[1]
        assert snapshot.digest == self.told.digest()
        assert not self.ended, "a claim ended and nobody was told"

    @rule(back=st.integers(0, 9))
    def somebody_missed_some(self, back: int) -> None:
        after = max(0, self.pipe.sequence - back)
        assert list(self.pipe.since(1, after) or ()) == self.log[after:]

    @invariant()
    def is_sane(self) -> None:
        self.pipe.validate()
        assert self.pipe.sequence == len(self.log)
        if not self.pipe.has_changes:
            assert self.told.parts == self.truth


class ChannelMachine(RuleBasedStateMachine):
    """A pipe, a hostile network, a window and the copy that it feeds."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.epoch = 0
        self.wire: list[bytes] = []
        self.copy = Copy()
        self.copy_is_kept = True
        bucket = TokenBucket(limits.SCHEDULER_RESYNCS_PER_S, limits.SCHEDULER_RESYNCS_BURST)
        self.window = MessageWindow(NODE, Random(2), bucket)
        self.asks_on_the_way = 0

    @initialize()
    def the_agent_starts(self) -> None:
        self.restart()

    # --- the agent -------------------------------------------------------------------------------

    def restart(self) -> None:
        self.epoch += 1
        self.pipe = MessagePipe(NODE, "h", self.epoch, Random(self.epoch))
        self.pipe.set_leaf("agent.ready", True)
        self.send(Hello(Role.AGENT, "a", self.epoch, NODE, "h"))
        self.answer_snapshot()

    def send(self, message: Any) -> None:
        self.wire.append(encode(message))

    def answer_snapshot(self) -> None:
        flushed, snapshot = self.pipe.take_snapshot(self.now)
        for message in (*flushed, snapshot):
            self.send(message)

    @rule(name=names, value=values, flush=st.booleans())
    def a_leaf_changes(self, name: str, value: Any, flush: bool) -> None:
        self.pipe.set_leaf(name, value)
        if flush:
            for message in self.pipe.flush(self.now):
                self.send(message)

    @rule(claim=uuids, value=st.none() | st.just("u9"))
    def a_claim_changes(self, claim: str, value: str | None) -> None:
        self.pipe.set_claim(claim, value)
        for message in self.pipe.flush(self.now):
            self.send(message)

    @rule()
    def the_agent_beats(self) -> None:
        self.send(self.pipe.beat())

    @rule()
    def the_agent_restarts(self) -> None:
        self.restart()

    @rule()
    def the_agent_says_goodbye_and_returns(self) -> None:
        for message in self.pipe.say_goodbye(self.now):
            self.send(message)
        self.restart()

    # --- the network -----------------------------------------------------------------------------

    @precondition(lambda self: self.wire)
    @rule(data=st.data())
    def one_arrives(self, data: st.DataObject) -> None:
        self.arrive(self.wire.pop(data.draw(st.integers(0, len(self.wire) - 1))))

    @precondition(lambda self: self.wire)
    @rule(data=st.data())
    def one_arrives_and_stays(self, data: st.DataObject) -> None:
        self.arrive(data.draw(st.sampled_from(self.wire)))

    @precondition(lambda self: self.wire)
    @rule(data=st.data())
    def one_is_lost(self, data: st.DataObject) -> None:
        self.wire.pop(data.draw(st.integers(0, len(self.wire) - 1)))

    @rule()
    def all_arrive(self) -> None:
        while self.wire:
            self.arrive(self.wire.pop(0))

    @rule()
    def the_channel_was_away(self) -> None:
        self.wire.clear()
        self.window.reconnected(self.now)

    # --- the scheduler ---------------------------------------------------------------------------

    def arrive(self, body: bytes) -> None:
        message = decode(body)
        assert isinstance(message, Hello | Snapshot | Increment | Beat | Goodbye)
        position = self.copy.position
        outcome = self.window.receive(message, self.now, self.copy.digest)
        if message.epoch < position[0]:
            assert outcome.apply == (), "an older epoch changed something"
        self.carry_out(outcome)

    def carry_out(self, outcome: Outcome) -> None:
        for message in outcome.apply:
            if not self.copy_is_kept:  # dropped: only a snapshot begins again, at any sequence
                assert isinstance(message, Snapshot)
                self.copy.position, self.copy_is_kept = (0, 0), True
            self.copy.apply(message)
        if outcome.resync is not None:
            self.asks_on_the_way += 1
            self.ask = outcome.resync

    @precondition(lambda self: self.asks_on_the_way)
    @rule(lost=st.booleans())
    def an_ask_arrives_or_not(self, lost: bool) -> None:
        self.asks_on_the_way = 0
        if lost:
            return
        replay = self.pipe.since(self.ask.epoch, self.ask.after_sequence)
        if replay is None:
            self.answer_snapshot()
        for message in replay or ():
            self.send(message)

    @rule(seconds=st.sampled_from([0.01, 0.2, 1.5, 12.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.window.next_deadline_s()) is not None and due <= end:
            self.now = max(self.now, due)
            self.carry_out(self.window.on_tick(self.now))
        self.now = end

    @precondition(lambda self: self.copy.leaves)
    @rule()
    def a_leaf_of_the_copy_rots(self) -> None:
        self.copy.leaves["agent.ready"] = "rotten"

    @precondition(lambda self: self.window.freshness is Freshness.SILENT)
    @rule()
    def the_scheduler_reads_the_node_elsewhere(self) -> None:
        self.copy.leaves.clear()
        self.copy_is_kept = False
        self.window.forget(self.now)

    @rule()
    def the_world_becomes_kind(self) -> None:
        """Nothing is lost from now on: within a bounded number of beats the copy is the truth."""
        asked_before = self.window.counters.resyncs_asked
        # a copy that rotted after it was compared is found out when it is compared again
        for _ in range(8 + int(limits.VERIFY_AGAIN_S / limits.BEAT_INTERVAL_S)):
            self.send(self.pipe.beat())
            self.all_arrive()
            self.time_passes(limits.BEAT_INTERVAL_S)
            if self.asks_on_the_way:
                self.an_ask_arrives_or_not(lost=False)
            self.all_arrive()
            if self.window.freshness is Freshness.FRESH and self.copy.parts == self.published():
                break
        assert self.window.freshness is Freshness.FRESH
        assert self.copy.parts == self.published()
        assert self.window.counters.resyncs_asked - asked_before <= 16, "a storm"

    def published(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        for message in self.pipe.flush(self.now):
            self.arrive(encode(message))
        _, snapshot = self.pipe.take_snapshot(self.now)
        return dict(snapshot.leaves), dict(snapshot.consumers), dict(snapshot.claims)

    @invariant()
    def is_sane(self) -> None:
        self.window.validate()
        if self.window.sequence is not None:
            assert (self.window.epoch, self.window.sequence) == self.copy.position


TestPipe = PipeMachine.TestCase
TestPipe.settings = settings(max_examples=150, stateful_step_count=40)
TestChannel = ChannelMachine.TestCase
TestChannel.settings = settings(max_examples=300, stateful_step_count=50)
