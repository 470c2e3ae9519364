# SPDX-License-Identifier: Apache-2.0
"""Encodes and decodes messages: msgpack, positional fields, strict checks.

A body is one msgpack array ``[version, type, field, field, ...]``; ``LAYOUTS`` names the fields of
each type in order.  Version and type are single bytes below 128, so that size, version and type are
checked before anything is decoded or allocated.

Peers of other releases.  ``VERSION`` is the major version; messages of another one are refused.  Within a major
version, releases may only add: new fields behind the old ones, new types, new leaf names.  Therefore a receiver ignores
up to ``EXTRA_FIELDS_MAX`` unknown fields at the end, uses defaults for fields that an older sender does not have (those
behind ``Layout.required``), and drops unknown types with a separate error (``UnknownMessageType``).

``decode`` raises only ``RemoteProtocolError``, for any bytes; ``encode`` raises only ``UnsendableMessage``.  Both run
the same checks, so receivers accept what this module encodes.

A *reader* converts one decoded value into the value of a dataclass field, and checks its type, range and size.  A
*writer* does the reverse.  Both raise only ``FieldError``; the codec adds the names of message and field.  Types are
compared exactly (``type(x) is int``): True is not an integer here, and neither is a number type of another library,
because both sides must compute the same digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Any, cast

import msgpack

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.errors import (
    MalformedMessage,
    MessageTooLarge,
    UnknownMessageType,
    UnknownVersion,
    UnsendableMessage,
)
from shared_scheduler.protocol.memo import Memo
from shared_scheduler.protocol.messages import (
    Allocations,
    BuildResult,
    Claim,
    ClaimGroup,
    Consumer,
    Heartbeat,
    Hello,
    Increment,
    Leaf,
    Leave,
    Message,
    Reason,
    Release,
    Resync,
    Role,
    Snapshot,
    Usage,
    Verdict,
    Want,
)

VERSION = 1
#: version and type precede the fields
HEADER_FIELDS = 2

# --- values --------------------------------------------------------------------------------------

Convert = Callable[[Any], Any]


class FieldError(ValueError):
    """One value is not valid."""


def kind_of(value: object) -> str:
    """The name of a value's type, for errors."""
    return "nothing" if value is None else type(value).__name__


def text(chars_max: int, chars_min: int = 1) -> Convert:
    """A printable text within these bounds."""

    def check(value: Any) -> str:
        if type(value) is not str and not isinstance(value, StrEnum):
            raise FieldError(f"a text was expected, not {kind_of(value)}")
        if not chars_min <= len(value) <= chars_max:
            raise FieldError(f"{len(value)} characters, but {chars_min} to {chars_max} are allowed")
        if not value.isprintable():
            raise FieldError("a control character")
        return value

    return check


def name_in_bytes(bytes_max: int, chars_min: int = 1) -> Convert:
    """A printable text that AMQP or an envelope carries, which count bytes."""
    as_text = text(bytes_max, chars_min)

    def check(value: Any) -> str:
        found: str = as_text(value)
        if not found.isascii() and len(found.encode()) > bytes_max:
            raise FieldError(f"{len(found.encode())} bytes, but at most {bytes_max} are allowed")
        return found

    return check


def integer(least: int, most: int) -> Convert:
    """An integer within these bounds, both included."""

    def check(value: Any) -> int:
        if type(value) is not int:
            raise FieldError(f"an integer was expected, not {kind_of(value)}")
        if not least <= value <= most:
            raise FieldError(f"{value} is not in {least}..{most}")
        return value

    return check


def flag(value: Any) -> bool:
    """True or False, of type bool."""
    if value is not True and value is not False:
        raise FieldError(f"true or false was expected, not {kind_of(value)}")
    return bool(value)


def one_of(choices: type[StrEnum]) -> Convert:
    """A member of an enumeration by its value."""
    members = {member.value: member for member in choices}

    def check(value: Any) -> StrEnum:
        try:
            return members[value]
        except (KeyError, TypeError):
            raise FieldError(f"one of {', '.join(members)} was expected") from None

    return check


class CheckedTexts(Memo[Any, str]):
    """Texts that recur in every message: ``texts[value]`` checks a text once, and equal texts are one object.

    A dictionary lookup of such a text is faster, because its hash is cached and it is identical to the key.  A value
    that was not found is checked like any other; one that has no hash is a TypeError.
    """

    __slots__ = ("check",)

    def __init__(self, check: Convert) -> None:
        super().__init__(limits.REPEATED_TEXTS_MAX)
        self.check = check

    def __missing__(self, value: Any) -> str:
        found = str(self.check(value))
        return self.learn(found, found)

    def of(self, value: Any) -> str:
        """``texts[value]``, for a value that may have no hash."""
        return self[value] if type(value) is str else cast(str, self.check(value))


