# SPDX-License-Identifier: Apache-2.0
"""MessageWindow: orders the messages of one node, and detects missing ones.

Theory of operation
===================
An agent numbers what it publishes, so a receiver that has applied sequence n can apply only n + 1.  For each message
that arrives, the window returns the snapshots and increments to apply now, in order, and sometimes a wish to ask the
agent for a resync.  It never applies messages out of order and never skips a missing one.

* An early message (n + 2 or later) is held, within bounds of number, bytes and time.  For ``hold_s`` the missing
  message may only be late; after that the window asks for a replay.
* A heartbeat names the newest sequence, which reveals a lost *last* message, and the digest, which reveals that the
  copy is wrong although no message is missing.  The digest of the copy is computed only when a heartbeat names the
  sequence of the copy and was not compared before, or not for ``verify_again_s``.  Windows whose messages are in order
  share a bucket for that, because the nodes of a large cloud that start together would take seconds of CPU time.
* A newer epoch, in any message, makes the copy useless; a snapshot is needed.  Until it arrives, increments are held,
  because they may follow it.  Messages of an older epoch change nothing.
* Epochs distinguish two runs of an agent, but do not show which of them is the last.  An agent that has lost its memory
  while its clock was set back goes on in an older epoch, and a late message of the run that it has forgotten is newer.
  So the agent is asked for what follows the copy if an epoch is heard that is older than ours, but not older than those
  that were followed before, except by its Leave.  A window without a copy asks for a snapshot first.  In our epoch the
  agent answers with a replay or a heartbeat, in an older one it exceeds ours.  A Leave ends its own epoch only, because
  the agent may start again in a later one that is older than ours, too.  As soon as a message of our epoch follows one
  of those epochs, their other messages are only late.
* A snapshot covers everything up to its sequence.  A snapshot that is older than the copy, or older than the copy that
  the caller has dropped, is ignored.
* Requests for a resync: one is in flight for each node.  It is repeated after ``resync_timeout_s`` plus exponential
  back-off with full jitter.  All windows of a scheduler take turns (``protocol/resync_turns.py``).
* Before silence: an agent whose heartbeat is overdue (after the part ``limits.ASKED_AFTER`` of ``silent_after_s``) is
  asked for a replay of what follows the copy, ``limits.ASKS_BEFORE_SILENT`` times.  If nothing follows, it answers with
  a heartbeat.  So one lost heartbeat makes no node silent, and heartbeats can be rare.
* An operator may distrust a copy: a snapshot is asked for at once, and replaces the copy even if it is not newer.  No
  other message ends that, and an agent that was silent meanwhile is asked when it is heard again.
* Silence: an agent without a message for ``silent_after_s`` is asked nothing; its next message, of any type, shows
  whether the copy is still valid.  If a message after such a silence has an *older* epoch (the clock of the agent was
  set back, or its state was lost), the agent is asked to exceed our epoch.  If our epoch is above
  ``limits.EPOCH_ASKED_MAX``, which agents refuse to exceed, a sender used the name of the agent: our epoch is given up,
  and the one of the message is followed.
* If the heartbeats of an agent name older sequences than the copy for ``BEHIND_S``, the copy is wrong: the agent uses
  an epoch a second time, or another sender used its name.  It is asked to exceed our epoch.  So is an agent that is
  asked for something else already, because its snapshots are older than the copy, too, and are ignored.

The window handles sequences, not contents: the caller applies what the window returns, in that order.

States and transitions are a table in ``protocol/phases.py``; the code has no others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import ceil
from random import Random
from typing import Final

from shared_scheduler.protocol import codec, limits
from shared_scheduler.protocol.backoff import Backoff
from shared_scheduler.protocol.digest import told_digest
from shared_scheduler.protocol.errors import MisroutedMessage
from shared_scheduler.protocol.messages import Heartbeat, Hello, Increment, Leave, Snapshot
from shared_scheduler.protocol.phases import (
    ANSWERS,
    ASKING,
    FRESHNESS,
    TRANSITIONS,
    Cause,
    WindowFreshness,
    WindowPhase,
)
from shared_scheduler.protocol.rate_limits import TokenBucket
from shared_scheduler.protocol.resync_turns import ResyncTurns

__all__ = [
    "NOTHING",
    "Cause",
    "MessageWindow",
    "NodeMessage",
    "Outcome",
    "OwnDigest",
    "ResyncWish",
    "WindowCounters",
    "WindowFreshness",
    "WindowPhase",
    "WindowTimes",
]

#: Heartbeats that are older than the copy for this time were not merely delayed or duplicated.
BEHIND_S = limits.HEARTBEAT_INTERVAL_S / 2
#: Comparisons of digests of one node: a heartbeat comes every 15 s, and a digest of a large row takes ten milliseconds.
COMPARISONS_PER_S, COMPARISONS_BURST = 0.5, 5

#: Phases in which a copy that an operator distrusts has to be asked for again.
_NOT_ASKED = frozenset({WindowPhase.IN_ORDER, WindowPhase.UNVERIFIED})

#: The messages that a window handles.
NodeMessage = Hello | Snapshot | Increment | Heartbeat | Leave

#: Computes the digest of the caller's copy of the node; called only when it is needed.
OwnDigest = Callable[[], int]


@dataclass(frozen=True, slots=True)
class ResyncWish:
    """A resync to request: replay after ``after_sequence`` of ``epoch``; epoch 0 requests a snapshot.

    ``recheck``: the agent reads Placement before it answers.
    """

    epoch: int
    after_sequence: int
    recheck: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """Messages to apply in order, and then a resync to request, if any."""

    apply: tuple[Snapshot | Increment, ...] = ()
    resync: ResyncWish | None = None


NOTHING: Final = Outcome()

#: the time of a request that waits
WHEN_IT_IS_ITS_TURN: Final = float("inf")


@dataclass(frozen=True, slots=True)
class WindowTimes:
    """The times of a window, in seconds; ``limits`` explains each."""

    hold_s: float = limits.HOLD_S
    gap_max_s: float = limits.GAP_MAX_S
    resync_timeout_s: float = limits.RESYNC_TIMEOUT_S
    backoff: Backoff = limits.RESYNC_BACKOFF
    silent_after_s: float = limits.SILENT_AFTER_S
    verify_again_s: float = limits.VERIFY_AGAIN_S


@dataclass(slots=True)
class WindowCounters:
    """Counts of events since the start.  All windows of a scheduler may share one object."""

    increments_applied: int = 0
    snapshots_applied: int = 0
    duplicates: int = 0
    old_epochs: int = 0
    old_snapshots: int = 0
    early: int = 0
    early_dropped: int = 0
    gaps: int = 0
    new_epochs: int = 0
    digests_equal: int = 0
    digests_different: int = 0
    resyncs_asked: int = 0
    resyncs_delayed: int = 0
    asked_whether_there: int = 0
    silences: int = 0
    epochs_given_up: int = 0
    epochs_in_doubt: int = 0

    def as_dict(self) -> dict[str, int]:
        """Name -> count, for metrics."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class EarlyMessages:
    """Increments of one epoch that a window holds until missing ones arrive, bounded in number and bytes."""

    __slots__ = ("_held", "_sizes", "size_bytes")

    def __init__(self) -> None:
        self._held: dict[int, Increment] = {}
        self._sizes: dict[int, int] = {}
        #: the encoded size of all held messages
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def newest(self) -> int:
        """The highest held sequence; 0 if none."""
        return max(self._held, default=0)

    @property
    def oldest(self) -> int:
        """The lowest held sequence; 0 if none."""
        return min(self._held, default=0)

    def hold(self, message: Increment, keep_oldest: bool) -> int:
        """Hold a message; returns the number of messages that were dropped to stay within bounds.

        ``keep_oldest``: drop the newest ones (a replay sends them again), otherwise the oldest ones (a snapshot
        covers them).
        """
        if message.sequence in self._held:
            return 0
        size = len(codec.encode(message))
        self._held[message.sequence] = message
        self._sizes[message.sequence] = size
        self.size_bytes += size
        dropped = 0
        while len(self._held) > limits.HELD_MAX_MESSAGES or self.size_bytes > limits.HELD_MAX_BYTES:
            self._remove(self.newest if keep_oldest else self.oldest)
            dropped += 1
        return dropped

    def take_after(self, sequence: int) -> list[Increment]:
        """Remove and return the messages that follow ``sequence`` without a gap; older ones are dropped."""
        if not self._held:
            return []
        for old in [held for held in self._held if held <= sequence]:
            self._remove(old)
        run = []
        while sequence + 1 in self._held:
            sequence += 1
            run.append(self._remove(sequence))
        return run

    def clear(self) -> None:
        """Drop all messages."""
        self._held.clear()
        self._sizes.clear()
        self.size_bytes = 0

    def _remove(self, sequence: int) -> Increment:
        self.size_bytes -= self._sizes.pop(sequence)
        return self._held.pop(sequence)


