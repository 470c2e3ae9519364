# SPDX-License-Identifier: Apache-2.0
"""MessagePipe: how an agent tells the schedulers what changes on its node.

Theory of operation
===================
The pipe knows two pictures of the node: what was published, and what has changed since.  A change
that comes after ``flush_interval_s`` of quiet leaves at once; what follows is merged (the last value
of a leaf wins) and leaves when the interval is over.  A value that is back where it was published
sends nothing.  So memory and traffic are bounded by the number of leaves and by time, never by the
number of changes.

A sequence is given to each increment *before* it is sent, and never again: what a failed send lost,
receivers see as a gap, and the ring of recent increments replays it.  A snapshot flushes first, so
that a snapshot at sequence n holds everything up to n.

The pipe sends nothing itself: ``poll`` returns what is to be broadcast now, ``next_deadline_s`` says
when to poll again.

================  ===========================================================================
a change          is compared with what was published; a claim that came and went within one
                  flush is still told as ended, because its scheduler waits for that
poll              increments if changes are due, a beat if it is due
take_snapshot     flushes, then a picture of everything
since, news       what a resync or a verdict replays, None where the ring no longer holds all
================  ===========================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, Final

from shared_scheduler.protocol import fields, limits
from shared_scheduler.protocol.digest import claim_hash, consumer_hash, leaf_hash
from shared_scheduler.protocol.errors import UnsendableMessage
from shared_scheduler.protocol.fields import FieldError
from shared_scheduler.protocol.messages import (
    Beat,
    Consumer,
    Goodbye,
    Increment,
    Leaf,
    Snapshot,
)
from shared_scheduler.protocol.ring import ReplayRing
from shared_scheduler.protocol.split import ENVELOPE_MAX_BYTES, Changes, entry_size, split

#: What one node may have of each kind.
ENTRIES_OF_NODE_MAX: Final[Mapping[str, int]] = {
    "leaf": limits.LEAVES_PER_NODE_MAX,
    "consumer": limits.CONSUMERS_PER_NODE_MAX,
    "claim": limits.CLAIMS_PER_NODE_MAX,
}


class MessagePipe:
    """The pipe of one node in one epoch.

    ``now`` is in seconds of a monotonic clock.  Values are checked and copied as they come in:
    ``UnsendableMessage`` names the leaf, and nothing of it is kept.
    """

    def __init__(
        self,
        node: str,
        host: str,
        epoch: int,
        rng: Random,
        *,
        flush_interval_s: float = limits.FLUSH_INTERVAL_S,
        beat_interval_s: float = limits.BEAT_INTERVAL_S,
        body_max_bytes: int = limits.INCREMENT_BODY_MAX_BYTES,
    ) -> None:
        if epoch < 1:
            raise UnsendableMessage(f"epoch {epoch}", f"pipe of node {node}", "epochs start at 1")
        self.node: Final = node
        self.host: Final = host
        self.epoch: Final = epoch
        #: of the newest increment; 0 before the first
        self.sequence = 0
        #: over everything published
        self.digest = 0
        self._rng = rng
        self._flush_interval_s = flush_interval_s
        self._beat_interval_s = beat_interval_s
        self._body_max_bytes = body_max_bytes
        self._leaves: dict[str, Leaf] = {}
        self._consumers: dict[str, Consumer] = {}
        self._claims: dict[str, str] = {}
        self._changes = Changes()
        self._ring = ReplayRing()
        self._flush_at_s = float("-inf")  # not before
        self._beat_at_s: float | None = None

    # --- changes -----------------------------------------------------------------------------

    def set_leaf(self, name: str, value: Leaf) -> None:
        """A leaf's value now; None where it is gone."""
        checked = self._checked("leaf", _checked_leaf, name, value)
        self._note("leaf", self._changes.leaves, self._leaves, name, checked)

    def set_leaves(self, leaves: Mapping[str, Leaf]) -> None:
        """Several leaves; the others stay as they are."""
        for name, value in leaves.items():
            self.set_leaf(name, value)

    def replace_leaves(self, prefix: str, leaves: Mapping[str, Leaf]) -> None:
        """These are all leaves whose names start with ``prefix``; others of it are gone."""
        self.set_leaves(leaves)
        known = [*self._leaves, *self._changes.leaves]
        for name in known:
            if name.startswith(prefix) and name not in leaves:
                self.set_leaf(name, None)

    def set_consumer(self, consumer: str, value: Consumer | None) -> None:
        """A consumer's part in this node now; None where it has none any more."""
        checked = self._checked("consumer", _checked_consumer, consumer, value)
        self._note("consumer", self._changes.consumers, self._consumers, consumer, checked)

    def set_claim(self, claim_id: str, consumer: str | None) -> None:
        """A pending claim; None once it has ended."""
        checked = self._checked("claim", _checked_claim, claim_id, consumer)
        if checked is None and claim_id in self._changes.claims:
            self._changes.claims[claim_id] = None  # came and went: told all the same
        else:
            self._note("claim", self._changes.claims, self._claims, claim_id, checked)

    def _checked(self, kind: str, check: Any, key: Any, value: Any) -> Any:
        try:
            checked = check(key, value)
            size = entry_size(key, checked) + ENVELOPE_MAX_BYTES
            if size > self._body_max_bytes:
                raise FieldError(f"{size} bytes, an increment may have {self._body_max_bytes}")
        except FieldError as problem:
            raise self._unsendable(kind, key, str(problem)) from None
        return checked

    def _note(
        self, kind: str, changes: dict[str, Any], published: Mapping[str, Any], key: str, value: Any
    ) -> None:
        """Remember a change, or that there is none any more."""
        if published.get(key) == value:
            changes.pop(key, None)
            return
        is_new = value is not None and key not in published and key not in changes
        if is_new and len(published) + len(changes) >= ENTRIES_OF_NODE_MAX[kind]:
            self._check_room(kind, changes, published, key)
        changes[key] = value

    def _check_room(
        self, kind: str, changes: Mapping[str, Any], published: Mapping[str, Any], key: str
    ) -> None:
        """Both what will be published and what waits to be are bounded."""
        most = ENTRIES_OF_NODE_MAX[kind]
        gone = sum(value is None and name in published for name, value in changes.items())
        added = sum(value is not None and name not in published for name, value in changes.items())
        if len(published) - gone + added >= most or len(changes) >= 2 * most:
            raise self._unsendable(kind, key, f"more than {most} of its kind")

    def _unsendable(self, kind: str, key: object, problem: str) -> UnsendableMessage:
        return UnsendableMessage(problem, f"node {self.node}, {kind} {str(key)[:80]!r}")

    @property
    def has_changes(self) -> bool:
        """Is there anything that was not published yet?"""
        return bool(self._changes)

    # --- what goes out -------------------------------------------------------------------------

    def next_deadline_s(self) -> float:
        """When ``poll`` has something to send, as far as is known now."""
        beat_at_s = self._beat_at_s if self._beat_at_s is not None else float("-inf")
        return min(beat_at_s, self._flush_at_s) if self._changes else beat_at_s

    def poll(self, now: float) -> tuple[Increment | Beat, ...]:
        """What is to be broadcast now, in this order."""
        out: tuple[Increment | Beat, ...] = ()
        if self._changes and now >= self._flush_at_s:
            out = self.flush(now)
        if self._beat_at_s is None:
            self._plan_beat(now)
        elif now >= self._beat_at_s:
            self._plan_beat(now)
            out = (*out, self.beat())
        return out

    def flush(self, now: float) -> tuple[Increment, ...]:
        """Publish all changes now; nothing if there are none."""
        if not self._changes:
            return ()
        self._flush_at_s = now + self._flush_interval_s
        pieces = split(
            self._changes, self.node, self.epoch, self.sequence + 1, self._body_max_bytes
        )
        for increment, size_bytes in pieces:
            self.sequence = increment.sequence
            self._publish(increment)
            self._ring.append(increment, size_bytes)
        self._changes = Changes()
        return tuple(increment for increment, _ in pieces)

    def take_snapshot(self, now: float) -> tuple[tuple[Increment, ...], Snapshot]:
        """Increments to broadcast first, then a snapshot of everything they lead to."""
        flushed = self.flush(now)
        picture = Snapshot(
            self.node,
            self.epoch,
            self.sequence,
            self.host,
            dict(self._leaves),
            dict(self._consumers),
            dict(self._claims),
            self.digest,
        )
        return flushed, picture

    def beat(self) -> Beat:
        """What was published so far, in one number."""
        return Beat(self.node, self.epoch, self.sequence, self.host, self.digest)

    def beat_within(self, now: float, spread_s: float) -> None:
        """Somebody asked for a beat: send the next one at a random moment within ``spread_s``."""
        wanted_s = now + self._rng.uniform(0.0, spread_s)
        if self._beat_at_s is None or wanted_s < self._beat_at_s:
            self._beat_at_s = wanted_s

    def say_goodbye(self, now: float) -> tuple[Increment | Goodbye, ...]:
        """The last changes and the last message of this epoch."""
        flushed = self.flush(now)
        return (*flushed, Goodbye(self.node, self.epoch, self.sequence))

    def _plan_beat(self, now: float) -> None:
        spread = 1 + limits.BEAT_JITTER * (2 * self._rng.random() - 1)
        self._beat_at_s = now + self._beat_interval_s * spread

    def _publish(self, increment: Increment) -> None:
        for name, value in increment.leaves.items():
            self.digest ^= leaf_hash(name, self._leaves.get(name)) ^ leaf_hash(name, value)
            _set_or_drop(self._leaves, name, value)
        for name, consumer in increment.consumers.items():
            before = self._consumers.get(name)
            self.digest ^= consumer_hash(name, before) ^ consumer_hash(name, consumer)
            _set_or_drop(self._consumers, name, consumer)
        for name, claimed in increment.claims.items():
            self.digest ^= claim_hash(name, self._claims.get(name)) ^ claim_hash(name, claimed)
            _set_or_drop(self._claims, name, claimed)

    # --- replay --------------------------------------------------------------------------------

    def since(self, epoch: int, sequence: int) -> tuple[Increment, ...] | None:
        """All increments after ``sequence``; None where only a snapshot helps."""
        if epoch != self.epoch or sequence > self.sequence:
            return None
        return self._ring.since(sequence, self.sequence)

    def news(self, epoch: int, sequence: int) -> tuple[Increment, ...] | None:
        """Like ``since``, and None too where it is more than a verdict may carry."""
        found = self.since(epoch, sequence)
        if found is None or len(found) > limits.VERDICT_NEWS_MAX_MESSAGES:
            return None
        if self._ring.size_since(sequence) > limits.VERDICT_NEWS_MAX_BYTES:
            return None
        return found

    def validate(self) -> None:
        """Raise AssertionError where an invariant is broken: for tests and the simulator."""
        self._ring.validate(self.sequence)
        for changed, published in self._pairs():
            assert all(key not in published or published[key] != v for key, v in changed.items())

    def _pairs(self) -> Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        yield self._changes.leaves, self._leaves
        yield self._changes.consumers, self._consumers
        yield self._changes.claims, self._claims


def _set_or_drop(published: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        published.pop(key, None)
    else:
        published[key] = value


def _checked_leaf(name: Any, value: Any) -> Leaf:
    fields.leaf_name(name)
    return fields.leaf(value)


def _checked_consumer(consumer: Any, value: Any) -> Consumer | None:
    fields.identifier(consumer)
    if value is None:
        return None
    allocations, member = fields.write_consumer(value)
    return Consumer(allocations, member)


def _checked_claim(claim_id: Any, consumer: Any) -> Any:
    fields.identifier(claim_id)
    return None if consumer is None else fields.identifier(consumer)
