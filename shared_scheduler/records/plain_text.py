# SPDX-License-Identifier: Apache-2.0
"""Texts of others for logs and terminals."""

from __future__ import annotations

from collections.abc import Iterable


def printable(text: str) -> str:
    """``text`` in one line without control characters, because agents, plug-ins and Placement wrote parts of it."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def listed(names: Iterable[str]) -> str:
    """The names, each once: ``c1``, ``c1 and c2``, ``c1, c2 and c3``."""
    *others, last = dict.fromkeys(names) or ("",)
    return f"{', '.join(others)} and {last}" if others else last
