# SPDX-License-Identifier: Apache-2.0
"""One object for equal values: ten thousand hosts have a dozen different CPU descriptions."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from shared_scheduler.model import leaves
from shared_scheduler.protocol.memo import Memo
from shared_scheduler.protocol.messages import Leaf

T = TypeVar("T")

#: different values a pool remembers; it starts afresh beyond (values in use stay as they are)
POOL_MAX = 16_384

#: leaves whose values many hosts have in common
SHARED_LEAVES = frozenset(
    {
        "cn.cpu_info",
        "cn.supported_hv_specs",
        "cn.hypervisor_type",
        "cn.metrics",
        leaves.NUMA_STATIC,
        leaves.AGENT_MODE,
    }
)


class Pool:
    """Values by what they are equal by."""

    def __init__(self) -> None:
        self._known: Memo[Hashable, Any] = Memo(POOL_MAX)

    def same(self, key: Hashable, value: T) -> T:
        """The first value that came with this key."""
        found = self._known.get(key)
        return self._known.learn(key, value) if found is None else found  # type: ignore[no-any-return]

    def made(self, key: Hashable, make: Callable[[], T]) -> T:
        """As ``same``, for values that are costly to make."""
        found = self._known.get(key)
        return self._known.learn(key, make()) if found is None else found  # type: ignore[no-any-return]

    def leaf(self, name: str, value: Leaf) -> Leaf:
        """A leaf's value, shared where many hosts have it."""
        if name in SHARED_LEAVES or name.startswith(leaves.PCI_STATIC):
            return self.same(("leaf", repr(value)), value)
        if name.startswith(leaves.PROVIDER) and isinstance(value, dict):
            return {key: self._part(part) for key, part in value.items()}
        return value

    def _part(self, part: Leaf) -> Leaf:
        return self.same(("part", repr(part)), part) if isinstance(part, dict | list) else part