class MessageWindow:
    """The window of one node; the docstring of the module explains it.

    All windows of a scheduler share ``rng`` and ``turns``.  ``now`` is in seconds of a monotonic clock; it is an
    argument of every method that needs it.
    """

    __slots__ = (
        "_all_comparisons",
        "_ask_at_s",
        "_asks",
        "_behind",
        "_closed_epoch",
        "_comparisons",
        "_distrusted",
        "_dropped_at",
        "_early",
        "_epoch_before",
        "_gap_ends_s",
        "_heard_at_s",
        "_in_doubt",
        "_mismatches",
        "_newest",
        "_overdue_asks",
        "_patient_until_s",
        "_recheck",
        "_rng",
        "_surpass_again_s",
        "_times",
        "_turns",
        "_verified",
        "_verify_again_s",
        "counters",
        "epoch",
        "node",
        "phase",
        "sequence",
    )

    def __init__(
        self,
        node: str,
        rng: Random,
        turns: ResyncTurns,
        times: WindowTimes | None = None,
        counters: WindowCounters | None = None,
        patient_until_s: float = float("-inf"),
        all_comparisons: TokenBucket | None = None,
    ) -> None:
        """``patient_until_s``: request nothing before, because a Hello has just asked all agents for a snapshot.

        ``all_comparisons``: the bucket of the comparisons of all windows whose messages are in order.
        """
        self.node: Final = node
        self.phase = WindowPhase.NEW
        #: the epoch of the copy; 0 before the first message
        self.epoch = 0
        #: the newest applied sequence of that epoch; None if there is no copy
        self.sequence: int | None = None
        self.counters = counters if counters is not None else WindowCounters()
        self._rng = rng
        self._turns = turns
        self._all_comparisons = all_comparisons
        self._times = times if times is not None else WindowTimes()
        self._patient_until_s = patient_until_s
        self._early = EarlyMessages()
        self._newest = 0  # the highest sequence of this epoch that is known to exist
        self._dropped_at = 0  # the sequence of the copy when it was dropped
        self._closed_epoch = 0  # the agent sent a Leave; messages of this epoch are ignored
        self._epoch_before = 0  # the first epoch since the one that was followed before that may not be over; 0: none
        self._in_doubt = False  # whether that one, or one since then, was heard after all messages of ours
        self._verified: tuple[int, int] | None = None  # (sequence, digest) that were equal ...
        self._verify_again_s = 0.0  # ... and need no comparison until then
        self._heard_at_s = float("-inf")
        #: the sequence that heartbeats do not reach, and since when; None: they do
        self._behind: tuple[int, float] | None = None
        self._surpass_again_s = float("-inf")  # when the agent may be asked to exceed an epoch again
        self._gap_ends_s: float | None = None
        self._ask_at_s: float | None = None
        self._asks = 0  # requests without an answer
        self._mismatches = 0  # in a row
        self._distrusted = False  # a snapshot replaces the copy even if it is not newer
        self._recheck = False  # the next request for a snapshot is the first since then
        self._comparisons: TokenBucket | None = None  # created with the first one
        self._overdue_asks = 0  # since the last message

    # --- state -------------------------------------------------------------------------------

    @property
    def freshness(self) -> WindowFreshness:
        """The freshness of the copy, for the choice of hosts."""
        return FRESHNESS[self.phase]

    @property
    def lag(self) -> int:
        """The number of sequences that are known to exist and not applied."""
        return max(0, self._newest - (self.sequence or 0))

    @property
    def held(self) -> int:
        """The number of early messages that are held."""
        return len(self._early)

    @property
    def is_distrusted(self) -> bool:
        """Whether no snapshot has arrived since an operator distrusted the copy."""
        return self._distrusted

    @property
    def heard_at_s(self) -> float:
        """When the last message of the node arrived; minus infinity if none did."""
        return self._heard_at_s

    def is_first_request_due(self, now: float) -> bool:
        """Whether a message is missing for which nobody was asked yet, and it is time to ask."""
        return self.phase is WindowPhase.GAP and not self._asks and self._ask_at_s is not None and self._ask_at_s <= now

    def next_deadline_s(self) -> float | None:
        """When ``on_tick`` must be called; None if only a message can change anything."""
        moments = [self._ask_at_s, self._gap_ends_s]
        if self.phase not in (WindowPhase.NEW, WindowPhase.SILENT):
            moments.append(self._overdue_at_s())
        return min((moment for moment in moments if moment is not None), default=None)

    def _overdue_at_s(self) -> float:
        """When the agent is asked next whether it is there; after the last time it is silent.

        The first of these moments is a multiple of half the time between them, so that the windows of many nodes need
        one tick together.
        """
        silent_s = self._times.silent_after_s
        between_s = (1 - limits.ASKED_AFTER) * silent_s / limits.ASKS_BEFORE_SILENT
        if self._overdue_asks >= limits.ASKS_BEFORE_SILENT:
            return self._heard_at_s + silent_s
        if self._overdue_asks:
            return self._heard_at_s + limits.ASKED_AFTER * silent_s + self._overdue_asks * between_s
        grain_s = between_s / 2
        return ceil((self._heard_at_s + limits.ASKED_AFTER * silent_s) / grain_s) * grain_s

    # --- input -------------------------------------------------------------------------------

    def receive(self, message: NodeMessage, now: float, own_digest: OwnDigest) -> Outcome:
        """Handle one message of this node."""
        if message.node != self.node:
            raise MisroutedMessage(f"a message of node {message.node!r}", f"window of {self.node!r}")
        if message.epoch < self.epoch or message.epoch <= self._closed_epoch:
            return self._take_old_epoch(message, now, own_digest)
        self._heard_at_s, self._overdue_asks = now, 0
        if self._in_doubt and message.epoch == self.epoch:
            self._epoch_before, self._in_doubt = 0, False
        applied: tuple[Snapshot | Increment, ...] = ()
        match message:
            case Increment():
                applied = self._take_increment(message, now)
            case Snapshot():
                applied = self._take_snapshot(message, now)
            case Heartbeat():
                self._take_heartbeat(message, now, own_digest)
                if self._stays_behind(message, now):
                    return self._ask_to_surpass(self.epoch + 1, now)
            case Leave():
                self._take_leave(message, now)
            case Hello():
                self._take_hello(message, now)
        if self._distrusted and self.phase in _NOT_ASKED:
            self._step_distrusted(now)  # what has arrived is not the snapshot
        return self._outcome(applied, now)

    def on_tick(self, now: float) -> Outcome:
        """Handle the passing of time: detect silence, give up a gap, request a resync."""
        silent_at_s = self._heard_at_s + self._times.silent_after_s
        if self.phase not in (WindowPhase.NEW, WindowPhase.SILENT) and now >= silent_at_s:
            self.counters.silences += 1
            self._step(Cause.SILENCE, now)
        elif self._gap_ends_s is not None and now >= self._gap_ends_s:
            self._early.clear()
            self._step(Cause.EXPIRED, now)
        elif self.phase not in (WindowPhase.NEW, WindowPhase.SILENT) and now >= self._overdue_at_s():
            return self._ask_whether_there(now)
        return self._outcome((), now)

    def _ask_whether_there(self, now: float) -> Outcome:
        """Ask an overdue agent for what follows the copy; a window that asks for something else does that."""
        while self._overdue_asks < limits.ASKS_BEFORE_SILENT and now >= self._overdue_at_s():
            self._overdue_asks += 1
        if self.phase in ASKING or self.sequence is None:
            return self._outcome((), now)
        if not self._turns.take(self.node, now):
            return NOTHING
        self.counters.asked_whether_there += 1
        return Outcome(resync=ResyncWish(self.epoch, self.sequence))

    def on_turn(self, now: float) -> Outcome:
        """Request the resync for which the node has waited, if one is needed now."""
        if self._ask_at_s is not None:
            self._ask_at_s = max(now, self._patient_until_s)
        outcome = self._outcome((), now)
        self._turns.leave(self.node)  # it needs no turn, or not yet
        return outcome

    def be_patient(self, until_s: float) -> None:
        """Request nothing before ``until_s``: a Hello has just asked all agents for a snapshot or a heartbeat."""
        self._patient_until_s = until_s
        if self._ask_at_s is not None:
            self._ask_at_s = max(self._ask_at_s, until_s)

    def reconnected(self, now: float) -> None:
        """Mark the copy as unverified: messages may have been lost while the channel was disconnected."""
        self._verified = None
        self._step(Cause.RECONNECTED, now)

    def forget(self, now: float) -> None:
        """Note that the caller has dropped its copy and reads the node elsewhere: a snapshot is needed."""
        self._dropped_at = max(self._dropped_at, self.sequence or 0)
        self.sequence = None
        self._verified = None
        self._step(Cause.FORGOTTEN, now)

    def distrust(self, now: float) -> Outcome:
        """Note that an operator distrusts the copy, and ask for a snapshot; the copy may be used until it arrives.

        The first request makes the agent read Placement, too; an agent that cannot do that answers the next one.
        An agent that has not been heard, or is silent, is not asked.
        """
        self._verified = None
        self._step_distrusted(now)
        if self.phase in ASKING:
            self._distrusted = self._recheck = True
            if self._ask_at_s != WHEN_IT_IS_ITS_TURN:
                self._ask_at_s = max(now, self._patient_until_s)
        return self._outcome((), now)

    def _step_distrusted(self, now: float) -> None:
        is_behind = self.phase is WindowPhase.UNVERIFIED and self.lag > 0
        self._step(Cause.AHEAD if is_behind else Cause.DISTRUSTED, now)

    # --- one method for each message -------------------------------------------------------------

    def _take_increment(self, message: Increment, now: float) -> tuple[Increment, ...]:
        if self._knows_no_state_of(message.epoch):
            self._begin_epoch(message.epoch, message.sequence)
            self._hold(message)
            self._step(Cause.NO_STATE, now)
            return ()
        assert self.sequence is not None
        if message.sequence <= self.sequence:
            return self._drop_duplicate(now)
        self._newest = max(self._newest, message.sequence)
        if message.sequence > self.sequence + 1:
            self._hold(message)
            self._step(Cause.AHEAD, now)
            return ()
        return self._apply_next(message, now)

    def _drop_duplicate(self, now: float) -> tuple[()]:
        self.counters.duplicates += 1
        self._step(Cause.HEARD, now)
        return ()

    def _apply_next(self, message: Increment, now: float) -> tuple[Increment, ...]:
        applied = (message, *self._early.take_after(message.sequence))
        self.sequence = applied[-1].sequence
        self.counters.increments_applied += len(applied)
        whole = self.sequence >= self._newest
        self._step(Cause.APPLIED_ALL if whole else Cause.APPLIED_SOME, now)
        return applied

    def _take_snapshot(self, message: Snapshot, now: float) -> tuple[Snapshot | Increment, ...]:
        if message.epoch > self.epoch:
            self._begin_epoch(message.epoch, message.sequence)
        elif not self._is_needed(message):
            self.counters.old_snapshots += 1
            self._step(Cause.NO_STATE if self.sequence is None else Cause.HEARD, now)
            return ()
        # If no answer filled the gap, the snapshot decides which sequences exist.
        gave_up = self.phase is WindowPhase.LOST and self.sequence is not None
        heard_of = 0 if gave_up else self._newest
        followers = self._early.take_after(message.sequence)
        self.sequence = followers[-1].sequence if followers else message.sequence
        self._newest = max(self.sequence, self._early.newest, heard_of)
        self._verified = None
        self._distrusted = self._recheck = False
        self._ask_at_s = None
        self.counters.snapshots_applied += 1
        self.counters.increments_applied += len(followers)
        whole = self.sequence >= self._newest
        self._step(Cause.SNAPSHOT_ALL if whole else Cause.SNAPSHOT_SOME, now)
        return (message, *followers)

    def _is_needed(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot of our epoch is newer than the copy, or equally new and needed."""
        if self.sequence is None:
            return snapshot.sequence >= self._dropped_at
        if snapshot.sequence > self.sequence:
            return True
        as_new = snapshot.sequence == self.sequence
        return as_new and (self._distrusted or self.phase not in (WindowPhase.IN_ORDER, WindowPhase.GAP))

    def _take_heartbeat(self, heartbeat: Heartbeat, now: float, own_digest: OwnDigest) -> None:
        if self._knows_no_state_of(heartbeat.epoch):
            self._begin_epoch(heartbeat.epoch, heartbeat.sequence)
            self._step(Cause.NO_STATE, now)
            return
        assert self.sequence is not None
        self._newest = max(self._newest, heartbeat.sequence)
        if heartbeat.sequence > self.sequence:
            self._step(Cause.AHEAD, now)
        elif heartbeat.sequence < self.sequence or self.sequence < self._newest:
            self._step(Cause.HEARD, now)
        else:
            self._step(self._compare(heartbeat, now, own_digest), now)

    def _compare(self, heartbeat: Heartbeat, now: float, own_digest: OwnDigest) -> Cause:
        if self._distrusted:
            return Cause.HEARD  # whatever the digest is, a snapshot replaces the copy
        told = (heartbeat.sequence, told_digest(heartbeat))
        if self._verified == told and now < self._verify_again_s:
            return Cause.VERIFIED
        if self._comparisons is None:
            self._comparisons = TokenBucket(COMPARISONS_PER_S, COMPARISONS_BURST)
        if not self._comparisons.take(now):  # first, so that a node takes few of those of all
            return Cause.HEARD
        if self.phase is WindowPhase.IN_ORDER and self._all_comparisons and not self._all_comparisons.take(now):
            return Cause.HEARD
        if own_digest() == told[1]:
            self._verified = told
            self._verify_again_s = now + self._times.verify_again_s
            self._mismatches = 0
            self.counters.digests_equal += 1
            return Cause.VERIFIED
        self._verified = None
        self.counters.digests_different += 1
        return Cause.MISMATCH

    def _take_leave(self, message: Leave, now: float) -> None:
        if message.epoch > self.epoch:
            self._begin_epoch(message.epoch, message.sequence)
        self._closed_epoch = message.epoch
        self._step(Cause.LEAVE, now)

    def _take_hello(self, message: Hello, now: float) -> None:
        if self._knows_no_state_of(message.epoch):
            self._begin_epoch(message.epoch, 0)
            self._step(Cause.NO_STATE, now)
        else:
            self._step(Cause.HEARD, now)

    def _take_old_epoch(self, message: NodeMessage, now: float, own_digest: OwnDigest) -> Outcome:
        """Ignore a message of an old epoch, unless the node has sent nothing else for a long time."""
        self.counters.old_epochs += 1
        silent_at_s = self._heard_at_s + self._times.silent_after_s
        speaks_for_itself = isinstance(message, Heartbeat | Hello)
        if self.phase is not WindowPhase.SILENT and 0 < self._epoch_before <= message.epoch:
            return self._hear_epoch_before(message, now)
        if self.phase is not WindowPhase.SILENT or now < silent_at_s or not speaks_for_itself:
            return NOTHING
        if max(self.epoch, self._closed_epoch) > limits.EPOCH_ASKED_MAX >= message.epoch:
            self.counters.epochs_given_up += 1
            self.epoch, self.sequence, self._closed_epoch = 0, None, 0
            return self.receive(message, now, own_digest)
        surpass = self.epoch + 1 if self._closed_epoch == self.epoch else self.epoch
        return self._ask_to_surpass(surpass, now)

    def _hear_epoch_before(self, message: NodeMessage, now: float) -> Outcome:
        """Ask which of the epochs is of the last run of the agent.

        Without a copy the window asks for a snapshot anyway, so this follows only if that does not help."""
        if isinstance(message, Leave):
            if message.epoch == self._epoch_before:
                self._epoch_before, self._in_doubt = message.epoch + 1, False
            return NOTHING
        self.counters.epochs_in_doubt += not self._in_doubt
        self._in_doubt = True
        if now < self._patient_until_s or (self.sequence is None and not self._asks):
            return NOTHING
        return self._ask_to_surpass(self.epoch, now, self.sequence or 0)

    def _ask_to_surpass(self, epoch: int, now: float, after_sequence: int = 0) -> Outcome:
        if now < self._surpass_again_s or not self._turns.take(self.node, now):
            return NOTHING  # its next heartbeat will follow
        self._surpass_again_s = now + self._times.resync_timeout_s
        self.counters.resyncs_asked += 1
        return Outcome(resync=ResyncWish(epoch, after_sequence))

    def _stays_behind(self, heartbeat: Heartbeat, now: float) -> bool:
        """Whether only heartbeats of older sequences than the copy's have arrived for ``BEHIND_S``."""
        if self.sequence is None or heartbeat.sequence >= self.sequence:
            self._behind = None
            return False
        if self._behind is None or self._behind[0] != self.sequence:
            self._behind = (self.sequence, now)
        return now >= self._behind[1] + BEHIND_S

    # --- transitions -------------------------------------------------------------------------

    def _knows_no_state_of(self, epoch: int) -> bool:
        return epoch > self.epoch or self.sequence is None

    def _begin_epoch(self, epoch: int, newest: int) -> None:
        """Follow this epoch.  If it is followed already, only note ``newest``."""
        if epoch == self.epoch:
            self._newest = max(self._newest, newest)
            return
        assert epoch > self.epoch, "an epoch only grows"
        if self.epoch:
            self.counters.new_epochs += 1
        is_over = 0 < self.epoch == self._closed_epoch
        self._epoch_before, self._in_doubt = (self.epoch + 1 if is_over else self._epoch_before or self.epoch), False
        self.epoch = epoch
        self.sequence = None
        self._dropped_at = 0
        self._newest = newest
        self._verified = None
        self._early.clear()

    def _hold(self, message: Increment) -> None:
        self.counters.early += 1
        # If a snapshot is to come, newer messages are more likely to follow it.
        keep_oldest = self.sequence is not None and self.phase is not WindowPhase.LOST
        self.counters.early_dropped += self._early.hold(message, keep_oldest)

    def _step(self, cause: Cause, now: float) -> None:
        before, after = self.phase, TRANSITIONS[self.phase, cause]
        if cause is Cause.MISMATCH:
            self._mismatches += 1
        if after is not before or cause in ANSWERS:
            self.phase = after
            self._enter(after, now)

    def _enter(self, phase: WindowPhase, now: float) -> None:
        self._gap_ends_s = None
        if phase is WindowPhase.IN_ORDER:
            self._turns.in_flight.end(self.node)
        if phase not in ASKING:
            self._ask_at_s = None
            self._asks = 0
        if phase is WindowPhase.GAP:
            self.counters.gaps += 1
            self._gap_ends_s = now + self._times.gap_max_s
        if phase is WindowPhase.SILENT:
            self._verified = None
            self._early.clear()
        if self._ask_at_s is None:
            self._turns.leave(self.node)
        if phase in ASKING and self._ask_at_s is None:
            self._ask_at_s = self._first_ask_s(phase, now)

    def _first_ask_s(self, phase: WindowPhase, now: float) -> float:
        """When to request a resync first; later each time if the copy differs again right after its snapshot."""
        attempts = self._mismatches - 1 if phase is WindowPhase.DIFFERS else 0
        wait_s = self._times.hold_s + self._jitter_s(attempts)
        return max(now + wait_s, self._patient_until_s)

    def _jitter_s(self, attempts: int) -> float:
        return self._times.backoff.wait_s(self._rng, attempts)

    def _outcome(self, applied: tuple[Snapshot | Increment, ...], now: float) -> Outcome:
        resync = self._ask(now) if self._ask_at_s is not None and now >= self._ask_at_s else None
        if not applied and resync is None:
            return NOTHING
        return Outcome(applied, resync)

    def _ask(self, now: float) -> ResyncWish | None:
        if not self._turns.begin(self.node, now):
            self.counters.resyncs_delayed += 1
            self._ask_at_s = WHEN_IT_IS_ITS_TURN
            return None
        if self.phase is WindowPhase.LOST and self._asks:
            self._early.clear()  # older than the snapshot that will answer this request
        self._asks += 1
        self.counters.resyncs_asked += 1
        self._ask_at_s = now + self._times.resync_timeout_s + self._jitter_s(self._asks)
        if self.phase is WindowPhase.GAP and not self._distrusted:
            assert self.sequence is not None, "a gap needs a copy"
            return ResyncWish(self.epoch, self.sequence)
        recheck, self._recheck = self._recheck, False
        return ResyncWish(0, 0, recheck)

    def validate(self) -> None:
        """Check the invariants, for tests and the simulator.

        :raises AssertionError: when an invariant is broken
        """
        assert self.held <= limits.HELD_MAX_MESSAGES
        assert self._early.size_bytes <= limits.HELD_MAX_BYTES
        assert (self._ask_at_s is not None) == (self.phase in ASKING)
        assert (self._ask_at_s == WHEN_IT_IS_ITS_TURN) == (self.node in self._turns.waiting)
        assert (self._gap_ends_s is not None) == (self.phase is WindowPhase.GAP)
        assert not self.held or self.sequence is None or self._early.oldest > self.sequence + 1
        assert self.phase is not WindowPhase.IN_ORDER or (self.lag == 0 and self.held == 0)
        assert self.phase is not WindowPhase.GAP or self.lag > 0
        assert not self._distrusted or self.phase not in _NOT_ASKED
        assert self.phase in (WindowPhase.NEW, WindowPhase.LOST, WindowPhase.SILENT) or self.sequence is not None
