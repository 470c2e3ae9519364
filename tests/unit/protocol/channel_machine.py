# SPDX-License-Identifier: Apache-2.0
"""Pipe, network and window as a machine that hypothesis drives.

The world is as bad as it gets: every message may be lost, doubled, held back for ever so long, and
overtaken; the agent restarts, the scheduler's channel goes away, a leaf of its copy rots.  Whatever
happens: nothing is applied out of order, no gap is stepped over, no older epoch changes anything; and
once the world is kind again, the copy becomes the truth by itself.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.codec import decode, encode
from shared_scheduler.protocol.messages import Heartbeat, Hello, Increment, Leave, Role, Snapshot
from shared_scheduler.protocol.pipe import MessagePipe
from shared_scheduler.protocol.resync_turns import ResyncTurns
from shared_scheduler.protocol.window import MessageWindow, Outcome, WindowFreshness
from tests.unit.protocol.copies import NODE, Copy, names, uuids, values


class ChannelMachine(RuleBasedStateMachine):
    """A pipe, a hostile network, a window and the copy that it feeds."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.epoch = 0
        self.wire: list[bytes] = []
        self.copy = Copy()
        self.copy_is_kept = True
        self.turns = ResyncTurns(str)
        self.window = MessageWindow(NODE, Random(2), self.turns)
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
    def the_agent_sends_heartbeats(self) -> None:
        self.send(self.pipe.heartbeat())

    @rule(overtaken=st.booleans())
    def somebody_else_wanted_a_snapshot(self, overtaken: bool) -> None:
        self.answer_snapshot()
        if overtaken:
            late = self.wire.pop()
            self.a_claim_changes("u1", None if "u1" in self.copy.claims else "u9")
            self.all_arrive()
            self.arrive(late)

    @rule()
    def the_agent_restarts(self) -> None:
        self.restart()

    @rule()
    def the_agent_leaves_and_returns(self) -> None:
        for message in self.pipe.leave(self.now):
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

    @precondition(lambda self: len(self.wire) > 1)
    @rule()
    def the_newest_overtakes(self) -> None:
        self.arrive(self.wire.pop())
        self.all_arrive()

    @rule()
    def all_arrive(self) -> None:
        while self.wire:
            self.arrive(self.wire.pop(0))

    @rule()
    def a_change_is_lost_and_the_first_ask_for_it(self) -> None:
        before = len(self.wire)
        self.a_claim_changes("u2", None if "u2" in self.copy.claims else "u9")
        del self.wire[before:]
        self.arrive(encode(self.pipe.heartbeat()))
        self.time_passes(1.5)
        self.asks_on_the_way = 0

    @rule()
    def the_channel_was_away(self) -> None:
        self.wire.clear()
        self.window.reconnected(self.now)

    # --- the scheduler ---------------------------------------------------------------------------

    def arrive(self, body: bytes) -> None:
        message = decode(body)
        assert isinstance(message, Hello | Snapshot | Increment | Heartbeat | Leave)
        position = self.copy.position
        outcome = self.window.receive(message, self.now, self.copy.digest)
        if message.epoch < position[0]:
            assert outcome.apply == (), "an older epoch changed something"
        self.carry_out(outcome)

    def carry_out(self, outcome: Outcome) -> None:
        for message in outcome.apply:
            if not self.copy_is_kept:  # dropped: only a snapshot begins again, and not an older one
                assert isinstance(message, Snapshot)
                assert (message.epoch, message.sequence) >= self.copy.position
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

    def due_s(self) -> float:
        due = (self.window.next_deadline_s(), self.turns.next_s(self.now))
        return min((at_s for at_s in due if at_s is not None), default=float("inf"))

    @rule(seconds=st.sampled_from([0.01, 0.2, 1.5, 12.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.due_s()) <= end:
            self.now = max(self.now, due)
            self.carry_out(self.window.on_tick(self.now))
            if self.turns.next(self.now) is not None:
                self.carry_out(self.window.on_turn(self.now))
        self.now = end

    @rule()
    def an_operator_distrusts_the_copy(self) -> None:
        self.carry_out(self.window.distrust(self.now))

    @precondition(lambda self: self.copy.leaves)
    @rule()
    def a_leaf_of_the_copy_rots(self) -> None:
        self.copy.leaves["agent.ready"] = "rotten"

    @precondition(lambda self: self.window.freshness is WindowFreshness.SILENT)
    @rule()
    def the_scheduler_reads_the_node_elsewhere(self) -> None:
        self.copy.leaves.clear()
        self.copy_is_kept = False
        self.window.forget(self.now)

    @rule()
    def the_world_becomes_kind(self) -> None:
        """Nothing is lost from now on: within a bounded number of heartbeats the copy is the truth."""
        asked_before = self.window.counters.resyncs_asked
        # a copy that rotted after it was compared is found out when it is compared again
        for _ in range(8 + int(limits.VERIFY_AGAIN_S / limits.HEARTBEAT_INTERVAL_S)):
            self.send(self.pipe.heartbeat())
            self.all_arrive()
            self.time_passes(limits.HEARTBEAT_INTERVAL_S)
            if self.asks_on_the_way:
                self.an_ask_arrives_or_not(lost=False)
            self.all_arrive()
            if self.window.freshness is WindowFreshness.FRESH and self.copy.parts == self.published():
                break
        assert not self.window.is_distrusted, "a snapshot that an operator wants is asked for no more"
        assert self.window.freshness is WindowFreshness.FRESH
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
