# SPDX-License-Identifier: Apache-2.0
"""Texts of others for logs and terminals."""

from __future__ import annotations


def printable(text: str) -> str:
    """``text`` in one line without control characters, because agents, plug-ins and Placement wrote parts of it."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
