# SPDX-License-Identifier: Apache-2.0
"""MessageWindow: what a scheduler believes about the messages of one node.

Theory of operation
===================
An agent numbers what it publishes, so a receiver that has applied sequence n can take n + 1 and
nothing else.  For each message that arrives, the window returns the snapshots and
increments that are to be applied now, in order, and sometimes with the wish to ask the agent for a
resync.  It never applies out of order and never steps over a gap.

* A message that is early (n + 2 or later) is held, within bounds of number, bytes and time.  For
  ``hold_s`` the missing one may be merely late; after that the window asks for a replay.
* A heartbeat names the newest sequence, which reveals a lost *last* message, and the digest, which
  reveals that our copy is not what it should be although no message is missing.  The digest of our
  copy is computed only when a heartbeat of the very sequence that we hold has not been compared before,
  or not for ``verify_again_s``.
* A newer epoch makes all that we know history, whatever message brings the news; only a snapshot
  helps then.  Until it comes, increments are held, for they may be what follows it.  Messages of an
  older epoch change nothing.
* A snapshot covers all up to its sequence.  One that is older than what we hold, or held before the
  caller dropped its copy, is dropped.
* Asks: one in flight a node, repeated after ``resync_timeout_s`` plus exponential back-off with full
  jitter, and only with a token of the bucket that all windows of a scheduler share, and a place among
  the asks in flight that they share too.
* Silence: an agent of which nothing is heard for ``silent_after_s`` is asked nothing; its next
  message, heartbeat or not, shows whether our copy still stands.  If what speaks after such a silence is
  an *older* epoch (a clock set back, its memory lost), the agent receives the epoch that it has to exceed.
* An agent whose heartbeats name older sequences than ours for ``BEHIND_S`` is not where we believe: it uses
  our epoch a second time, or another sender wrote in its name.  It is asked to exceed our epoch.

The window knows sequences, not contents: the caller applies what the window returns, in that order.

States and transitions are a table in ``protocol/phases.py``; the code has no others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from random import Random
from typing import Final

from shared_scheduler.protocol import codec, limits
from shared_scheduler.protocol.backoff import Backoff
from shared_scheduler.protocol.digest import told_digest
from shared_scheduler.protocol.errors import MisroutedMessage
from shared_scheduler.protocol.messages import Heartbeat, Hello, Increment, Leave, Snapshot
from shared_scheduler.protocol.phases import ANSWERS, ASKING, FRESHNESS, TRANSITIONS, Cause, Freshness, Phase
from shared_scheduler.protocol.rate_limits import InFlight, TokenBucket

__all__ = [
    "NOTHING",
    "Cause",
    "Freshness",
    "MessageWindow",
    "NodeMessage",
    "Outcome",
    "OwnDigest",
    "Phase",
    "ResyncWish",
    "WindowCounters",
    "WindowTimes",
]

#: Heartbeats that are older than our copy for so long were not just delayed or doubled.
BEHIND_S = limits.HEARTBEAT_INTERVAL_S / 2

#: What a window takes.
NodeMessage = Hello | Snapshot | Increment | Heartbeat | Leave

#: Computes the digest of the caller's copy of the node; called only when it is needed.
OwnDigest = Callable[[], int]


@dataclass(frozen=True, slots=True)
class ResyncWish:
    """Ask the agent: replay after ``after_sequence`` of ``epoch``; epoch 0 wants a snapshot."""

    epoch: int
    after_sequence: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What to do now: apply these in order, then perhaps ask."""

    apply: tuple[Snapshot | Increment, ...] = ()
    resync: ResyncWish | None = None


NOTHING: Final = Outcome()


@dataclass(frozen=True, slots=True)
class WindowTimes:
    """The patience of a window, in seconds; see ``limits`` for what each means."""

    hold_s: float = limits.HOLD_S
    gap_max_s: float = limits.GAP_MAX_S
    resync_timeout_s: float = limits.RESYNC_TIMEOUT_S
    backoff: Backoff = limits.RESYNC_BACKOFF
    silent_after_s: float = limits.SILENT_AFTER_S
    verify_again_s: float = limits.VERIFY_AGAIN_S


