# SPDX-License-Identifier: Apache-2.0
"""Keeps one object for equal values, because ten thousand hosts have a dozen different CPU descriptions."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

import msgpack

from shared_scheduler.model import leaves
from shared_scheduler.protocol.memo import Memo
from shared_scheduler.protocol.messages import Leaf

T = TypeVar("T")

#: different values in a pool; a full pool is emptied (values in use are not affected)
POOL_MAX = 16_384
#: A value counts once for so many bytes of its key: 1 MiB of keys, whose values take twenty times as much.
BYTES_OF_ONE = 64

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


def key_of(value: Any) -> bytes | str:
    """A key that only equal values of equal types have.  It takes a fifth of the time of ``repr``, which writes each
    number in decimal digits."""
    try:
        return cast(bytes, msgpack.packb(value))
    except (TypeError, ValueError, OverflowError):  # a database may hold what no message can
        return repr(value)


def _shares(name: str) -> str:
    if name in SHARED_LEAVES or name.startswith(leaves.PCI_STATIC):
        return WHOLE
    return PARTS if name.startswith(leaves.PROVIDER) else NOTHING


class Pool:
    """Values by the key that defines their equality."""

    def __init__(self) -> None:
        self._known: Memo[Hashable, Any] = Memo(POOL_MAX)
        #: name of a leaf -> what of its values is shared, for names that were asked for
        self.shares: Memo[str, str] = Memo(POOL_MAX)

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
        shares = self.shares.get(name) or self.shares.learn(name, _shares(name))
        if shares is NOTHING:
            return value
        if shares is WHOLE:
            return self.same(("leaf", key_of(value)), value)
        return {key: self._part(part) for key, part in value.items()} if isinstance(value, dict) else value

    def _part(self, part: Leaf) -> Leaf:
        return self.same(("part", key_of(part)), part) if isinstance(part, dict | list) else part


def _weight(key: Hashable) -> int:
    """Keys of values of any size end with bytes, or a text, of that size."""
    last = key[-1] if isinstance(key, tuple) and key else ""
    return 1 + len(last) // BYTES_OF_ONE if isinstance(last, bytes | str) else 1
