# SPDX-License-Identifier: Apache-2.0
"""MessagePipe: how an agent reports the changes of its node to the schedulers.

Theory of operation
===================
The pipe keeps the published state of the node and the changes since.  The first change after ``flush_interval_s``
without changes is sent at once; later changes are merged (the last value of a leaf wins) and sent when the interval is
over.  A value that has returned to its published value is not sent.  Therefore memory and traffic are bounded by the
number of leaves and by time, not by the number of changes.

Each increment gets its sequence *before* it is sent, and a sequence is never used again.  If sending fails, receivers
detect a gap, and the ring of recent increments replays the message.  A snapshot flushes first, so a snapshot at
sequence n contains everything up to n.

The pipe sends nothing itself: ``poll`` returns the messages to broadcast, and ``next_deadline_s`` returns when to poll
again.

================  ===========================================================================
a change          is compared with the published state; a claim that began and ended within
                  one flush is still reported as ended, because its scheduler waits for that
poll              returns increments if changes are due, and a heartbeat if it is due
heartbeats        one ``heartbeat_interval_s`` after the last change reveals that the change was lost; after
                  that, and while changes follow each other, one every ``QUIET_INTERVALS`` of it
tells_of          whether an increment with a claim is due now, which then needs no verdict
take_snapshot     flushes, then returns the whole state
since, news       return the increments for a resync or a verdict; None if the ring does not
                  hold all of them
================  ===========================================================================
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import msgpack

from shared_scheduler.protocol import codec, limits
from shared_scheduler.protocol.backoff import jittered_s
from shared_scheduler.protocol.codec import FieldError
from shared_scheduler.protocol.digest import claim_hash, consumer_hash, group_hash, leaf_hash
from shared_scheduler.protocol.errors import UnsendableMessage
from shared_scheduler.protocol.messages import Consumer, Heartbeat, Increment, Leaf, Leave, Snapshot

#: The envelope of an increment: header, node, epoch, sequence and three map headers.
ENVELOPE_MAX_BYTES = 128
#: The codec bounds both maps of ids in an increment; leaves may use the rest.
ENTRIES_MAX = limits.CLAIMS_PER_NODE_MAX
#: Maximum number of entries of each kind on one node.
ENTRIES_OF_NODE_MAX: Final[Mapping[str, int]] = {
    "leaf": limits.LEAVES_PER_NODE_MAX,
    "consumer": limits.CONSUMERS_PER_NODE_MAX,
    "claim": limits.CLAIMS_PER_NODE_MAX,
}


@dataclass(slots=True)
class Changes:
    """Unpublished changes: the last value of each entry, None if it was removed."""

    leaves: dict[str, Leaf] = field(default_factory=dict)
    consumers: dict[str, Consumer | None] = field(default_factory=dict)
    claims: dict[str, str | None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.leaves) + len(self.consumers) + len(self.claims)


class ReplayRing:
    """Consecutive increments up to the newest, bounded in number and bytes; drops the oldest."""

    __slots__ = ("_entries", "_size_bytes")

    def __init__(self) -> None:
        self._entries: deque[tuple[Increment, int]] = deque()
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, increment: Increment, size_bytes: int) -> None:
        """Add the newest increment; ``size_bytes`` is its encoded size."""
        assert not self._entries or increment.sequence == self._entries[-1][0].sequence + 1
        self._entries.append((increment, size_bytes))
        self._size_bytes += size_bytes
        while self._is_too_large():
            self._size_bytes -= self._entries.popleft()[1]

    def _is_too_large(self) -> bool:
        return len(self._entries) > limits.REPLAY_RING_MAX_MESSAGES or self._size_bytes > limits.REPLAY_RING_MAX_BYTES

    def since(self, sequence: int, newest: int) -> tuple[Increment, ...] | None:
        """All increments after ``sequence`` up to ``newest``; None if some were dropped."""
        missing = newest - sequence
        if missing > len(self._entries):
            return None
        return tuple(self._entries[i][0] for i in range(-missing, 0))

    def size_since(self, sequence: int) -> int:
        """The encoded size of the increments after ``sequence``."""
        return sum(size for increment, size in self._entries if increment.sequence > sequence)

    def validate(self, newest: int) -> None:
        """Check the invariants, for tests and the simulator.

        :raises AssertionError: when an invariant is broken
        """
        assert len(self._entries) <= limits.REPLAY_RING_MAX_MESSAGES
        assert self._size_bytes == sum(size for _, size in self._entries)
        assert not self._entries or self._entries[-1][0].sequence == newest


class MessagePipe:
    """The pipe of one node in one epoch.

    ``now`` is in seconds of a monotonic clock.  Values are checked when they are set: ``UnsendableMessage`` names the
    leaf, and the value is not stored.  Leaves are copied; consumers must not be changed afterwards.
    """

    def __init__(
        self,
        node: str,
        host: str,
        epoch: int,
        rng: Random,
        *,
        flush_interval_s: float = limits.FLUSH_INTERVAL_S,
        heartbeat_interval_s: float = limits.HEARTBEAT_INTERVAL_S,
        body_max_bytes: int = limits.INCREMENT_BODY_MAX_BYTES,
    ) -> None:
        if epoch < 1:
            raise UnsendableMessage(f"epoch {epoch}", f"pipe of node {node}", "epochs start at 1")
        self.node: Final = node
        self.host: Final = host
        self.epoch: Final = epoch
        #: the sequence of the newest increment; 0 before the first
        self.sequence = 0
        #: the digest of the published state, and its part for groups (digest.py)
        self.digest = 0
        self._groups_digest = 0
        self._rng = rng
        self._flush_interval_s = flush_interval_s
        self._heartbeat_interval_s = heartbeat_interval_s
        self._body_max_bytes = body_max_bytes
        self._leaves: dict[str, Leaf] = {}
        self._consumers: dict[str, Consumer] = {}
        self._claims: dict[str, str] = {}
        self._changes = Changes()
        self._ring = ReplayRing()
        self._flush_at_s = float("-inf")  # no flush before this time
        self._heartbeat_at_s: float | None = None
        self._heartbeat_by_s = float("inf")  # no increment puts the next heartbeat off beyond this time

    # --- changes -----------------------------------------------------------------------------

    def set_leaf(self, name: str, value: Leaf) -> None:
        """Set the current value of a leaf; None removes it."""
        checked = self._checked("leaf", _checked_leaf, name, value)
        self._merge("leaf", self._changes.leaves, self._leaves, name, checked)

    def set_consumer(self, consumer: str, value: Consumer | None) -> None:
        """Set the part of a consumer in this node; None removes it."""
        checked = self._checked("consumer", _checked_consumer, consumer, value)
        self._merge("consumer", self._changes.consumers, self._consumers, consumer, checked)

    def set_claim(self, claim_id: str, consumer: str | None) -> None:
        """Add a pending claim; ``consumer`` None ends it."""
        checked = self._checked("claim", _checked_claim, claim_id, consumer)
        if checked is None and claim_id in self._changes.claims:
            self._changes.claims[claim_id] = None  # began and ended within one flush: still reported
        else:
            self._merge("claim", self._changes.claims, self._claims, claim_id, checked)

    def replace(
        self, leaves: Mapping[str, Leaf], consumers: Mapping[str, Consumer], claims: Mapping[str, str]
    ) -> list[UnsendableMessage]:
        """Replace the state of the node.  Only here does an agent compare states.

        Entries that cannot be sent are removed, because an unknown value is better than an old one, and are returned.
        """
        return [
            *self._replace(self.set_leaf, self._changes.leaves, self._leaves, leaves),
            *self._replace(self.set_consumer, self._changes.consumers, self._consumers, consumers),
            *self._replace(self.set_claim, self._changes.claims, self._claims, claims),
        ]

    def _replace(
        self,
        put: Callable[[str, Any], None],
        changes: Mapping[str, Any],
        published: Mapping[str, Any],
        now_is: Mapping[str, Any],
    ) -> Iterator[UnsendableMessage]:
        known = {**published, **changes} if changes else published
        if now_is == known:
            return
        changed = {key: None for key, value in known.items() if value is not None and key not in now_is}
        for key, new in now_is.items():
            old = known.get(key)
            if old is not new and old != new:  # most are the same object
                changed[key] = new
        for key, value in changed.items():
            try:
                put(key, value)
            except UnsendableMessage as error:
                if key in known:  # otherwise its name may be what cannot be sent
                    put(key, None)
                yield error

    def _checked(self, kind: str, check: Any, key: Any, value: Any) -> Any:
        try:
            checked = check(key, value)
            size = entry_size(key, checked) + ENVELOPE_MAX_BYTES
            if size > self._body_max_bytes:
                raise FieldError(f"{size} bytes, an increment may have {self._body_max_bytes}")
        except FieldError as problem:
            raise self._unsendable(kind, key, str(problem)) from None
        return checked

    def _merge(self, kind: str, changes: dict[str, Any], published: Mapping[str, Any], key: str, value: Any) -> None:
        """Merge a change into those that wait, or remove it if the value has returned to the published one."""
        if published.get(key) == value:
            changes.pop(key, None)
            return
        is_new = value is not None and key not in published and key not in changes
        if is_new and len(published) + len(changes) >= ENTRIES_OF_NODE_MAX[kind]:
            self._check_room(kind, changes, published, key)
        changes[key] = value

    def _check_room(self, kind: str, changes: Mapping[str, Any], published: Mapping[str, Any], key: str) -> None:
        """Check the bounds of the published state and of the unpublished changes."""
        most = ENTRIES_OF_NODE_MAX[kind]
        gone = sum(value is None and name in published for name, value in changes.items())
        added = sum(value is not None and name not in published for name, value in changes.items())
        if len(published) - gone + added >= most or len(changes) >= 2 * most:
            raise self._unsendable(kind, key, f"more than {most} of its kind")

    def _unsendable(self, kind: str, key: object, problem: str) -> UnsendableMessage:
        return UnsendableMessage(problem, f"node {self.node}, {kind} {str(key)[:80]!r}")

    @property
    def has_changes(self) -> bool:
        """Whether there are unpublished changes."""
        return bool(self._changes)

    def tells_of(self, claim_id: str, now: float) -> bool:
        """Whether an increment that says that this claim is pending is due now."""
        return self._changes.claims.get(claim_id) is not None and now >= self._flush_at_s

    # --- messages ------------------------------------------------------------------------------

    def next_deadline_s(self) -> float:
        """When ``poll`` will return a message, unless another change is made before."""
        heartbeat_at_s = self._heartbeat_at_s if self._heartbeat_at_s is not None else float("-inf")
        return min(heartbeat_at_s, self._flush_at_s) if self._changes else heartbeat_at_s

    def poll(self, now: float) -> tuple[Increment | Heartbeat, ...]:
        """The messages to broadcast now, in this order."""
        out: tuple[Increment | Heartbeat, ...] = ()
        if self._changes and now >= self._flush_at_s:
            out = self.flush(now)
        if self._heartbeat_at_s is None:
            self._heartbeat_at_s = now + self._soon_s()
            self._heartbeat_by_s = now + limits.QUIET_INTERVALS * self._heartbeat_interval_s
        elif now >= self._heartbeat_at_s:
            self._heartbeat_at_s = self._heartbeat_by_s = now + self._quiet_s()
            out = (*out, self.heartbeat())
        return out

    def flush(self, now: float) -> tuple[Increment, ...]:
        """Publish all changes now; empty if there are none."""
        if not self._changes:
            return ()
        self._flush_at_s = now + self._flush_interval_s
        pieces = split(self._changes, self.node, self.epoch, self.sequence + 1, self._body_max_bytes)
        for increment, size_bytes in pieces:
            self.sequence = increment.sequence
            self._publish(increment)
            self._ring.append(increment, size_bytes)
        self._changes = Changes()
        if self._heartbeat_at_s is not None:  # the node was heard, but perhaps not by everybody
            self._heartbeat_at_s = min(now + self._soon_s(), self._heartbeat_by_s)
        return tuple(increment for increment, _ in pieces)

    def take_snapshot(self, now: float) -> tuple[tuple[Increment, ...], Snapshot]:
        """Increments to broadcast first, and then a snapshot of the state after them."""
        flushed = self.flush(now)
        snapshot = Snapshot(
            self.node,
            self.epoch,
            self.sequence,
            self.host,
            dict(self._leaves),
            dict(self._consumers),
            dict(self._claims),
            self.digest ^ self._groups_digest,
            self._groups_digest,
        )
        return flushed, snapshot

    def heartbeat(self) -> Heartbeat:
        """The heartbeat for the published state."""
        groups = self._groups_digest
        return Heartbeat(self.node, self.epoch, self.sequence, self.host, self.digest ^ groups, groups)

    def heartbeat_within(self, now: float, spread_s: float) -> None:
        """Send the next heartbeat at a random moment within ``spread_s``, because a scheduler asked for one."""
        wanted_s = now + self._rng.uniform(0.0, spread_s)
        if self._heartbeat_at_s is None or wanted_s < self._heartbeat_at_s:
            self._heartbeat_at_s = self._heartbeat_by_s = wanted_s

    def leave(self, now: float) -> tuple[Increment | Leave, ...]:
        """The last changes, and the Leave that ends this epoch."""
        flushed = self.flush(now)
        return (*flushed, Leave(self.node, self.epoch, self.sequence))

    def _soon_s(self) -> float:
        """The time from a change to the heartbeat that reveals its loss."""
        return jittered_s(self._heartbeat_interval_s, limits.HEARTBEAT_JITTER, self._rng)

    def _quiet_s(self) -> float:
        """The time between two heartbeats of a node that changes nothing."""
        longest_s = limits.QUIET_INTERVALS * self._heartbeat_interval_s
        return longest_s * (1 - limits.QUIET_JITTER * self._rng.random())

    def _publish(self, increment: Increment) -> None:
        for name, value in increment.leaves.items():
            self.digest ^= leaf_hash(name, self._leaves.get(name)) ^ leaf_hash(name, value)
            _set_or_drop(self._leaves, name, value)
        for name, consumer in increment.consumers.items():
            before = self._consumers.get(name)
            self.digest ^= consumer_hash(name, before) ^ consumer_hash(name, consumer)
            self._groups_digest ^= _group_part(name, before) ^ _group_part(name, consumer)
            _set_or_drop(self._consumers, name, consumer)
        for name, claimed in increment.claims.items():
            self.digest ^= claim_hash(name, self._claims.get(name)) ^ claim_hash(name, claimed)
            _set_or_drop(self._claims, name, claimed)

    # --- replay --------------------------------------------------------------------------------

    def since(self, epoch: int, sequence: int) -> tuple[Increment, ...] | None:
        """All increments after ``sequence``; None if a snapshot is needed."""
        if epoch != self.epoch or sequence > self.sequence:
            return None
        return self._ring.since(sequence, self.sequence)

    def news(self, epoch: int, sequence: int) -> tuple[Increment, ...] | None:
        """Like ``since``; also None if the increments exceed the bounds of a verdict."""
        found = self.since(epoch, sequence)
        if found is None or len(found) > limits.VERDICT_NEWS_MAX_MESSAGES:
            return None
        if self._ring.size_since(sequence) > limits.VERDICT_NEWS_MAX_BYTES:
            return None
        return found

    def validate(self) -> None:
        """Check the invariants, for tests and the simulator.

        :raises AssertionError: when an invariant is broken
        """
        self._ring.validate(self.sequence)
        for changed, published in self._pairs():
            assert all(key not in published or published[key] != v for key, v in changed.items())

    def _pairs(self) -> Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        yield self._changes.leaves, self._leaves
        yield self._changes.consumers, self._consumers
        yield self._changes.claims, self._claims


def _group_part(name: str, consumer: Consumer | None) -> int:
    return 0 if consumer is None else group_hash(name, consumer.group)


def _set_or_drop(published: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        published.pop(key, None)
    else:
        published[key] = value


def _checked_leaf(name: Any, value: Any) -> Leaf:
    codec.leaf_names.of(name)
    return codec.leaf(value)


def _checked_consumer(consumer: Any, value: Any) -> Consumer | None:
    codec.identifier(consumer)
    if value is None:
        return None
    codec.write_consumer(value)
    checked: Consumer = value  # not copied, because an identical object needs no comparison
    return checked


def _checked_claim(claim_id: Any, consumer: Any) -> Any:
    codec.identifier(claim_id)
    return None if consumer is None else codec.identifier(consumer)


def entry_size(key: str, value: Any) -> int:
    """The size of one entry in an increment, in bytes."""
    wire = codec.write_consumer(value) if isinstance(value, Consumer) else value
    return len(msgpack.packb(key)) + len(msgpack.packb(wire))


def split(changes: Changes, node: str, epoch: int, sequence: int, body_max_bytes: int) -> list[tuple[Increment, int]]:
    """Consecutive increments from ``sequence`` on, each with its size in bytes.

    In nearly all cases there is one.  If there are more, claims and consumers come first and large leaves last, because
    schedulers wait for claims and consumers.  No single entry is too large, because the pipe has refused those.
    """
    whole = _whole(changes, node, epoch, sequence, body_max_bytes)
    if whole is not None:
        return [whole]
    pieces = _pieces(changes, body_max_bytes - ENVELOPE_MAX_BYTES)
    numbered = [
        Increment(node, epoch, number, piece.leaves, piece.consumers, piece.claims)
        for number, piece in enumerate(pieces, sequence)
    ]
    return [(increment, len(codec.encode(increment))) for increment in numbered]


def _whole(changes: Changes, node: str, epoch: int, sequence: int, body_max_bytes: int) -> tuple[Increment, int] | None:
    """All changes in one increment; None if it would be too large."""
    if len(changes) > ENTRIES_MAX:
        return None
    increment = Increment(node, epoch, sequence, changes.leaves, changes.consumers, changes.claims)
    try:
        size = len(codec.encode(increment))
    except UnsendableMessage:
        return None
    return (increment, size) if size <= body_max_bytes else None


def _entries(changes: Changes) -> Iterator[tuple[str, str, Any, int]]:
    """All entries as (field of Changes, key, value, size in bytes)."""
    for kind in ("claims", "consumers", "leaves"):
        for key, value in getattr(changes, kind).items():
            yield kind, key, value, entry_size(key, value)


def _pieces(changes: Changes, room_bytes: int) -> Iterator[Changes]:
    piece, used_bytes = Changes(), 0
    # sorting is stable: kinds in the order of _entries, leaves by size
    for kind, key, value, size in sorted(_entries(changes), key=lambda entry: entry[3] if entry[0] == "leaves" else 0):
        if piece and (used_bytes + size > room_bytes or len(piece) >= ENTRIES_MAX):
            yield piece
            piece, used_bytes = Changes(), 0
        getattr(piece, kind)[key] = value
        used_bytes += size
    yield piece
