# SPDX-License-Identifier: Apache-2.0
"""Bugs that people make in windows and pipes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shared_scheduler.protocol.messages import Heartbeat, Increment
from shared_scheduler.protocol.pipe import MessagePipe, ReplayRing
from shared_scheduler.protocol.window import Cause, MessageWindow, Outcome
from tests.unit.planted.planting import bug
from tests.unit.protocol.channel_machine import ChannelMachine
from tests.unit.protocol.pipe_machine import PipeMachine

# -- the window


@bug(ChannelMachine)
def skip_a_gap(patch: pytest.MonkeyPatch) -> None:
    """An early increment is applied as if nothing were missing."""

    def take(self: MessageWindow, message: Increment, now: float) -> tuple[Increment, ...]:
        if self.sequence is None or message.sequence <= self.sequence:
            return real(self, message, now)
        self._newest = self.sequence = message.sequence
        self._step(Cause.APPLIED_ALL, now)
        return (message,)

    real = MessageWindow._take_increment
    patch.setattr(MessageWindow, "_take_increment", take)


@bug(ChannelMachine)
def apply_twice(patch: pytest.MonkeyPatch) -> None:
    """What was applied already is applied again when it comes again."""

    def take(self: MessageWindow, message: Increment, now: float) -> tuple[Increment, ...]:
        old = self.sequence is not None and message.sequence <= self.sequence
        found = real(self, message, now)
        return (message,) if old else found

    real = MessageWindow._take_increment
    patch.setattr(MessageWindow, "_take_increment", take)


@bug(ChannelMachine)
def ignore_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """A message of an agent's former life is applied if its sequence fits."""

    def receive(self: MessageWindow, message: Any, now: float, own_digest: Any) -> Outcome:
        if isinstance(message, Increment) and message.epoch < self.epoch:
            return Outcome((message,))
        return real(self, message, now, own_digest)

    real = MessageWindow.receive
    patch.setattr(MessageWindow, "receive", receive)


@bug(ChannelMachine)
def let_a_snapshot_roll_back(patch: pytest.MonkeyPatch) -> None:
    """A snapshot is believed however old it is."""
    patch.setattr(MessageWindow, "_is_needed", lambda self, snapshot: True)


@bug(ChannelMachine)
def take_heartbeats_for_granted(patch: pytest.MonkeyPatch) -> None:
    """A heartbeat's digest is not compared: a copy that rots is never found out."""
    patch.setattr(MessageWindow, "_compare", lambda self, heartbeat, now, own_digest: Cause.VERIFIED)


@bug(ChannelMachine)
def miss_a_lost_last_message(patch: pytest.MonkeyPatch) -> None:
    """A heartbeat's sequence is ignored."""

    def take(self: MessageWindow, heartbeat: Heartbeat, now: float, own_digest: Any) -> None:
        if self._knows_no_state_of(heartbeat.epoch):
            real(self, heartbeat, now, own_digest)
        else:
            self._step(Cause.HEARD, now)

    real = MessageWindow._take_heartbeat
    patch.setattr(MessageWindow, "_take_heartbeat", take)


@bug(ChannelMachine)
def ask_only_once(patch: pytest.MonkeyPatch) -> None:
    """An ask that is lost is never repeated."""

    def ask(self: MessageWindow, now: float) -> Any:
        found = real(self, now)
        self._ask_at_s = float("inf")
        return found

    real = MessageWindow._ask
    patch.setattr(MessageWindow, "_ask", ask)


@bug(ChannelMachine)
def forget_what_was_held(patch: pytest.MonkeyPatch) -> None:
    """A gap is filled, and what was held behind it is taken for applied and dropped."""

    def apply(self: MessageWindow, message: Increment, now: float) -> tuple[Increment, ...]:
        return real(self, message, now)[:1]

    real = MessageWindow._apply_next
    patch.setattr(MessageWindow, "_apply_next", apply)


# -- the pipe


@bug(PipeMachine)
def reuse_a_sequence_after_a_failed_send(patch: pytest.MonkeyPatch) -> None:
    """Every third increment "fails", and its number is given again."""

    def flush(self: MessagePipe, now: float) -> tuple[Increment, ...]:
        found = real(self, now)
        if found and self.sequence % 3 == 0:
            self.sequence -= 1
            return tuple(replace(one, sequence=one.sequence - 1) for one in found)
        return found

    real = MessagePipe.flush
    patch.setattr(MessagePipe, "flush", flush)


@bug(PipeMachine)
def forget_an_end(patch: pytest.MonkeyPatch) -> None:
    """A claim that came and went between two flushes is told to nobody."""

    def set_claim(self: MessagePipe, claim_id: str, consumer: str | None) -> None:
        self._merge("claim", self._changes.claims, self._claims, claim_id, consumer)

    patch.setattr(MessagePipe, "set_claim", set_claim)


@bug(PipeMachine)
def keep_a_change_that_was_undone(patch: pytest.MonkeyPatch) -> None:
    """A value that is back where it was leaves the older change in the pipe."""

    def merge(self: Any, kind: str, changes: Any, published: Any, key: str, value: Any) -> None:
        if published.get(key) != value:
            real(self, kind, changes, published, key, value)

    real = MessagePipe._merge
    patch.setattr(MessagePipe, "_merge", merge)


@bug(PipeMachine)
def digest_what_is_gone(patch: pytest.MonkeyPatch) -> None:
    """The digest goes on counting consumers that are gone."""

    def publish(self: MessagePipe, increment: Increment) -> None:
        before = self.digest
        real(self, increment)
        if None in increment.consumers.values():
            self.digest = before

    real = MessagePipe._publish
    patch.setattr(MessagePipe, "_publish", publish)


@bug(PipeMachine)
def replay_one_too_few(patch: pytest.MonkeyPatch) -> None:
    """Who missed some gets all but the first of them."""

    def since(self: ReplayRing, sequence: int, newest: int) -> Any:
        return real(self, sequence + 1, newest) if sequence < newest else ()

    real = ReplayRing.since
    patch.setattr(ReplayRing, "since", since)


@bug(PipeMachine)
def flush_at_every_change(patch: pytest.MonkeyPatch) -> None:
    """The rate is not bounded: each poll sends what is there."""

    def poll(self: MessagePipe, now: float) -> Any:
        self._flush_at_s = now
        return real(self, now)

    real = MessagePipe.poll
    patch.setattr(MessagePipe, "poll", poll)