identifier = text(limits.ID_MAX_CHARS)
leaf_names = CheckedTexts(text(limits.LEAF_NAME_MAX_CHARS))
resource_classes = CheckedTexts(text(limits.RESOURCE_CLASS_MAX_CHARS))
amount = integer(0, limits.AMOUNT_MAX)
_groups = CheckedTexts(text(limits.ID_MAX_CHARS, chars_min=0))
#: the generation of a consumer, 0 if it is not known
_generation = integer(0, limits.COUNT_MAX)


def mapping(value: Any, length_max: int = limits.CONTAINER_LENGTH_MAX) -> Mapping[Any, Any]:
    """A map of bounded length; the caller checks its entries."""
    if type(value) is not dict and not isinstance(value, Mapping):
        raise FieldError(f"a map was expected, not {kind_of(value)}")
    if len(value) > length_max:
        raise FieldError(f"{len(value)} entries, but at most {length_max} are allowed")
    return value


def list_of(value: Any, length: int) -> list[Any]:
    """A list with at least ``length`` entries; newer releases may send more."""
    if type(value) is not list or not length <= len(value) <= length + limits.EXTRA_FIELDS_MAX:
        raise FieldError(f"a list of {length} entries was expected")
    return value


# --- leaves ------------------------------------------------------------------------------------


def leaf(value: Any, depth: int = 1) -> Leaf:
    """The value of one leaf; containers are copied so that no other code can change them."""
    kind = type(value)
    if kind is int:
        if not limits.INTEGER_MIN <= value <= limits.INTEGER_MAX:
            raise FieldError(f"{value} does not fit 64 bits")
    elif kind is str:
        _leaf_text(value)
    elif kind is float:
        if not isfinite(value):
            raise FieldError("not a finite number")
    elif kind is list or kind is tuple or kind is dict:
        return _leaf_container(value, depth)
    elif kind is not bool and value is not None:
        raise FieldError(f"a leaf cannot hold {kind_of(value)}")
    return value  # type: ignore[no-any-return]


def _leaf_text(value: str) -> None:
    if len(value) > limits.LEAF_TEXT_MAX_CHARS:
        raise FieldError(f"a text of {len(value)} characters, but at most {limits.LEAF_TEXT_MAX_CHARS} are allowed")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise FieldError("a text that is not Unicode") from None


def _leaf_container(value: Any, depth: int) -> Leaf:
    if depth >= limits.LEAF_DEPTH_MAX:
        raise FieldError(f"nested deeper than {limits.LEAF_DEPTH_MAX}")
    if len(value) > limits.CONTAINER_LENGTH_MAX:
        raise FieldError(f"{len(value)} entries, but at most {limits.CONTAINER_LENGTH_MAX} are allowed")
    if type(value) is dict:
        return {leaf_names[key]: leaf(item, depth + 1) for key, item in value.items()}
    return [leaf(item, depth + 1) for item in value]


def leaves(value: Any) -> dict[str, Leaf]:
    """leaf name -> value, None if the leaf was removed."""
    found = mapping(value, limits.LEAVES_PER_NODE_MAX)
    names, least, most = leaf_names, limits.INTEGER_MIN, limits.INTEGER_MAX
    # most values are small integers, which need no call
    return {
        names[name]: item if type(item) is int and least <= item <= most else leaf(item) for name, item in found.items()
    }


# --- consumers and claims --------------------------------------------------------------------


def allocations(value: Any) -> Allocations:
    """provider uuid -> resource class -> amount."""
    names, most = resource_classes, limits.AMOUNT_MAX
    # most amounts are small, which need no call
    return {
        identifier(provider): {
            names[name]: used if type(used) is int and 0 <= used <= most else amount(used)
            for name, used in mapping(amounts).items()
        }
        for provider, amounts in mapping(value).items()
    }


def read_consumer(value: Any) -> Consumer:
    """``[allocations, member, group, generation, whole]``; an older sender, or one that has no more, sends fewer."""
    fields = list_of(value, 2)
    group = _groups.of(fields[2]) if len(fields) > 2 else ""
    generation = _generation(fields[3]) if len(fields) > 3 else 0
    whole = flag(fields[4]) if len(fields) > 4 else False
    # of an unknown generation, nobody knows what is the whole
    return Consumer(allocations(fields[0]), flag(fields[1]), group, generation, whole and generation > 0)


