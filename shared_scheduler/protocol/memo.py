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
    """Entries of the weight ``most`` together; adding one to a full memo empties it first.  Add entries only with
    ``learn``.  The weight of an entry is 1 unless large values are kept."""

    __slots__ = ("most", "was_emptied", "weight")

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.weight = 0
        #: whether the memo was ever emptied
        self.was_emptied = False

    def learn(self, key: Key, value: Value, weight: int = 1) -> Value:
        """Store ``value`` and return it."""
        if key not in self:
            if self.weight + weight > self.most:
                self.clear()
                self.weight = 0
                self.was_emptied = True
            self.weight += weight
        self[key] = value
        return value
