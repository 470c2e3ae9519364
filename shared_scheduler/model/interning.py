# SPDX-License-Identifier: Apache-2.0
"""Keeps one object for equal values, because ten thousand hosts have a dozen different CPU descriptions."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from shared_scheduler.model import leaves
from shared_scheduler.protocol.memo import Memo
from shared_scheduler.protocol.messages import Leaf

T = TypeVar("T")

#: different values in a pool; a full pool is emptied (values in use are not affected)
POOL_MAX = 16_384
#: A value counts once for so many characters of its key: 2 MiB of keys, whose values take ten times as much.
CHARS_OF_ONE = 128

#: leaves whose values are equal on many hosts
SHARED_LEAVES = frozenset(
    {
        "cn.cpu_info",
        "cn.supported_hv_specs",
        "cn.hypervisor_type",
        "cn.metrics",
        leaves.NUMA_STATIC,
        leaves.AGENT_MODE,
        leaves.AGENT_RELEASE,
    }
)


#: what of the values of a leaf is shared
NOTHING, PARTS, WHOLE = "nothing", "parts", "whole"


def _shares(name: str) -> str:
    if name in SHARED_LEAVES or name.startswith(leaves.PCI_STATIC):
        return WHOLE
    return PARTS if name.startswith(leaves.PROVIDER) else NOTHING


class Pool:
    """Values by the key that defines their equality."""

    def __init__(self) -> None:
        self._known: Memo[Hashable, Any] = Memo(POOL_MAX)
        #: name of a leaf -> what of its values is shared
        self._shares: Memo[str, str] = Memo(POOL_MAX)

    def same(self, key: Hashable, value: T) -> T:
        """The first value that was stored with this key."""
        found = self._known.get(key)
        return self._known.learn(key, value, _weight(key)) if found is None else found  # type: ignore[no-any-return]

    def made(self, key: Hashable, make: Callable[[], T]) -> T:
        """Like ``same``, for values that are expensive to create."""
        found = self._known.get(key)
        return self._known.learn(key, make(), _weight(key)) if found is None else found  # type: ignore[no-any-return]

    def leaf(self, name: str, value: Leaf) -> Leaf:
        """The value of a leaf, shared if many hosts have it."""
        shares = self._shares.get(name) or self._shares.learn(name, _shares(name))
        if shares is NOTHING:
            return value
        if shares is WHOLE:
            return self.same(("leaf", repr(value)), value)
        return {key: self._part(part) for key, part in value.items()} if isinstance(value, dict) else value

    def _part(self, part: Leaf) -> Leaf:
        return self.same(("part", repr(part)), part) if isinstance(part, dict | list) else part


def _weight(key: Hashable) -> int:
    """Keys of values of any size end with a text of that size."""
    text = key[-1] if isinstance(key, tuple) and key else ""
    return 1 + len(text) // CHARS_OF_ONE if isinstance(text, str) else 1