@dataclass(slots=True)
class WindowCounters:
    """What happened, ever.  One object may be shared by all windows of a scheduler."""

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
    silences: int = 0

    def as_dict(self) -> dict[str, int]:
        """Name -> count, for metrics."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class EarlyMessages:
    """Increments of one epoch that a window holds until the missing ones come, bounded in number and bytes."""

    __slots__ = ("_held", "_sizes", "size_bytes")

    def __init__(self) -> None:
        self._held: dict[int, Increment] = {}
        self._sizes: dict[int, int] = {}
        #: of all held messages, as encoded
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def newest(self) -> int:
        """The highest sequence held, 0 if none."""
        return max(self._held, default=0)

    @property
    def oldest(self) -> int:
        """The lowest sequence held, 0 if none."""
        return min(self._held, default=0)

    def hold(self, message: Increment, keep_oldest: bool) -> int:
        """Hold a message; returns how many were dropped to stay within bounds.

        ``keep_oldest``: drop the ones farthest ahead (a replay brings them again), else the oldest
        (a snapshot will cover them).
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
        """The unbroken run that follows ``sequence``, in order; what is not newer is dropped."""
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
        """Drop everything."""
        self._held.clear()
        self._sizes.clear()
        self.size_bytes = 0

    def _remove(self, sequence: int) -> Increment:
        self.size_bytes -= self._sizes.pop(sequence)
        return self._held.pop(sequence)


