# SPDX-License-Identifier: Apache-2.0
"""The operators of flavor extra specs (documented by nova/scheduler/filters/extra_specs_ops.py).

A requirement is ``<operator> <word>...``; without a known operator the value must equal the text.
``=`` means ``>=`` for numbers, for historical reasons; ``<or>`` precedes each of its words.

One difference: in Nova, ``float("abc")`` fails the whole request; here, a text that is not a number does not satisfy
a numeric operator.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

_NUMERIC: dict[str, Callable[[float, float], bool]] = {
    "=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
}
_TEXTUAL: dict[str, Callable[[str, str], bool]] = {
    "<in>": lambda value, word: word in value,
    "s==": operator.eq,
    "s!=": operator.ne,
    "s<": operator.lt,
    "s<=": operator.le,
    "s>": operator.gt,
    "s>=": operator.ge,
}


def satisfies(value: str, requirement: str) -> bool:
    """Whether ``value`` meets ``requirement``."""
    name, *words = requirement.split() or [""]
    if name == "<or>":
        return value in words[::2]
    if name == "<all-in>":
        return bool(words) and all(word in value for word in words)
    if name in _NUMERIC:
        return bool(words) and _compares(_NUMERIC[name], value, words[0])
    if name in _TEXTUAL:
        return bool(words) and _TEXTUAL[name](value, words[0])
    return value == requirement


def _compares(compare: Callable[[float, float], bool], value: str, word: str) -> bool:
    try:
        return compare(float(value), float(word))
    except ValueError:
        return False
