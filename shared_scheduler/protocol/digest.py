# SPDX-License-Identifier: Apache-2.0
"""The digest: one number for the whole state of a node.

The digest is the XOR of a 64-bit hash of each entry (leaf, consumer, pending claim), so the order of entries does not
matter.  A sender updates it for changed entries only: XOR with the hash of the old entry and with the hash of the new
one.  A receiver computes it from its copy when a heartbeat names the sequence of the copy.

The groups of consumers are separate entries, whose XOR is the field ``groups_digest``: the previous release does not
know groups and compares only the rest.  In this module and in all copies, the digest covers everything; it equals the
XOR of the two numbers in a message (``told_digest``).  The generations of consumers are not part of it.

The hash of an entry is BLAKE2b-64 over canonical msgpack of (kind, key, value), with maps sorted by key.  It detects
accidents (a lost update, a bug, a flipped bit); ``signing`` protects against forgery.
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

#: cached hashes of plain entries; most leaves do not change between two heartbeats
REMEMBERED_MAX = 65_536
#: hashes of longer texts are not remembered
TEXT_MAX_CHARS = 256
#: types that may be looked up by equality; not floats, because 0.0 equals -0.0 but is packed differently
_PLAIN = frozenset({str, int, bool})
#: types that are packed unchanged, without a call for each value; most values are of these types
_AS_IT_IS = _PLAIN | {float, type(None)}


def leaf_hash(name: str, value: Leaf) -> int:
    """The part of one leaf in the digest; 0 for a leaf that does not exist."""
    return 0 if value is None else _hash(LEAF, name, value)


def consumer_hash(consumer: str, value: Consumer | None) -> int:
    """The part of one consumer in the digest; 0 for a consumer that does not exist."""
    if value is None:
        return 0
    plain = _hash_any(CONSUMER, consumer, [value.allocations, value.member])
    return plain ^ group_hash(consumer, value.group) if value.group else plain


def group_hash(consumer: str, group: str) -> int:
    """The part of a consumer's group in the digest; 0 for a consumer without a group."""
    return _hash(GROUP, consumer, group) if group else 0


def told_digest(message: Heartbeat | Snapshot) -> int:
    """The digest of everything at the sender of this message."""
    return message.digest ^ message.groups_digest


def claim_hash(claim_id: str, consumer: str | None) -> int:
    """The part of one pending claim in the digest; 0 for a claim that has ended."""
    return 0 if consumer is None else _hash(CLAIM, claim_id, consumer)


def digest_of(
    leaves: Mapping[str, Leaf],
    consumers: Mapping[str, Consumer],
    claims: Mapping[str, str],
) -> int:
    """The digest of a whole node, computed from all entries."""
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
    kept = type(value) in _PLAIN and (type(value) is not str or len(value) <= TEXT_MAX_CHARS)
    return _hash_plain(kind, key, value) if kept else _hash_any(kind, key, value)


def _hash_any(kind: str, key: str, value: Any) -> int:
    body = msgpack.packb((kind, key, _canonical(value)))
    return int.from_bytes(blake2b(body, digest_size=8).digest(), "big")


#: the key includes the type, because True equals 1 but is packed differently
_hash_plain = lru_cache(REMEMBERED_MAX, typed=True)(_hash_any)


def _canonical(value: Any) -> Any:
    kind = type(value)  # exact types first: a check for an abstract type costs ten times as much
    if kind is dict or (kind not in _AS_IT_IS and isinstance(value, Mapping)):
        return {key: item if type(item := value[key]) in _AS_IT_IS else _canonical(item) for key in sorted(value)}
    if kind is list or (kind not in _AS_IT_IS and isinstance(value, list | tuple)):
        return [item if type(item) in _AS_IT_IS else _canonical(item) for item in value]
    return value
