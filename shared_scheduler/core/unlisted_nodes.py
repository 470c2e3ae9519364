# SPDX-License-Identifier: Apache-2.0
"""Nodes that only messages name.

A new agent reports before the scheduler has read the database, so its messages are used.  The node is looked for in the
databases at once, and the next decision reads them first.  A compromised host may name nodes that do not exist, which
would take memory and the columns of traits and resource classes, and make each decision read.  Therefore, once the
database of the cell was read:

- a host has at most ``PER_HOST_MAX`` of them, and all hosts together ``UNLISTED_NODES_MAX``;
- a host of which the database did not have one names no other for ``PAUSE_S``.  If the node exists, the database
  lists it within this time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cachetools import FIFOCache

PER_HOST_MAX = 4
UNLISTED_NODES_MAX = 256
PAUSE_S = 60.0
#: hosts whose pause is remembered
PAUSED_MAX = 4096


class UnlistedNodes:
    """The nodes that no database has shown, and the host that named each first."""

    def __init__(self) -> None:
        self._host_of: dict[str, str] = {}
        self._of_host: Counter[str] = Counter()
        self._paused_until_s: FIFOCache[str, float] = FIFOCache(PAUSED_MAX)

    def __len__(self) -> int:
        return len(self._host_of)

    def __iter__(self) -> Iterator[str]:
        return iter(self._host_of)

    def __contains__(self, node: object) -> bool:
        return node in self._host_of

    def may_name_one(self, host: str, now: float) -> bool:
        """Whether a host may name one more node; ``host`` is empty if the message names none."""
        few = self._of_host[host] < PER_HOST_MAX and len(self) < UNLISTED_NODES_MAX
        return bool(host) and few and now >= self._paused_until_s.get(host, now)

    def add(self, node: str, host: str) -> None:
        """Note a node that is not in the database as far as it was read."""
        self._host_of[node] = host
        self._of_host[host] += 1

    def known(self, node: str) -> None:
        """The database has this node, or it is forgotten."""
        host = self._host_of.pop(node, None)
        if host is not None:
            self._of_host[host] -= 1
            if not self._of_host[host]:
                del self._of_host[host]

    def unknown(self, node: str, now: float) -> None:
        """A read of the database that began after the node was named does not have it."""
        self._paused_until_s[self._host_of[node]] = now + PAUSE_S

    def oldest(self) -> str | None:
        """The node that was named first; None without any."""
        return next(iter(self._host_of), None)
