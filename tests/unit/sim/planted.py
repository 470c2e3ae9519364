# SPDX-License-Identifier: Apache-2.0
"""Bugs that people make in systems like this one, each as a small patch of the real code.

The simulator must catch every one of them (``test_planted_bugs.py``): one that survives is a check
that is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from compute_agent.core import AgentCore
from compute_agent.ledger import Ledger
from shared_scheduler.core.alternates import Alternates
from shared_scheduler.core.claims import Claims, ClaimState
from shared_scheduler.core.nodes import Nodes
from shared_scheduler.core.requests import Requests
from shared_scheduler.core.work import Work
from shared_scheduler.protocol.messages import Beat, Increment
from shared_scheduler.protocol.pipe import MessagePipe
from shared_scheduler.protocol.window import Cause, MessageWindow, Outcome
from shared_scheduler.sim.clock import LocalClock
from shared_scheduler.sim.nodes import SimNode
from shared_scheduler.state.overlay import Overlay
from shared_scheduler.state.table import HostTable

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Planted:
    """A bug: what is wrong, the patch, and invariants of which at least one must break."""

    name: str
    patch: Patch
    breaks: frozenset[str]


def bug(*breaks: str) -> Callable[[Patch], Planted]:
    """Make a planted bug of a patch; its docstring says what is wrong."""

    def plant(patch: Patch) -> Planted:
        return Planted(patch.__name__, patch, frozenset(breaks))

    return plant


# -- the window


@bug("no_gap")
def skip_a_gap(patch: pytest.MonkeyPatch) -> None:
    """An early increment is applied as if nothing were missing."""

    def take(self: MessageWindow, message: Increment, now: float) -> tuple[Increment, ...]:
        if self.sequence is None or message.sequence <= self.sequence:
            return real(self, message, now)
        self._newest = message.sequence
        self.sequence = message.sequence
        self._step(Cause.APPLIED_ALL, now)
        return (message,)

    real = MessageWindow._take_increment
    patch.setattr(MessageWindow, "_take_increment", take)


@bug("sequence_grows", "row_is_truth", "no_gap")
def apply_late_duplicates(patch: pytest.MonkeyPatch) -> None:
    """An increment that was applied already is applied again, after newer ones."""

    def take(self: MessageWindow, message: Increment, now: float) -> tuple[Increment, ...]:
        old = self.sequence is not None and message.sequence <= self.sequence
        found = real(self, message, now)
        return (message,) if old else found

    real = MessageWindow._take_increment
    patch.setattr(MessageWindow, "_take_increment", take)


@bug("older_epoch", "sequence_grows", "row_is_truth")
def believe_an_older_epoch(patch: pytest.MonkeyPatch) -> None:
    """A message of an agent's former life is applied."""

    def receive(self: MessageWindow, message: Any, now: float, own_digest: Any) -> Any:
        if isinstance(message, Increment) and message.epoch < self.epoch:
            return Outcome((message,))
        return real(self, message, now, own_digest)

    real = MessageWindow.receive
    patch.setattr(MessageWindow, "receive", receive)


@bug("converged")
def ignore_beats(patch: pytest.MonkeyPatch) -> None:
    """Beats only say that the agent lives: a lost last message is never missed."""

    def take(self: MessageWindow, beat: Beat, now: float, own_digest: Any) -> None:
        if self._knows_no_state_of(beat.epoch):
            real(self, beat, now, own_digest)
        else:
            self._step(Cause.HEARD, now)

    real = MessageWindow._take_beat
    patch.setattr(MessageWindow, "_take_beat", take)


@bug("converged", "caught_up")
def never_ask(patch: pytest.MonkeyPatch) -> None:
    """A gap is noticed, and nobody asks for what is missing."""
    patch.setattr(Nodes, "_ask", lambda self, turn, known, wish: None)


# -- the pipe


