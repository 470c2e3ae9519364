# SPDX-License-Identifier: Apache-2.0
"""Messages to bytes and back: msgpack, positional, strict.

A body is one msgpack array ``[version, type, field, field, ...]``; ``LAYOUTS`` names the fields of
each type in order.  Version and type are single bytes below 128, so that size, version and type are
judged before anything is decoded or allocated.

Version skew.  ``VERSION`` is the major version; another one is refused.  Within it, releases may
only add: new fields behind the old ones, new types, new leaf names.  So a receiver ignores up to
``EXTRA_FIELDS_MAX`` fields that follow the ones it knows, fills in the defaults of the ones that an
older sender does not have yet (those behind ``Layout.required``), and drops types that it does not
know with an error of its own (``UnknownMessageType``).

``decode`` raises nothing but ``RemoteProtocolError``, whatever the bytes are; ``encode`` nothing but
``UnsendableMessage``.  Both run the same checks: what we send, others accept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgpack

from shared_scheduler.protocol import fields, limits
from shared_scheduler.protocol.errors import (
    MalformedMessage,
    MessageTooLarge,
    UnknownMessageType,
    UnknownVersion,
    UnsendableMessage,
)
from shared_scheduler.protocol.fields import Convert, FieldError
from shared_scheduler.protocol.messages import (
    Beat,
    Claim,
    Goodbye,
    Hello,
    Increment,
    Message,
    Release,
    Resync,
    Role,
    Snapshot,
    Verdict,
    Want,
)

VERSION = 1
#: version and type, in front of the fields
HEADER_FIELDS = 2


@dataclass(frozen=True, slots=True)
class Field:
    """One position: the dataclass field's name, how to read it and how to write it."""

    name: str
    read: Convert
    write: Convert


@dataclass(frozen=True, slots=True)
class Layout:
    """One message type on the wire.  ``fields`` are in the order of the dataclass."""

    message: type[Message]
    body_max_bytes: int
    fields: tuple[Field, ...]
    #: how many of the fields the first release of this major version sends
    required: int
    #: what must hold between fields
    consistent: Callable[[Any], None] | None = None


def _same(name: str, check: Convert) -> Field:
    return Field(name, check, check)


def _text(name: str, chars_max: int = limits.ADDRESS_MAX_CHARS, chars_min: int = 1) -> Field:
    return _same(name, fields.text(chars_max, chars_min))


def _count(name: str, most: int = limits.COUNT_MAX, least: int = 0) -> Field:
    return _same(name, fields.integer(least, most))


def _id(name: str) -> Field:
    return _same(name, fields.identifier)


def _consumers(none_allowed: bool) -> Field:
    most = limits.CONSUMERS_PER_NODE_MAX
    return Field(
        "consumers",
        fields.map_of(fields.read_consumer, most, none_allowed),
        fields.map_of(fields.write_consumer, most, none_allowed),
    )


def _claims(none_allowed: bool) -> Field:
    # twice the bound: as many may have ended as may be pending, in one flush
    return _same(
        "claims", fields.map_of(fields.identifier, 2 * limits.CLAIMS_PER_NODE_MAX, none_allowed)
    )


#: An agent's life; 0 stands for "none" elsewhere.
_EPOCH = _count("epoch", least=1)

_INCREMENT = (
    _id("node"),
    _EPOCH,
    _count("sequence", least=1),
    _same("leaves", fields.leaves),
    _consumers(none_allowed=True),
    _claims(none_allowed=True),
)


def _read_news(value: Any) -> tuple[Increment, ...]:
    if type(value) is not list or len(value) > limits.VERDICT_NEWS_MAX_MESSAGES:
        raise FieldError(f"a list of at most {limits.VERDICT_NEWS_MAX_MESSAGES} was expected")
    rows = (fields.row(item, len(_INCREMENT)) for item in value)
    return tuple(
        Increment(*(f.read(v) for f, v in zip(_INCREMENT, row, strict=False))) for row in rows
    )


