# SPDX-License-Identifier: Apache-2.0
"""A bounded dictionary for results that are computed repeatedly from a small set of names or values.

It is used for lookups in every message, because its lookup is that of a ``dict``.  (``cachetools`` evicts one entry at
a time, but a lookup costs four to nine times as much.  Other caches use ``cachetools``.)
"""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Memo(dict[Key, Value]):
    """At most ``most`` entries; adding one to a full memo empties it first.  Add entries only with ``learn``."""

    __slots__ = ("most", "was_emptied")

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        #: whether the memo was ever emptied
        self.was_emptied = False

    def learn(self, key: Key, value: Value) -> Value:
        """Store ``value`` and return it."""
        if len(self) >= self.most and key not in self:
            self.clear()
            self.was_emptied = True
        self[key] = value
        return value
