# SPDX-License-Identifier: Apache-2.0
"""A bounded dictionary for what is derived from the same few names or values again and again.

It is made for lookups in every message: reading it is reading a ``dict``.  (``cachetools`` evicts one entry at a
time, but a lookup there costs four to nine times as much.  Where that does not matter, it is used instead.)
"""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Memo(dict[Key, Value]):
    """At most ``most`` entries: a new one to a full memo empties it first.  Add entries with ``learn`` only."""

    __slots__ = ("most", "was_emptied")

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        #: whether entries were ever dropped
        self.was_emptied = False

    def learn(self, key: Key, value: Value) -> Value:
        """Remember ``value`` and return it."""
        if len(self) >= self.most and key not in self:
            self.clear()
            self.was_emptied = True
        self[key] = value
        return value