def _write_news(value: Any) -> list[list[Any]]:
    if len(value) > limits.VERDICT_NEWS_MAX_MESSAGES:
        raise FieldError(f"{len(value)} increments, allowed are {limits.VERDICT_NEWS_MAX_MESSAGES}")
    return [[f.write(getattr(item, f.name)) for f in _INCREMENT] for item in value]


def _news_are_of_its_node(verdict: Verdict) -> None:
    for increment in verdict.news:
        if increment.node != verdict.node or increment.epoch != verdict.epoch:
            raise FieldError("news of another node or epoch")


def _layout(
    message: type[Message],
    body_max_bytes: int,
    *positions: Field,
    consistent: Callable[[Any], None] | None = None,
) -> Layout:
    return Layout(message, body_max_bytes, positions, len(positions), consistent)


#: type number -> layout; a number is never used again for something else
LAYOUTS: Mapping[int, Layout] = {
    1: _layout(
        Hello,
        limits.SMALL_BODY_MAX_BYTES,
        Field("role", fields.one_of(Role), fields.one_of(Role)),
        _text("sender"),
        _count("epoch"),
        _text("node", limits.ID_MAX_CHARS, chars_min=0),
        _text("host", chars_min=0),
        Field("want", fields.one_of(Want), fields.one_of(Want)),
        _count("spread_ms"),
    ),
    2: _layout(Increment, limits.INCREMENT_BODY_MAX_BYTES, *_INCREMENT),
    3: _layout(
        Snapshot,
        limits.SNAPSHOT_BODY_MAX_BYTES,
        _id("node"),
        _EPOCH,
        _count("sequence"),
        _text("host"),
        _same("leaves", fields.leaves),
        _consumers(none_allowed=False),
        _claims(none_allowed=False),
        _count("digest", limits.DIGEST_MAX),
    ),
    4: _layout(
        Beat,
        limits.SMALL_BODY_MAX_BYTES,
        _id("node"),
        _EPOCH,
        _count("sequence"),
        _text("host"),
        _count("digest", limits.DIGEST_MAX),
    ),
    5: _layout(Goodbye, limits.SMALL_BODY_MAX_BYTES, _id("node"), _EPOCH, _count("sequence")),
    6: _layout(
        Claim,
        limits.CLAIM_BODY_MAX_BYTES,
        _id("claim_id"),
        _id("node"),
        _text("scheduler"),
        _id("consumer"),
        _same("allocations", fields.allocations),
        Field("usage", fields.read_usage, fields.write_usage),
        _text("topology", limits.LEAF_TEXT_MAX_CHARS, chars_min=0),
        _count("seen_epoch"),
        _count("seen_sequence"),
        _count("deadline_ms"),
    ),
    7: _layout(
        Release,
        limits.SMALL_BODY_MAX_BYTES,
        _id("claim_id"),
        _id("node"),
        _text("scheduler"),
        _id("consumer"),
    ),
    8: _layout(
        Verdict,
        limits.VERDICT_BODY_MAX_BYTES,
        _id("claim_id"),
        _id("node"),
        _EPOCH,
        _same("accepted", fields.flag),
        Field("reason", fields.read_reason, fields.write_reason),
        _count("reflected_sequence"),
        Field("news", _read_news, _write_news),
        consistent=_news_are_of_its_node,
    ),
    9: _layout(
        Resync,
        limits.SMALL_BODY_MAX_BYTES,
        _id("node"),
        _text("scheduler"),
        _count("epoch"),
        _count("after_sequence"),
        _same("doubted", fields.flag),
    ),
}

_TYPE_OF: Mapping[type, int] = {layout.message: number for number, layout in LAYOUTS.items()}


def encode(message: Message) -> bytes:
    """The body of one message.  Raises ``UnsendableMessage``."""
    number = _TYPE_OF.get(type(message))
    if number is None:
        raise UnsendableMessage(f"{fields.kind_of(message)} is no message")
    layout = LAYOUTS[number]
    body = cast(bytes, msgpack.packb(_row(number, layout, message)))
    if len(body) > layout.body_max_bytes:
        where = type(message).__name__
        raise UnsendableMessage(f"{len(body)} bytes, allowed are {layout.body_max_bytes}", where)
    return body