@bug("sequence_grows", "row_is_truth")
def reuse_a_sequence(patch: pytest.MonkeyPatch) -> None:
    """Two increments carry the same number, as when a number is only taken after a good send."""

    def flush(self: MessagePipe, now: float) -> tuple[Increment, ...]:
        found = real(self, now)
        if self.sequence == 5 and found:
            return tuple(replace(one, sequence=one.sequence - 1) for one in found)
        return found

    real = MessagePipe.flush
    patch.setattr(MessagePipe, "flush", flush)


@bug("row_is_truth", "converged")
def forget_to_digest_what_is_gone(patch: pytest.MonkeyPatch) -> None:
    """The digest goes on counting consumers that are gone."""

    def publish(self: MessagePipe, increment: Increment) -> None:
        before = self.digest
        real(self, increment)
        if any(value is None for value in increment.consumers.values()):
            self.digest = before

    real = MessagePipe._publish
    patch.setattr(MessagePipe, "_publish", publish)


# -- the agent


@bug("no_overcommit")
def judge_without_pending_claims(patch: pytest.MonkeyPatch) -> None:
    """Claims that are accepted and not built yet are not counted when the next one is judged."""

    def shortage(self: Ledger, claim: Any) -> Any:
        pending, self.pending = self.pending, {}
        try:
            return real(self, claim)
        finally:
            self.pending = pending

    real = Ledger._shortage
    patch.setattr(Ledger, "_shortage", shortage)


@bug("no_overcommit")
def let_a_claim_vanish_at_once(patch: pytest.MonkeyPatch) -> None:
    """A claim that Placement does not hold yet ends at the first look, however young it is."""
    patch.setattr(
        Ledger, "_is_disproved", lambda self, held, started_s, after_s: not self._is_in_placement(held)
    )
    patch.setattr(AgentCore, "_check_at_s", lambda self, oldest_s: oldest_s)


@bug("no_overpinning")
def pin_on_what_the_tracker_says(patch: pytest.MonkeyPatch) -> None:
    """NUMA cells and devices of claims that are not built yet are forgotten at each new count."""

    def count(self: Ledger) -> None:
        real(self)
        for name, value in self._tracker_leaves.items():
            if name.startswith(("numa.", "pci.")):
                self.leaves[name] = value

    real = Ledger._count_again
    patch.setattr(Ledger, "_count_again", count)


@bug("no_orphans")
def never_take_over(patch: pytest.MonkeyPatch) -> None:
    """A claim stays pending after nova-compute has taken it over."""
    patch.setattr(Ledger, "_is_taken_over", lambda self, held: False)


@bug("row_is_truth", "sequence_grows", "converged")
def keep_the_epoch_over_a_restart(patch: pytest.MonkeyPatch) -> None:
    """A new life of an agent counts its messages from the beginning, in the old epoch."""

    def start(self: SimNode) -> None:
        self.kept_epoch = 0
        real(self)

    real = SimNode.start_agent
    patch.setattr(SimNode, "start_agent", start)
    patch.setattr(LocalClock, "wall_ms", 1)


# -- the table


@bug("overlay", "converged")
def forget_a_forget(patch: pytest.MonkeyPatch) -> None:
    """A refused claim stays in the table."""
    patch.setattr(HostTable, "forget", lambda self, claim_id: None)


@bug("overlay")
def lose_claims_at_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    """A snapshot replaces own outstanding claims along with the rest (seed 000)."""

    def load(self: HostTable, node: str, *args: Any, **version: Any) -> None:
        for own in self.outstanding(node):
            self._overlay.forget(own.claim_id)
        real(self, node, *args, **version)

    real = HostTable.load
    patch.setattr(HostTable, "load", load)