def write_consumer(value: Any) -> list[Any]:
    """The reverse of ``read_consumer``."""
    if type(value) is not Consumer:
        raise FieldError(f"a consumer was expected, not {kind_of(value)}")
    plain = [allocations(value.allocations), flag(value.member)]
    if value.generation:
        return [*plain, _groups.of(value.group), _generation(value.generation), flag(value.whole)]
    return [*plain, _groups.of(value.group)] if value.group else plain


def read_group(value: Any) -> ClaimGroup | None:
    """None, or ``[uuid, policy, max_server_per_host, members, seen]``."""
    if value is None:
        return None
    uuid, policy, most, members, seen = list_of(value, 5)[:5]
    if type(members) is not list:
        raise FieldError(f"a list of members was expected, not {kind_of(members)}")
    return ClaimGroup(identifier(uuid), identifier(policy), amount(most), _members(members), _seen(seen))


def write_group(value: Any) -> list[Any] | None:
    """The reverse of ``read_group``."""
    if value is None:
        return None
    if type(value) is not ClaimGroup:
        raise FieldError(f"a group was expected, not {kind_of(value)}")
    head = [identifier(value.uuid), str(identifier(value.policy)), amount(value.max_server_per_host)]
    return [*head, list(_members(value.members)), _seen(value.seen)]


def _members(value: list[Any] | tuple[Any, ...]) -> tuple[str, ...]:
    if len(value) > limits.GROUP_MEMBERS_MAX:
        raise FieldError(f"{len(value)} members, but at most {limits.GROUP_MEMBERS_MAX} are allowed")
    return tuple(identifier(member) for member in value)


def _seen(value: Any) -> int | None:
    return None if value is None else cast(int, amount(value))


def map_of(convert: Convert, length_max: int, none_allowed: bool) -> Convert:
    """id -> converted value, None if it was removed (in increments)."""

    def check(value: Any) -> dict[str, Any]:
        return {
            identifier(key): None if none_allowed and item is None else convert(item)
            for key, item in mapping(value, length_max).items()
        }

    return check


# --- small structures --------------------------------------------------------------------------


def read_usage(value: Any) -> Usage:
    """``[vcpus, memory_mb, disk_gb, instances, io_ops]``."""
    return Usage(*(amount(item) for item in list_of(value, 5)[:5]))


def write_usage(value: Any) -> list[int]:
    """The reverse of ``read_usage``."""
    if type(value) is not Usage:
        raise FieldError(f"a usage was expected, not {kind_of(value)}")
    numbers = (value.vcpus, value.memory_mb, value.disk_gb, value.instances, value.io_ops)
    return [amount(number) for number in numbers]


def read_reason(value: Any) -> Reason | None:
    """None, or ``[code, detail]``."""
    if value is None:
        return None
    code, detail = list_of(value, 2)[:2]
    return Reason(identifier(code), leaves(detail))


def write_reason(value: Any) -> list[Any] | None:
    """The reverse of ``read_reason``."""
    if value is None:
        return None
    if type(value) is not Reason:
        raise FieldError(f"a reason was expected, not {kind_of(value)}")
    return [str(identifier(value.code)), leaves(value.detail)]


