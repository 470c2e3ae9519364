# SPDX-License-Identifier: Apache-2.0
"""Changes of a node, and how they become one increment, or several where one would be too large."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgpack

from shared_scheduler.protocol import codec, limits
from shared_scheduler.protocol.errors import UnsendableMessage
from shared_scheduler.protocol.messages import Consumer, Increment, Leaf

#: The envelope of an increment: header, node, epoch, sequence and three map headers.
ENVELOPE_MAX_BYTES = 128
#: Both maps of ids in an increment are bounded by the codec; leaves have the most room.
ENTRIES_MAX = limits.CLAIMS_PER_NODE_MAX


@dataclass(slots=True)
class Changes:
    """What is to be published: the last value of each entry, None where it is gone."""

    leaves: dict[str, Leaf] = field(default_factory=dict)
    consumers: dict[str, Consumer | None] = field(default_factory=dict)
    claims: dict[str, str | None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.leaves) + len(self.consumers) + len(self.claims)


def entry_size(key: str, value: Any) -> int:
    """Bytes that one entry takes in an increment."""
    wire = [value.allocations, value.member] if isinstance(value, Consumer) else value
    return len(msgpack.packb(key)) + len(msgpack.packb(wire))


def split(
    changes: Changes, node: str, epoch: int, sequence: int, body_max_bytes: int
) -> list[tuple[Increment, int]]:
    """Consecutive increments from ``sequence`` on, each with its size in bytes.

    Nearly always one.  Where it takes more, claims and consumers go first and large leaves last, so
    that the first increment tells what schedulers wait for.  No entry alone may be too large; the
    pipe has refused those.
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


def _whole(
    changes: Changes, node: str, epoch: int, sequence: int, body_max_bytes: int
) -> tuple[Increment, int] | None:
    """All changes in one increment, if that is not too large."""
    if len(changes) > ENTRIES_MAX:
        return None
    increment = Increment(node, epoch, sequence, changes.leaves, changes.consumers, changes.claims)
    try:
        size = len(codec.encode(increment))
    except UnsendableMessage:
        return None
    return (increment, size) if size <= body_max_bytes else None


def _entries(changes: Changes) -> Iterator[tuple[str, str, Any, int]]:
    """(field of Changes, key, value, bytes)."""
    for kind in ("claims", "consumers", "leaves"):
        for key, value in getattr(changes, kind).items():
            yield kind, key, value, entry_size(key, value)


def _pieces(changes: Changes, room_bytes: int) -> Iterator[Changes]:
    piece, used_bytes = Changes(), 0
    # sorting is stable: kinds in the order of _entries, leaves by size
    for kind, key, value, size in sorted(
        _entries(changes), key=lambda entry: entry[3] if entry[0] == "leaves" else 0
    ):
        if piece and (used_bytes + size > room_bytes or len(piece) >= ENTRIES_MAX):
            yield piece
            piece, used_bytes = Changes(), 0
        getattr(piece, kind)[key] = value
        used_bytes += size
    yield piece
