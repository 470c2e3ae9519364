# SPDX-License-Identifier: Apache-2.0
"""Messages of a peer of a later release (``protocol/codec.py`` describes what is accepted)."""

from __future__ import annotations

from random import Random
from typing import Any

import msgpack

from shared_scheduler.protocol.codec import VERSION

#: of the first byte of a message of this release, an array of at most 15 entries
ENTRIES_MASK = 0x0F
#: fields after those of this release
LATER_FIELDS: tuple[Any, ...] = ("later", {"as": ["said", 1]})
#: a type of message that this release does not know
LATER_TYPE = 99
#: a leaf that only later releases report
LATER_LEAF = "later.news"


def as_newer(body: bytes) -> bytes:
    """The same message from a later minor version, with more fields after the known ones."""
    head: bytes = msgpack.Packer().pack_array_header((body[0] & ENTRIES_MASK) + len(LATER_FIELDS))
    return head + body[1:] + b"".join(map(msgpack.packb, LATER_FIELDS))


def foreign_body(rng: Random) -> bytes:
    """A message of an unknown type or of another major version."""
    header = rng.choice(([VERSION, LATER_TYPE], [VERSION + 1, 1]))
    body: bytes = msgpack.packb([*header, *LATER_FIELDS])
    return body
