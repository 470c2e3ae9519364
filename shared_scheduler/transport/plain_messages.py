# SPDX-License-Identifier: Apache-2.0
"""Takes the bytes of a message as they are, whatever its sender has written around them.

py-amqp decodes routing key and properties in its reader, where an error ends the connection: a text that is not UTF-8,
a time after all years, tables in tables.  Then it decodes a body whose property names an encoding, and kombu
decompresses one whose header names a compression: 400 bytes become 512 MiB.  All of that is before the size and the
signature are checked, and one message to an exchange reaches everybody.

So the frames of a connection lose these parts before they are read.  Only two texts are left, which ``sender.py`` sets.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import calcsize, pack, unpack_from
from typing import Any

from amqp import spec
from amqp.method_framing import frame_handler

#: type, channel and payload
Frame = tuple[int, int, bytes]

METHOD, HEADER = 1, 2
#: behind it: the tag of the consumer, delivery tag and redelivered, and the texts of exchange and routing key
DELIVER = pack(">HH", *spec.Basic.Deliver)
DELIVERY_BYTES = calcsize(">QB")
NO_TEXTS = b"\0\0"
#: of a header: class, weight, and the size of the body; then flags, then the properties that these name
SIZES_BYTES, FLAGS_BYTES = calcsize(">HHQ"), calcsize(">H")

#: formats of the length that a text and a table begin with
TEXT, TABLE = ">B", ">I"
#: flag of each property, in the order in which they stand, and its bytes or the format of its length
LAYOUT: tuple[tuple[int, int | str], ...] = (
    (0x8000, TEXT), (0x4000, TEXT), (0x2000, TABLE), (0x1000, 1), (0x0800, 1), (0x0400, TEXT), (0x0200, TEXT),
    (0x0100, TEXT), (0x0080, TEXT), (0x0040, 8), (0x0020, TEXT), (0x0010, TEXT), (0x0008, TEXT), (0x0004, TEXT),
)  # fmt: skip
#: ``message_id`` and ``app_id``
KEPT = 0x0080 | 0x0008


def plain_frames(connection: Any, callback: Callable[..., Any]) -> Callable[[Frame], bool]:
    """The ``frame_handler`` of a connection of py-amqp."""
    read: Callable[[Frame], bool] = frame_handler(connection, callback)

    def on_frame(frame: Frame) -> bool:
        kind, channel, payload = frame
        if kind == HEADER:
            payload = plain_header(payload)
        elif kind == METHOD and payload.startswith(DELIVER):
            payload = plain_delivery(payload)
        return read((kind, channel, payload))

    return on_frame


def plain_delivery(payload: bytes) -> bytes:
    """A delivery without the texts that its sender has chosen."""
    tag_at = len(DELIVER)
    return payload[: tag_at + 1 + payload[tag_at] + DELIVERY_BYTES] + NO_TEXTS


def plain_header(payload: bytes) -> bytes:
    """A header without the properties that nobody here reads, and without texts that are not UTF-8."""
    (flags,) = unpack_from(">H", payload, SIZES_BYTES)
    at, kept, texts = SIZES_BYTES + FLAGS_BYTES, 0, b""
    for flag, length in LAYOUT:
        if not flags & flag:
            continue
        end = at + (length if isinstance(length, int) else calcsize(length) + unpack_from(length, payload, at)[0])
        if flag & KEPT and _is_text(payload[at + 1 : end]):
            kept, texts = kept | flag, texts + payload[at:end]
        at = end
    return payload[:SIZES_BYTES] + pack(">H", kept) + texts


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