def _row(number: int, layout: Layout, message: Message) -> list[Any]:
    row: list[Any] = [VERSION, number]
    field = layout.fields[0]
    try:
        for field in layout.fields:
            row.append(field.write(getattr(message, field.name)))
        if layout.consistent is not None:
            layout.consistent(message)
    except (FieldError, TypeError, AttributeError) as problem:
        where = f"{type(message).__name__}.{field.name}"
        raise UnsendableMessage(str(problem), where) from None
    return row


def decode(body: bytes) -> Message:
    """The message in a body.  Raises ``RemoteProtocolError`` and nothing else."""
    layout = _layout_of(body)
    row = _unpack(body, layout)
    values: list[Any] = []
    try:
        for field, value in zip(layout.fields, row[HEADER_FIELDS:], strict=False):
            values.append(field.read(value))
        message = layout.message(*values)
        if layout.consistent is not None:
            layout.consistent(message)
    except FieldError as problem:
        name = layout.fields[min(len(values), len(layout.fields) - 1)].name
        raise MalformedMessage(str(problem), f"{layout.message.__name__}.{name}") from None
    return message


def _layout_of(body: bytes) -> Layout:
    """Size, version, type and number of fields, from the first bytes alone."""
    size = len(body)
    if size > limits.BODY_MAX_BYTES:
        raise MessageTooLarge(f"{size} bytes, no message has more than {limits.BODY_MAX_BYTES}")
    count, start = _array_header(body)
    if size < start + HEADER_FIELDS or body[start] > 0x7F or body[start + 1] > 0x7F:
        raise MalformedMessage("no version and type in front")
    version, number = body[start], body[start + 1]
    if version != VERSION:
        raise UnknownVersion(f"protocol version {version}, this release speaks {VERSION}")
    layout = LAYOUTS.get(number)
    if layout is None:
        raise UnknownMessageType(f"message type {number} is unknown to this release")
    if size > layout.body_max_bytes:
        where = layout.message.__name__
        raise MessageTooLarge(f"{size} bytes, allowed are {layout.body_max_bytes}", where)
    _check_field_count(layout, count - HEADER_FIELDS)
    return layout


def _array_header(body: bytes) -> tuple[int, int]:
    """How many entries the outermost array announces, and where the first one starts."""
    if len(body) >= 1 and 0x90 <= body[0] <= 0x9F:
        return body[0] & 0x0F, 1
    if len(body) >= 3 and body[0] == 0xDC:
        return int.from_bytes(body[1:3], "big"), 3
    raise MalformedMessage("not a message of this protocol")


def _check_field_count(layout: Layout, count: int) -> None:
    most = len(layout.fields) + limits.EXTRA_FIELDS_MAX
    if not layout.required <= count <= most:
        expected = f"{layout.required} to {most} fields were expected"
        raise MalformedMessage(f"{count} fields, {expected}", layout.message.__name__)


def _unpack(body: bytes, layout: Layout) -> list[Any]:
    """msgpack with every bound set; a map key that is no text, binary and extensions are refused."""
    try:
        row = msgpack.unpackb(
            body,
            raw=False,
            strict_map_key=True,
            max_str_len=limits.LEAF_TEXT_MAX_CHARS * 4,
            max_bin_len=0,
            max_array_len=limits.CONTAINER_LENGTH_MAX,
            max_map_len=limits.CONTAINER_LENGTH_MAX,
            max_ext_len=0,
        )
    # msgpack raises ValueError and its children for nearly all, and says so in its documentation;
    # deep nesting is StackError (a ValueError) in C and RecursionError in pure Python.
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as problem:
        reason = str(problem) or type(problem).__name__
        raise MalformedMessage(
            f"not valid msgpack ({reason[:80]})", layout.message.__name__
        ) from None
    return cast("list[Any]", row)
