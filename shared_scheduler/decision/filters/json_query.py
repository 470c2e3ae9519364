# SPDX-License-Identifier: Apache-2.0
"""The filter for the JSON query in hint ``query``: ``["and", [">=", "$free_ram_mb", 1024], ...]``."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from typing import Any

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.errors import DecisionError
from shared_scheduler.decision.filters.base import NativeFilter
from shared_scheduler.decision.filters.hints import hint_values
from shared_scheduler.decision.host_attributes import OPAQUE, lookup
from shared_scheduler.decision.masks import RowTest
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.columns import BoolArray
from shared_scheduler.table.host_view import HostView
from shared_scheduler.table.row import Row


class _OpaqueOperandError(Exception):
    """The query reads a value that only Nova's own objects have."""


def _each(compare: Callable[[Any, Any], bool]) -> Callable[[list[Any]], bool]:
    """Compare the first operand with all others; False if there are no others."""

    def run(operands: list[Any]) -> bool:
        return len(operands) > 1 and all(compare(operands[0], one) for one in operands[1:])

    return run


def _is_in(operands: list[Any]) -> bool:
    return len(operands) > 1 and operands[0] in operands[1:]


_COMMANDS: Mapping[str, Callable[[list[Any]], Any]] = {
    "=": _each(operator.eq),
    "<": _each(operator.lt),
    ">": _each(operator.gt),
    "<=": _each(operator.le),
    ">=": _each(operator.ge),
    "in": _is_in,
    "not": lambda operands: [not one for one in operands],
    "or": any,
    "and": all,
}


class JsonFilter(NativeFilter):
    """The query is true for the host.  Operands that the host does not have are omitted, as in Nova."""

    code = "JsonFilter"

    def mask(self, context: DecisionContext) -> BoolArray | None:
        text = _text(context)
        if not text:
            return None
        query = _parse(text)
        return context.masks.rows(context.table, (self.code, text), lambda: _test(context, query), static=False)

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        return {"query": _text(context), "operands": _operands(_parse(_text(context)), view)}


def _text(context: DecisionContext) -> str:
    return (hint_values(context.request, "query") or ("",))[0]


def _parse(text: str) -> Any:
    try:
        query = json.loads(text)
    except ValueError as error:
        raise DecisionError(f"hint query: not JSON: {error}") from error
    _check(query)
    return query


def _check(query: Any) -> None:
    if not query:
        return
    if not isinstance(query, list) or not isinstance(query[0], str) or query[0] not in _COMMANDS:
        known = " ".join(_COMMANDS)
        raise DecisionError(f"hint query: {query!r} does not begin with one of: {known}")
    for part in query[1:]:
        if isinstance(part, list):
            _check(part)


def _test(context: DecisionContext, query: Any) -> RowTest:
    table = context.table

    def test(row: Row) -> bool:
        try:
            result = _run(query, table.view_at(row.slot))
        except _OpaqueOperandError:
            return True
        except TypeError as error:
            raise DecisionError(f"hint query: host {row.host}: {error}") from error
        return any(result) if isinstance(result, list) else bool(result)

    return test


def _run(query: Any, view: HostView) -> Any:
    if not query:
        return True
    operands = (_operand(part, view) for part in query[1:])
    return _COMMANDS[query[0]]([one for one in operands if one is not None])


def _operand(part: Any, view: HostView) -> Any:
    if isinstance(part, list):
        return _run(part, view)
    if not isinstance(part, str):
        return part
    if not part.startswith("$"):
        return part or None
    found = lookup(view, tuple(part[1:].split(".")))
    if found is OPAQUE:
        raise _OpaqueOperandError
    return found


def _operands(query: Any, view: HostView) -> dict[str, Leaf]:
    """The host's values of every ``$name`` in a query."""
    found: dict[str, Leaf] = {}
    for part in query[1:] if query else ():
        if isinstance(part, list):
            found |= _operands(part, view)
        elif isinstance(part, str) and part.startswith("$"):
            value = lookup(view, tuple(part[1:].split(".")))
            found[part] = None if value is OPAQUE else value
    return found