# --- messages ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Field:
    """One position: the name of the dataclass field, its reader and its writer."""

    name: str
    read: Convert
    write: Convert


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of one message type.  ``fields`` are in the order of the dataclass."""

    message: type[Message]
    body_max_bytes: int
    fields: tuple[Field, ...]
    #: number of fields that the first release of this major version sends
    required: int
    #: checks a condition on several fields
    consistent: Callable[[Any], None] | None = None


def _same(name: str, check: Convert) -> Field:
    return Field(name, check, check)


def _text(name: str, chars_max: int, chars_min: int = 1) -> Field:
    return _same(name, text(chars_max, chars_min))


def _address(name: str, chars_min: int = 1) -> Field:
    return _same(name, name_in_bytes(limits.ADDRESS_MAX_BYTES, chars_min))


def _host(chars_min: int = 1) -> Field:
    return _same("host", name_in_bytes(limits.HOST_MAX_BYTES, chars_min))


def _count(name: str, most: int = limits.COUNT_MAX, least: int = 0) -> Field:
    return _same(name, integer(least, most))


def _id(name: str) -> Field:
    return _same(name, identifier)


def _consumers(none_allowed: bool) -> Field:
    most = limits.CONSUMERS_PER_NODE_MAX
    return Field(
        "consumers",
        map_of(read_consumer, most, none_allowed),
        map_of(write_consumer, most, none_allowed),
    )


def _claims(none_allowed: bool) -> Field:
    # twice the bound: in one flush, as many claims may have ended as may be pending
    return _same("claims", map_of(identifier, 2 * limits.CLAIMS_PER_NODE_MAX, none_allowed))


#: An epoch of an agent; elsewhere 0 means "none".
_EPOCH = _count("epoch", least=1)

_INCREMENT = (
    _id("node"),
    _EPOCH,
    _count("sequence", least=1),
    _same("leaves", leaves),
    _consumers(none_allowed=True),
    _claims(none_allowed=True),
)


_BUILD_RESULT = (
    _id("node"),
    _EPOCH,
    _id("consumer"),
    _same("succeeded", flag),
    _text("reason", limits.BUILD_REASON_MAX_CHARS, chars_min=0),
    _address("scheduler", chars_min=0),
    _count("number"),
)


def _messages(name: str, message: type[Increment | BuildResult], fields: tuple[Field, ...], most: int) -> Field:
    """Whole messages of one type in a field of another message, at most ``most``."""

    def read(value: Any) -> tuple[Increment | BuildResult, ...]:
        if type(value) is not list or len(value) > most:
            raise FieldError(f"a list of at most {most} was expected")
        rows = (list_of(item, len(fields)) for item in value)
        return tuple(message(*(f.read(v) for f, v in zip(fields, row, strict=False))) for row in rows)

    def write(value: Any) -> list[list[Any]]:
        if len(value) > most:
            raise FieldError(f"{len(value)} messages, but at most {most} are allowed")
        return [[f.write(getattr(item, f.name)) for f in fields] for item in value]

    return Field(name, read, write)


def _news_are_of_its_node(verdict: Verdict) -> None:
    for increment in verdict.news:
        if increment.node != verdict.node or increment.epoch != verdict.epoch:
            raise FieldError("increments of another node or epoch")


def _ends_are_of_its_node(heartbeat: Heartbeat) -> None:
    for end in heartbeat.ends:
        if end.node != heartbeat.node or end.epoch > heartbeat.epoch:
            raise FieldError("ends of builds of another node, or of a later epoch")


def _layout(
    message: type[Message],
    body_max_bytes: int,
    *positions: Field,
    later: int = 0,
    consistent: Callable[[Any], None] | None = None,
) -> Layout:
    """``later``: the number of last fields that the first release of this major version does not send."""
    return Layout(message, body_max_bytes, positions, len(positions) - later, consistent)


#: type number -> layout; a number is never reused
LAYOUTS: Mapping[int, Layout] = {
    1: _layout(
        Hello,
        limits.SMALL_BODY_MAX_BYTES,
        Field("role", one_of(Role), one_of(Role)),
        _address("sender"),
        _count("epoch"),
        _text("node", limits.ID_MAX_CHARS, chars_min=0),
        _host(chars_min=0),
        Field("want", one_of(Want), one_of(Want)),
        _count("spread_ms"),
        _text("release", limits.RELEASE_MAX_CHARS, chars_min=0),
        later=1,
    ),
    2: _layout(Increment, limits.INCREMENT_BODY_MAX_BYTES, *_INCREMENT),
    3: _layout(
        Snapshot,
        limits.SNAPSHOT_BODY_MAX_BYTES,
        _id("node"),
        _EPOCH,
        _count("sequence"),
        _host(),
        _same("leaves", leaves),
        _consumers(none_allowed=False),
        _claims(none_allowed=False),
        _count("digest", limits.DIGEST_MAX),
        _count("groups_digest", limits.DIGEST_MAX),
        later=1,
    ),
    4: _layout(
        Heartbeat,
        limits.SMALL_BODY_MAX_BYTES,
        _id("node"),
        _EPOCH,
        _count("sequence"),
        _host(),
        _count("digest", limits.DIGEST_MAX),
        _count("groups_digest", limits.DIGEST_MAX),
        _messages("ends", BuildResult, _BUILD_RESULT, limits.HEARTBEAT_ENDS_MAX),
        later=2,
        consistent=_ends_are_of_its_node,
    ),
    5: _layout(Leave, limits.SMALL_BODY_MAX_BYTES, _id("node"), _EPOCH, _count("sequence")),
    6: _layout(
        Claim,
        limits.CLAIM_BODY_MAX_BYTES,
        _id("claim_id"),
        _id("node"),
        _address("scheduler"),
        _id("consumer"),
        _same("allocations", allocations),
        Field("usage", read_usage, write_usage),
        _text("topology", limits.TOPOLOGY_MAX_CHARS, chars_min=0),
        _count("seen_epoch"),
        _count("seen_sequence"),
        _count("deadline_ms"),
        Field("group", read_group, write_group),
        _same("increment_suffices", flag),
        later=2,
    ),
    7: _layout(
        Release,
        limits.SMALL_BODY_MAX_BYTES,
        _id("claim_id"),
        _id("node"),
        _address("scheduler"),
        _id("consumer"),
        _same("never_written", flag),
        later=1,
    ),
    8: _layout(
        Verdict,
        limits.VERDICT_BODY_MAX_BYTES,
        _id("claim_id"),
        _id("node"),
        _EPOCH,
        _same("accepted", flag),
        Field("reason", read_reason, write_reason),
        _count("reflected_sequence"),
        _messages("news", Increment, _INCREMENT, limits.VERDICT_NEWS_MAX_MESSAGES),
        consistent=_news_are_of_its_node,
    ),
    9: _layout(
        Resync,
        limits.SMALL_BODY_MAX_BYTES,
        _id("node"),
        _address("scheduler"),
        _count("epoch"),
        _count("after_sequence"),
        _same("recheck", flag),
    ),
    10: _layout(
        BuildResult,
        limits.SMALL_BODY_MAX_BYTES,
        *_BUILD_RESULT,
    ),
}

#: an array of at most 15 entries, the version, the type
HEAD_BYTES = 3


def _known_heads() -> Iterator[tuple[bytes, Layout]]:
    for number, layout in LAYOUTS.items():
        most = min(HEADER_FIELDS + len(layout.fields) + limits.EXTRA_FIELDS_MAX, 0x0F)
        for count in range(HEADER_FIELDS + layout.required, most + 1):
            yield bytes((0x90 | count, VERSION, number)), layout


#: the first bytes of valid messages -> layout, because this is looked up for every message
_KNOWN_HEADS: Mapping[bytes, Layout] = dict(_known_heads())

_TYPE_OF: Mapping[type, int] = {layout.message: number for number, layout in LAYOUTS.items()}


def encode(message: Message) -> bytes:
    """The body of one message.

    :raises UnsendableMessage: when the message exceeds a limit of the protocol
    """
    number = _TYPE_OF.get(type(message))
    if number is None:
        raise UnsendableMessage(f"{kind_of(message)} is not a message")
    layout = LAYOUTS[number]
    body = cast(bytes, msgpack.packb(_row(number, layout, message)))
    if len(body) > layout.body_max_bytes:
        where = type(message).__name__
        raise UnsendableMessage(f"{len(body)} bytes, but at most {layout.body_max_bytes} are allowed", where)
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
    """The message in a body.

    :raises RemoteProtocolError: when the body is not valid; no other exception is raised
    """
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
    """Check size, version, type and number of fields, from the first bytes alone."""
    layout = _KNOWN_HEADS.get(body[:HEAD_BYTES]) or _layout_of_other_head(body)
    if len(body) > layout.body_max_bytes:
        where = layout.message.__name__
        raise MessageTooLarge(f"{len(body)} bytes, but at most {layout.body_max_bytes} are allowed", where)
    return layout


def _layout_of_other_head(body: bytes) -> Layout:
    """The layout after a head that is long or not valid."""
    size = len(body)
    if size > limits.BODY_MAX_BYTES:
        raise MessageTooLarge(f"{size} bytes, no message has more than {limits.BODY_MAX_BYTES}")
    count, start = _array_header(body)
    if size < start + HEADER_FIELDS or body[start] > 0x7F or body[start + 1] > 0x7F:
        raise MalformedMessage("no version and type at the beginning")
    version, number = body[start], body[start + 1]
    if version != VERSION:
        raise UnknownVersion(f"protocol version {version}, this release uses {VERSION}")
    layout = LAYOUTS.get(number)
    if layout is None:
        raise UnknownMessageType(f"message type {number} is unknown to this release")
    _check_field_count(layout, count - HEADER_FIELDS)
    return layout


def _array_header(body: bytes) -> tuple[int, int]:
    """The number of entries of the outermost array, and the position of the first one."""
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
    """Unpack with every bound set; map keys that are not texts, binary values and extensions are refused."""
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
    # According to its documentation, msgpack raises ValueError and its subclasses for nearly all errors.
    # Deep nesting is StackError (a ValueError) in C and RecursionError in pure Python.
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as problem:
        reason = str(problem) or type(problem).__name__
        raise MalformedMessage(f"not valid msgpack ({reason[:80]})", layout.message.__name__) from None
    return cast("list[Any]", row)