class MessageWindow:
    """The window of one node, see the top of this module.

    ``rng`` and ``bucket`` are shared by all windows of a scheduler.  ``now`` is in seconds of a
    monotonic clock, and given to every method that needs it.
    """

    __slots__ = (
        "_ask_at_s",
        "_asks",
        "_behind",
        "_bucket",
        "_closed_epoch",
        "_delays",
        "_dropped_at",
        "_early",
        "_gap_ends_s",
        "_heard_at_s",
        "_in_flight",
        "_mismatches",
        "_newest",
        "_patient_until_s",
        "_rng",
        "_times",
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
        bucket: TokenBucket,
        times: WindowTimes | None = None,
        counters: WindowCounters | None = None,
        patient_until_s: float = float("-inf"),
        in_flight: InFlight | None = None,
    ) -> None:
        """``patient_until_s``: ask nothing before, because all agents were asked for a snapshot by a
        Hello just now."""
        self.node: Final = node
        self.phase = Phase.NEW
        #: the epoch that we follow, 0 before we know one
        self.epoch = 0
        #: the newest applied sequence of that epoch, None where we hold no state of it
        self.sequence: int | None = None
        self.counters = counters if counters is not None else WindowCounters()
        self._rng = rng
        self._bucket = bucket
        self._in_flight = in_flight
        self._times = times if times is not None else WindowTimes()
        self._patient_until_s = patient_until_s
        self._early = EarlyMessages()
        self._newest = 0  # the highest sequence of this epoch that is known to exist
        self._dropped_at = 0  # the sequence of this epoch that we held when the copy was dropped
        self._closed_epoch = 0  # left: nothing of it counts any more
        self._verified: tuple[int, int] | None = None  # (sequence, digest) found equal ...
        self._verify_again_s = 0.0  # ... and believed until then
        self._heard_at_s = float("-inf")
        #: the sequence that heartbeats stay behind, and since when; None: none is
        self._behind: tuple[int, float] | None = None
        self._gap_ends_s: float | None = None
        self._ask_at_s: float | None = None
        self._asks = 0  # unanswered so far
        self._delays = 0  # asks in a row for which there was no token
        self._mismatches = 0  # in a row

    # --- what can be seen --------------------------------------------------------------------

    @property
    def freshness(self) -> Freshness:
        """What a policy needs to know."""
        return FRESHNESS[self.phase]

    @property
    def lag(self) -> int:
        """How many sequences are known to exist and not applied."""
        return max(0, self._newest - (self.sequence or 0))

    @property
    def held(self) -> int:
        """How many early messages wait."""
        return len(self._early)

    @property
    def heard_at_s(self) -> float:
        """When the node was heard last; minus infinity if never."""
        return self._heard_at_s

    def next_deadline_s(self) -> float | None:
        """When ``on_tick`` has something to do, None if only a message can change anything."""
        moments = [self._ask_at_s, self._gap_ends_s]
        if self.phase not in (Phase.NEW, Phase.SILENT):
            moments.append(self._heard_at_s + self._times.silent_after_s)
        return min((moment for moment in moments if moment is not None), default=None)

    # --- what comes in -----------------------------------------------------------------------

    def receive(self, message: NodeMessage, now: float, own_digest: OwnDigest) -> Outcome:
        """Take one message of this node."""
        if message.node != self.node:
            raise MisroutedMessage(
                f"a message of node {message.node!r}", f"window of {self.node!r}"
            )
        if message.epoch < self.epoch or message.epoch <= self._closed_epoch:
            return self._take_old_epoch(message, now)
        self._heard_at_s = now
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
        return self._outcome(applied, now)

    def on_tick(self, now: float) -> Outcome:
        """Time passed: notice silence, give up on a gap, ask."""
        silent_at_s = self._heard_at_s + self._times.silent_after_s
        if self.phase not in (Phase.NEW, Phase.SILENT) and now >= silent_at_s:
            self.counters.silences += 1
            self._step(Cause.SILENCE, now)
        elif self._gap_ends_s is not None and now >= self._gap_ends_s:
            self._early.clear()
            self._step(Cause.EXPIRED, now)
        return self._outcome((), now)

    def be_patient(self, until_s: float) -> None:
        """Ask nothing before: all agents were asked for a snapshot or a heartbeat by a Hello just now."""
        self._patient_until_s = until_s
        if self._ask_at_s is not None:
            self._ask_at_s = max(self._ask_at_s, until_s)

    def reconnected(self, now: float) -> None:
        """The channel was away: what we hold may have missed something."""
        self._verified = None
        self._step(Cause.RECONNECTED, now)

    def forget(self, now: float) -> None:
        """The caller dropped its copy (it reads the node from elsewhere): a snapshot is needed."""
        self._dropped_at = max(self._dropped_at, self.sequence or 0)
        self.sequence = None
        self._verified = None
        self._step(Cause.FORGOTTEN, now)

    # --- one method a message ----------------------------------------------------------------

    def _take_increment(self, message: Increment, now: float) -> tuple[Increment, ...]:
        if self._knows_no_state_of(message.epoch):
            self._begin_epoch(message.epoch, message.sequence)
            self._hold(message)
            self._step(Cause.NO_STATE, now)
            return ()
        assert self.sequence is not None
        if message.sequence <= self.sequence:
            self.counters.duplicates += 1
            self._step(Cause.HEARD, now)
            return ()
        self._newest = max(self._newest, message.sequence)
        if message.sequence > self.sequence + 1:
            self._hold(message)
            self._step(Cause.AHEAD, now)
            return ()
        return self._apply_next(message, now)

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
        gave_up = self.phase is Phase.LOST and self.sequence is not None
        heard_of = 0 if gave_up else self._newest
        followers = self._early.take_after(message.sequence)
        self.sequence = followers[-1].sequence if followers else message.sequence
        self._newest = max(self.sequence, self._early.newest, heard_of)
        self._verified = None
        self._ask_at_s = None
        self.counters.snapshots_applied += 1
        self.counters.increments_applied += len(followers)
        whole = self.sequence >= self._newest
        self._step(Cause.SNAPSHOT_ALL if whole else Cause.SNAPSHOT_SOME, now)
        return (message, *followers)

    def _is_needed(self, snapshot: Snapshot) -> bool:
        """Is a snapshot of the epoch that we follow newer than our copy, or as new and wanted?"""
        if self.sequence is None:
            return snapshot.sequence >= self._dropped_at
        if snapshot.sequence > self.sequence:
            return True
        as_new = snapshot.sequence == self.sequence
        return as_new and self.phase not in (Phase.IN_ORDER, Phase.GAP)

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
        told = (heartbeat.sequence, told_digest(heartbeat))
        if self._verified == told and now < self._verify_again_s:
            return Cause.VERIFIED
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

    def _take_old_epoch(self, message: NodeMessage, now: float) -> Outcome:
        """Nothing, unless it is all that the node has said for a long time."""
        self.counters.old_epochs += 1
        silent_at_s = self._heard_at_s + self._times.silent_after_s
        speaks_for_itself = isinstance(message, Heartbeat | Hello)
        if self.phase is not Phase.SILENT or now < silent_at_s or not speaks_for_itself:
            return NOTHING
        surpass = self.epoch + 1 if self._closed_epoch == self.epoch else self.epoch
        return self._ask_to_surpass(surpass, now)

    def _ask_to_surpass(self, epoch: int, now: float) -> Outcome:
        if not self._bucket.take(now):
            return NOTHING  # its next heartbeat comes
        self.counters.resyncs_asked += 1
        return Outcome(resync=ResyncWish(epoch, 0))

    def _stays_behind(self, heartbeat: Heartbeat, now: float) -> bool:
        """Whether nothing but heartbeats of older sequences than ours was heard for ``BEHIND_S``."""
        if self.phase is not Phase.IN_ORDER or self.sequence is None or heartbeat.sequence >= self.sequence:
            self._behind = None
            return False
        if self._behind is None or self._behind[0] != self.sequence:
            self._behind = (self.sequence, now)
        return now >= self._behind[1] + BEHIND_S

    # --- how it is done ----------------------------------------------------------------------

    def _knows_no_state_of(self, epoch: int) -> bool:
        return epoch > self.epoch or self.sequence is None

    def _begin_epoch(self, epoch: int, newest: int) -> None:
        """Follow this epoch.  Where it is the one that we follow already, only note ``newest``."""
        if epoch == self.epoch:
            self._newest = max(self._newest, newest)
            return
        assert epoch > self.epoch, "an epoch only grows"
        if self.epoch:
            self.counters.new_epochs += 1
        self.epoch = epoch
        self.sequence = None
        self._dropped_at = 0
        self._newest = newest
        self._verified = None
        self._early.clear()

    def _hold(self, message: Increment) -> None:
        self.counters.early += 1
        # With a snapshot to come, what is newer is more likely to follow it.
        keep_oldest = self.sequence is not None and self.phase is not Phase.LOST
        self.counters.early_dropped += self._early.hold(message, keep_oldest)

    def _step(self, cause: Cause, now: float) -> None:
        before, after = self.phase, TRANSITIONS[self.phase, cause]
        if cause is Cause.MISMATCH:
            self._mismatches += 1
        if after is not before or cause in ANSWERS:
            self.phase = after
            self._enter(after, now)

    def _enter(self, phase: Phase, now: float) -> None:
        self._gap_ends_s = None
        if phase is Phase.IN_ORDER and self._asks and self._in_flight is not None:
            self._in_flight.end()
        if phase not in ASKING:
            self._ask_at_s = None
            self._asks = self._delays = 0
        if phase is Phase.GAP:
            self.counters.gaps += 1
            self._gap_ends_s = now + self._times.gap_max_s
        if phase is Phase.SILENT:
            self._verified = None
            self._early.clear()
        if phase in ASKING and self._ask_at_s is None:
            self._ask_at_s = self._first_ask_s(phase, now)

    def _first_ask_s(self, phase: Phase, now: float) -> float:
        """A copy that differs again right after its snapshot is asked for ever more rarely."""
        attempts = self._mismatches - 1 if phase is Phase.DIFFERS else 0
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
        if not self._may_ask(now):
            self._delays += 1
            self.counters.resyncs_delayed += 1
            wait_s = self._bucket.wait_s(now) + self._times.hold_s
            self._ask_at_s = now + wait_s + self._jitter_s(self._delays)
            return None
        if self.phase is Phase.LOST and self._asks:
            self._early.clear()  # older than the snapshot that this ask will bring
        self._asks += 1
        self._delays = 0
        self.counters.resyncs_asked += 1
        self._ask_at_s = now + self._times.resync_timeout_s + self._jitter_s(self._asks)
        if self.phase is Phase.GAP:
            assert self.sequence is not None, "a gap is behind something"
            return ResyncWish(self.epoch, self.sequence)
        return ResyncWish(0, 0)

    def _may_ask(self, now: float) -> bool:
        """A token and a place: neither is taken without the other."""
        if self._in_flight is None:
            return self._bucket.take(now)
        if not self._in_flight.has_room(now) or not self._bucket.take(now):
            return False
        return self._in_flight.begin(now)

    def validate(self) -> None:
        """Raise AssertionError where an invariant is broken: for tests and the simulator."""
        assert self.held <= limits.HELD_MAX_MESSAGES
        assert self._early.size_bytes <= limits.HELD_MAX_BYTES
        assert (self._ask_at_s is not None) == (self.phase in ASKING)
        assert (self._gap_ends_s is not None) == (self.phase is Phase.GAP)
        assert not self.held or self.sequence is None or self._early.oldest > self.sequence + 1
        assert self.phase is not Phase.IN_ORDER or (self.lag == 0 and self.held == 0)
        assert self.phase is not Phase.GAP or self.lag > 0
        assert self.phase in (Phase.NEW, Phase.LOST, Phase.SILENT) or self.sequence is not None
