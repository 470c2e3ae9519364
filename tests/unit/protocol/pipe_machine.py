# SPDX-License-Identifier: Apache-2.0
"""The pipe as a machine that hypothesis drives, against plain dictionaries."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.codec import decode, encode
from shared_scheduler.protocol.messages import Heartbeat, Increment
from shared_scheduler.protocol.pipe import MessagePipe
from tests.unit.protocol.copies import NODE, Copy, consumers, names, uuids, values


class PipeMachine(RuleBasedStateMachine):
    """A pipe compared with plain dictionaries of the true state and of the published state."""

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
                assert message == Heartbeat(NODE, 1, self.told.position[1], "h", self.told.digest())

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
