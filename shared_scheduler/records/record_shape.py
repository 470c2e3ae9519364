# SPDX-License-Identifier: Apache-2.0
"""Which lines are records.  A file may have been cut, changed, or sent by somebody; what is none is skipped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

#: the last second of the year 9999, which the last calendars know
AT_MAX_S = 253_402_300_799

NUMBER = (int, float)
SIDE = {"hosts": [str], "error": str}
HELD = {"servers": int, "pending": int, "amounts": {str: int},
        "largest": [{"server": str, "amounts": {str: int}, "pending": bool, "project_id": str}]}  # fmt: skip
BEST = {"host": str, "weight": NUMBER, "epoch": int, "sequence": int, "shares": {str: NUMBER}}
NEAR = {"host": str, "code": str, "detail": dict, "epoch": int, "sequence": int, "source": str,
        "age_s": (*NUMBER, type(None)), "held": HELD}  # fmt: skip
#: The types of fields that commands use; a record may have fewer fields, and others.  A tuple: one of these types; a
#: list: all entries are like this; a mapping from ``str``: all values are like this.
SHAPE: Mapping[str, Any] = {
    **dict.fromkeys(("kind", "scheduler", "request_id", "global_request_id", "project_id", "user_id"), str),
    "result": str, "reason": str, "reasons": {str: int}, "instances": [str], "hosts": [str],
    "asked": {"instances": [str], "forms": [{"resources": {str: int}}], "user_id": str, "move": (str, type(None))},
    "decisions": [{"hosts": int, "survivors": int, "reasons": {str: int}, "best": [BEST], "chosen": BEST}],
    "attempts": [{"host": str, "outcome": str, "detail": dict,
                  "verdict_ms": (*NUMBER, type(None)), "write_ms": (*NUMBER, type(None)), "after_decisions": int,
                  "held": HELD}],
    "near": [NEAR], "rejected": [NEAR],
    "missing": {str: [NUMBER]}, "source": str, "answer": [[str]],
    "ours": SIDE, "stock": SIDE, "epoch": int, "sequence": int, "increments": int,
    "seen_by": str,
}  # fmt: skip
#: fields of an entry of a list without which it is none
REQUIRED = {"attempts": ("host", "outcome"), "near": ("host", "code", "detail"), "rejected": ("host", "code", "detail")}


def read_record(text: bytes | str) -> dict[str, Any] | None:
    """The record of a line; None if it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and _is_moment(found.get("at")) and _is_whole(found) else None


def _is_moment(at_s: Any) -> bool:
    return isinstance(at_s, NUMBER) and 0 <= at_s <= AT_MAX_S


def _is_whole(record: Mapping[str, Any]) -> bool:
    entries = ((names, entry) for field, names in REQUIRED.items() for entry in record.get(field, ()))
    return _is_like(record, SHAPE) and all(name in entry for names, entry in entries for name in names)


def _is_like(value: Any, shape: Any) -> bool:
    match shape:
        case [each] if isinstance(shape, list):
            return isinstance(value, list) and all(_is_like(one, each) for one in value)
        case Mapping() if str in shape:
            return isinstance(value, Mapping) and all(_is_like(one, shape[str]) for one in value.values())
        case Mapping():
            names = value.keys() & shape if isinstance(value, Mapping) else ()
            return isinstance(value, Mapping) and all(_is_like(value[name], shape[name]) for name in names)
    return isinstance(value, shape)
