# SPDX-License-Identifier: Apache-2.0
"""The JSON schema (draft 2020-12) of each answer, made of the types in ``shapes.py`` and ``operating_shapes.py``."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

from shared_scheduler.answers import operating_shapes, shapes

Schema = dict[str, Any]

#: name of a question -> type of its answer
ANSWERS: Mapping[str, Any] = {
    "why": shapes.Why,
    "why-not": list[shapes.WhyNot],
    "records": list[shapes.RecordEntry],
    "story": list[shapes.HostEvent],
    "reasons": shapes.Reasons,
    "fleet": shapes.Fleet,
    "top": list[shapes.Load],
    "fit": shapes.Fit,
    "hosts": shapes.HostAnswers,
    "replay": shapes.Replay,
    "status": list[operating_shapes.Status],
    "nodes": list[operating_shapes.NodeList],
    "reads": list[operating_shapes.Reads],
    "foreign-changes": list[operating_shapes.ForeignChangeList],
    "resync": list[operating_shapes.ResyncedHost],
    "compare": operating_shapes.Compared,
    "agreement": operating_shapes.AgreementSum,
    "error": shapes.Failed,
}
PLAIN: Mapping[Any, Schema] = {
    str: {"type": "string"}, int: {"type": "integer"}, float: {"type": "number"}, bool: {"type": "boolean"},
    type(None): {"type": "null"}, Any: {},
}  # fmt: skip
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, Schema]:
    """Name of a question -> schema of its answer."""
    return {name: {"$schema": DIALECT, "title": name, **schema_of(kind)} for name, kind in ANSWERS.items()}


def schema_of(kind: Any) -> Schema:
    """The schema of a type: a ``TypedDict``, a list, a dictionary by strings, a union, literals, or a plain type.

    :raises TypeError: when it is none of these
    """
    if is_typeddict(kind):
        return _object(kind)
    if kind in PLAIN:
        return dict(PLAIN[kind])
    compound = COMPOUND.get(get_origin(kind))
    if compound is None:
        raise TypeError(f"{kind} has no JSON schema")
    return compound(get_args(kind))


def _object(kind: Any) -> Schema:
    hints = get_type_hints(kind, include_extras=True)
    return {
        "type": "object",
        "required": [name for name, hint in hints.items() if get_origin(hint) is not NotRequired],
        "properties": {name: schema_of(hint) for name, hint in hints.items()},
    }


def _union(members: tuple[Any, ...]) -> Schema:
    return {"anyOf": list(map(schema_of, members))}


COMPOUND: Mapping[Any, Callable[[tuple[Any, ...]], Schema]] = {
    list: lambda given: {"type": "array", "items": schema_of(given[0])},
    dict: lambda given: {"type": "object", "additionalProperties": schema_of(given[1])},
    Literal: lambda given: {"enum": list(given)},
    NotRequired: lambda given: schema_of(given[0]),
    types.UnionType: _union,
    typing.Union: _union,
}
