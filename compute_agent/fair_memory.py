# SPDX-License-Identifier: Apache-2.0
"""A bounded memory that several senders share, so that none of them makes the node forget what another has said.

When it is full, the sender with the most entries loses its oldest one.  Among senders with equally many entries, the
one that came first loses: what is remembered here matters for the seconds after it was said.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class FairMemory(Generic[K, V]):
    """Key -> value.  Each key belongs to the sender that set it first; ``entries_max`` bounds all keys together."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._values: dict[K, V] = {}
        self._sender_of: dict[K, str] = {}
        self._keys_of: dict[str, dict[K, None]] = {}  # in the order in which they were set

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def get(self, key: K) -> V | None:
        """The value; None if there is none (any more)."""
        return self._values.get(key)

    def set(self, sender: str, key: K, value: V) -> None:
        """Remember the value, and forget another one if the memory is full."""
        if key not in self._values:
            self._sender_of[key] = sender
            self._keys_of.setdefault(sender, {})[key] = None
        self._values[key] = value
        if len(self._values) > self._entries_max:
            largest = max(self._keys_of.values(), key=len)
            self.forget(next(iter(largest)))

    def forget(self, key: K) -> None:
        """Forget a key that is in the memory."""
        del self._values[key]
        sender = self._sender_of.pop(key)
        del self._keys_of[sender][key]
        if not self._keys_of[sender]:
            del self._keys_of[sender]