@bug("row_is_truth", "converged")
def keep_consumers_that_are_gone(patch: pytest.MonkeyPatch) -> None:
    """A consumer that is gone stays in the row."""

    def apply(self: HostTable, node: str, leaves: Any, consumers: Any, *rest: Any, **at: Any) -> None:
        left = {uuid: one for uuid, one in consumers.items() if one is not None}
        real(self, node, leaves, left, *rest, **at)

    real = HostTable.apply
    patch.setattr(HostTable, "apply", apply)


# -- claims and requests


@bug("written_first")
def answer_before_the_write(patch: pytest.MonkeyPatch) -> None:
    """The conductor gets its answer while Placement is still being asked."""

    def write(self: Claims, turn: Any, claim: Any) -> None:
        real(self, turn, claim)
        if claim.intent.by_agent:
            claim.state = ClaimState.WRITTEN
            self._listen().claim_written(turn, claim)

    real = Claims._write
    patch.setattr(Claims, "_write", write)


@bug("no_orphans", "nothing_left_behind")
def leave_behind_what_was_written(patch: pytest.MonkeyPatch) -> None:
    """What a failed request wrote is not deleted."""

    def delete(self: Claims, turn: Any, claim: Any) -> None:
        self._release(turn, claim)
        self._forget(turn, claim, ClaimState.DELETED)

    patch.setattr(Claims, "_delete", delete)


@bug("one_ending")
def end_a_claim_twice(patch: pytest.MonkeyPatch) -> None:
    """A refusal that is delivered twice ends its claim twice."""

    def forget(self: Claims, turn: Any, claim: Any, ending: ClaimState) -> None:
        real(self, turn, claim, ending)
        if ending is ClaimState.REFUSED:
            self.endings[ending.value] += 1

    real = Claims._forget
    patch.setattr(Claims, "_forget", forget)


@bug("answered_once", "no_request_left")
def ignore_deadlines(patch: pytest.MonkeyPatch) -> None:
    """A request whose verdicts and writes do not come waits for ever."""
    patch.setattr(Requests, "on_timer", lambda self, turn, key: None)
    patch.setattr(Claims, "on_verdict_timer", lambda self, turn, claim_id: None)


@bug("answered_once")
def answer_twice(patch: pytest.MonkeyPatch) -> None:
    """A request is answered once more."""

    def answer(self: Requests, turn: Any, work: Work) -> None:
        real(self, turn, work)
        if work.key % 7 == 0:
            real(self, turn, work)

    real = Requests._answer
    patch.setattr(Requests, "_answer", answer)


@bug("few_snapshots", "quiet")
def never_verify(patch: pytest.MonkeyPatch) -> None:
    """Each beat seems to differ, so that snapshots are asked for again and again."""
    patch.setattr(MessageWindow, "_compare", lambda self, beat, now, own: Cause.MISMATCH)


@bug("visible_once")
def count_on_what_the_base_shows(patch: pytest.MonkeyPatch) -> None:
    """The overlay goes on counting the allocations of a claim that the base shows."""

    def count(self: Overlay, row: Any, claim: Any, sign: int) -> None:
        if sign > 0:
            real(self, row, claim, sign)
        claim.counts_allocations = sign > 0

    real = Overlay._count_allocations
    patch.setattr(Overlay, "_count_allocations", count)


@bug("alternates")
def offer_the_chosen_host_as_alternate(patch: pytest.MonkeyPatch) -> None:
    """Alternates are looked for among all hosts."""
    patch.setattr(Work, "chosen", lambda self: frozenset())
    patch.setattr(Alternates, "_is_current", staticmethod(lambda work: work.alternates is not None))


@bug("bounds")
def go_on_asking(patch: pytest.MonkeyPatch) -> None:
    """A window that has all it wants still plans to ask for a resync."""

    def enter(self: MessageWindow, phase: Any, now: float) -> None:
        real(self, phase, now)
        self._ask_at_s = now + 1.0

    real = MessageWindow._enter
    patch.setattr(MessageWindow, "_enter", enter)


PLANTED = tuple(found for found in list(globals().values()) if isinstance(found, Planted))
