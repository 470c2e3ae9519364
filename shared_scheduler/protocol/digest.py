# SPDX-License-Identifier: Apache-2.0
"""One number for all that is known of a node.

The digest is the XOR of a 64-bit hash of each entry (leaf, consumer, pending claim), so its order
does not matter, and a sender keeps it up to date at the price of the entries that changed: XOR the
old entry's hash out and the new one's in.  A receiver computes it from what it holds, when a heartbeat
of the very sequence it holds comes along.

Groups of consumers have entries of their own, whose XOR travels as ``groups_digest``: the release before knows no
groups, and compares the rest.  Here and in all copies the digest is that of everything; a message's two numbers XORed
are the same (``told_digest``).

An entry's hash is BLAKE2b-64 over canonical msgpack of (kind, key, value): maps sorted by key.  It
finds accidents (a lost update, a bug, a flipped bit); against forgery there is ``signing``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgpack

from shared_scheduler.protocol.messages import Consumer, Heartbeat, Leaf, Snapshot

LEAF = "l"
CONSUMER = "c"
CLAIM = "p"
GROUP = "g"

#: hashes of plain entries that are remembered: one life's leaves hardly change from heartbeat to heartbeat
REMEMBERED_MAX = 65_536
#: what may be looked up by equality; floats may not, for 0.0 equals -0.0 and is packed otherwise
_PLAIN = frozenset({str, int, bool})
#: what is packed as it is; a call less for each of them, and most of what is hashed is these
_AS_IT_IS = _PLAIN | {float, type(None)}


def leaf_hash(name: str, value: Leaf) -> int:
    """One leaf's part of the digest; 0 for one that is not there."""
    return 0 if value is None else _hash(LEAF, name, value)


def consumer_hash(consumer: str, value: Consumer | None) -> int:
    """One consumer's part of the digest; 0 for one that is not there."""
    if value is None:
        return 0
    plain = _hash_any(CONSUMER, consumer, [value.allocations, value.member])
    return plain ^ group_hash(consumer, value.group) if value.group else plain


def group_hash(consumer: str, group: str) -> int:
    """The part of the digest that tells a consumer's group; 0 for one without."""
    return _hash(GROUP, consumer, group) if group else 0


def groups_digest_of(consumers: Mapping[str, Consumer]) -> int:
    """The part of the digest that tells the groups of these consumers."""
    digest = 0
    for uuid, consumer in consumers.items():
        digest ^= group_hash(uuid, consumer.group)
    return digest


def told_digest(message: Heartbeat | Snapshot) -> int:
    """The digest of everything, as the sender of this message has it."""
    return message.digest ^ message.groups_digest


def claim_hash(claim_id: str, consumer: str | None) -> int:
    """One pending claim's part of the digest; 0 for one that has ended."""
    return 0 if consumer is None else _hash(CLAIM, claim_id, consumer)


def digest_of(
    leaves: Mapping[str, Leaf],
    consumers: Mapping[str, Consumer],
    claims: Mapping[str, str],
) -> int:
    """The digest of a whole node, computed from nothing."""
    digest = 0
    for name, value in leaves.items():
        if value is not None:
            digest ^= _hash(LEAF, name, value)
    for uuid, consumer in consumers.items():
        digest ^= consumer_hash(uuid, consumer)
    for claim_id, claimed in claims.items():
        digest ^= claim_hash(claim_id, claimed)
    return digest


def _hash(kind: str, key: str, value: Any) -> int:
    return _hash_plain(kind, key, value) if type(value) in _PLAIN else _hash_any(kind, key, value)


def _hash_any(kind: str, key: str, value: Any) -> int:
    body = msgpack.packb((kind, key, _canonical(value)))
    return int.from_bytes(blake2b(body, digest_size=8).digest(), "big")


#: typed, because True equals 1 and is packed otherwise
_hash_plain = lru_cache(REMEMBERED_MAX, typed=True)(_hash_any)


def _canonical(value: Any) -> Any:
    kind = type(value)  # exact types first: asking for an abstract one costs ten times as much
    if kind is dict or (kind not in _AS_IT_IS and isinstance(value, Mapping)):
        return {
            key: item if type(item := value[key]) in _AS_IT_IS else _canonical(item)
            for key in sorted(value)
        }
    if kind is list or (kind not in _AS_IT_IS and isinstance(value, list | tuple)):
        return [item if type(item) in _AS_IT_IS else _canonical(item) for item in value]
    return value
