# SPDX-License-Identifier: Apache-2.0
"""Adds readable moments to the JSON of an answer, whose own moments are seconds since 1970."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared_scheduler.records.moments import iso

#: fields of an answer that are lists of entries with moments
LISTS = ("records", "nova", "differences", "changes")
#: ends of the names of moments
ENDS = ("at", "at_s")


def timed(answer: Any) -> Any:
    """The answer with ``time`` beside each ``at`` and ``since_time`` beside each ``since_at``, in ISO 8601 with the
    zone; fields of records that hold no moments are as before."""
    if isinstance(answer, list):
        return list(map(timed, answer))
    if not isinstance(answer, Mapping):
        return answer
    times = {
        name: iso(value) for key, value in answer.items() for name in [_time_of(key)] if name and _is_moment(value)
    }
    lists = {name: timed(answer[name]) for name in LISTS if isinstance(answer.get(name), list)}
    return {**answer, **lists, **times}


def _time_of(key: str) -> str:
    """The name of the readable moment beside this field; empty if it is none."""
    return next((f"{key.removesuffix(end)}time" for end in ENDS if key == end or key.endswith(f"_{end}")), "")


def _is_moment(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
