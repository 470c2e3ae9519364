# SPDX-License-Identifier: Apache-2.0
"""One value of a message: from what msgpack gives to what a dataclass holds, and back.

Each reader takes a value as msgpack decoded it, checks type, range and size, and returns the field's
value; each writer does the same the other way, so that we never send what nobody would accept.
Readers and writers raise ``FieldError`` only; the codec adds which message and field it was.

Types are compared exactly (``type(x) is int``): True is no integer here, and neither is a number of
a foreign library, because both sides must compute the same digest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from math import isfinite
from typing import Any

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.messages import Allocations, Consumer, Leaf, Reason, Usage

Convert = Callable[[Any], Any]


class FieldError(ValueError):
    """What is wrong with one value."""


def kind_of(value: object) -> str:
    """How an error names the type of a value."""
    return "nothing" if value is None else type(value).__name__


def text(chars_max: int, chars_min: int = 1) -> Convert:
    """A printable text within these bounds."""

    def check(value: Any) -> str:
        if type(value) is not str and not isinstance(value, StrEnum):
            raise FieldError(f"a text was expected, not {kind_of(value)}")
        if not chars_min <= len(value) <= chars_max:
            raise FieldError(f"{len(value)} characters, allowed are {chars_min} to {chars_max}")
        if not value.isprintable():
            raise FieldError("a control character")
        return value

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
    """True or False, nothing that merely looks like it."""
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


def repeated(check: Convert) -> Convert:
    """As ``check``, for texts that come again in every message: one object for equal ones, looked at once.

    Whoever looks something up by such a text finds its hash computed, and finds it equal at a glance.
    """
    known: dict[Any, Any] = {}

    def same(value: Any) -> Any:
        found = known.get(value) if type(value) is str else None
        if found is None:
            found = check(value)
            if len(known) >= limits.REPEATED_TEXTS_MAX:
                known.clear()
            known[found] = found
        return found

    return same


identifier = text(limits.ID_MAX_CHARS)
leaf_name = repeated(text(limits.LEAF_NAME_MAX_CHARS))
resource_class = repeated(text(limits.RESOURCE_CLASS_MAX_CHARS))
amount = integer(0, limits.AMOUNT_MAX)


def mapping(value: Any, length_max: int = limits.CONTAINER_LENGTH_MAX) -> Mapping[Any, Any]:
    """A map of bounded length; its entries are for the caller to check."""
    if type(value) is not dict and not isinstance(value, Mapping):
        raise FieldError(f"a map was expected, not {kind_of(value)}")
    if len(value) > length_max:
        raise FieldError(f"{len(value)} entries, allowed are {length_max}")
    return value


def row(value: Any, length: int) -> list[Any]:
    """A list with at least so many entries; more come from newer releases."""
    if type(value) is not list or not length <= len(value) <= length + limits.EXTRA_FIELDS_MAX:
        raise FieldError(f"a list of {length} entries was expected")
    return value


# --- leaves ------------------------------------------------------------------------------------


def leaf(value: Any, depth: int = 1) -> Leaf:
    """One leaf's value, containers copied so that nobody else can change them."""
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
        raise FieldError(
            f"a text of {len(value)} characters, allowed are {limits.LEAF_TEXT_MAX_CHARS}"
        )
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise FieldError("a text that is not Unicode") from None


def _leaf_container(value: Any, depth: int) -> Leaf:
    if depth >= limits.LEAF_DEPTH_MAX:
        raise FieldError(f"nested deeper than {limits.LEAF_DEPTH_MAX}")
    if len(value) > limits.CONTAINER_LENGTH_MAX:
        raise FieldError(f"{len(value)} entries, allowed are {limits.CONTAINER_LENGTH_MAX}")
    if type(value) is dict:
        return {leaf_name(key): leaf(item, depth + 1) for key, item in value.items()}
    return [leaf(item, depth + 1) for item in value]


def leaves(value: Any) -> dict[str, Leaf]:
    """leaf name -> value, None where the leaf is gone."""
    found = mapping(value, limits.LEAVES_PER_NODE_MAX)
    return {leaf_name(name): leaf(item) for name, item in found.items()}


# --- consumers and claims --------------------------------------------------------------------


def allocations(value: Any) -> Allocations:
    """provider uuid -> resource class -> amount."""
    return {
        identifier(provider): {
            resource_class(name): amount(used) for name, used in mapping(amounts).items()
        }
        for provider, amounts in mapping(value).items()
    }


def read_consumer(value: Any) -> Consumer:
    """``[allocations, member]``."""
    fields = row(value, 2)
    return Consumer(allocations(fields[0]), flag(fields[1]))


def write_consumer(value: Any) -> list[Any]:
    """The reverse of ``read_consumer``."""
    if type(value) is not Consumer:
        raise FieldError(f"a consumer was expected, not {kind_of(value)}")
    return [allocations(value.allocations), flag(value.member)]


def map_of(convert: Convert, length_max: int, none_allowed: bool) -> Convert:
    """id -> something, None where it is gone (in increments)."""

    def check(value: Any) -> dict[str, Any]:
        return {
            identifier(key): None if none_allowed and item is None else convert(item)
            for key, item in mapping(value, length_max).items()
        }

    return check


# --- small structures --------------------------------------------------------------------------


def read_usage(value: Any) -> Usage:
    """``[vcpus, memory_mb, disk_gb, instances, io_ops]``."""
    return Usage(*(amount(item) for item in row(value, 5)[:5]))


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
    code, detail = row(value, 2)[:2]
    return Reason(identifier(code), leaves(detail))


def write_reason(value: Any) -> list[Any] | None:
    """The reverse of ``read_reason``."""
    if value is None:
        return None
    if type(value) is not Reason:
        raise FieldError(f"a reason was expected, not {kind_of(value)}")
    return [str(identifier(value.code)), leaves(value.detail)]
