# SPDX-License-Identifier: Apache-2.0
"""The state of each node, and the digests of its last versions, for a receiver that misses no message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachetools import FIFOCache

from shared_scheduler.protocol.digest import claim_hash, consumer_hash, leaf_hash, told_digest
from shared_scheduler.protocol.messages import Increment, Snapshot
from shared_scheduler.table.row import Version

#: versions of one node whose digests are remembered
VERSIONS_MAX = 2_048


class Published:
    """Follows the messages of one node as its agent sends them, before the network can lose them."""

    def __init__(self) -> None:
        self.version = Version(0, 0)
        self.digest = 0
        #: epochs of runs that the agent has forgotten: it went on in a lesser one
        self.forgotten: set[int] = set()
        self._parts: dict[tuple[str, str], int] = {}
        self._digests: FIFOCache[Version, int] = FIFOCache(VERSIONS_MAX)

    def follow(self, increment: Increment) -> bool:
        """Apply an increment.  Returns False if it is neither the next one nor a repetition."""
        version = Version(increment.epoch, increment.sequence)
        if increment.epoch != self.version.epoch:
            self._begin(increment.epoch)
        elif version <= self.version:
            return True
        elif increment.sequence != self.version.sequence + 1:
            return False
        self._take_all(increment, version)
        return True

    def see(self, snapshot: Snapshot) -> bool:
        """Apply a snapshot.  Returns False if its digest is not that of its content or of the messages before it."""
        version = Version(snapshot.epoch, snapshot.sequence)
        if version.epoch != self.version.epoch or version > self.version:
            self._begin(version.epoch)  # it covers increments that were never sent by themselves
            self._take_all(snapshot, version)
        known = self._digests.get(version)
        return known is None or known == told_digest(snapshot)

    def _begin(self, epoch: int) -> None:
        """Begin anew, usually in a greater epoch, in a lesser one if the agent lost its state."""
        if epoch < self.version.epoch:
            self.forgotten.add(self.version.epoch)
        self.digest = 0
        self._parts.clear()

    def _take_all(self, message: Increment | Snapshot, version: Version) -> None:
        self._take("leaf", message.leaves, leaf_hash)
        self._take("consumer", message.consumers, consumer_hash)
        self._take("claim", message.claims, claim_hash)
        self.version = version
        self._digests[version] = self.digest

    def _take(self, kind: str, changed: Mapping[str, Any], part_of: Any) -> None:
        for name, value in changed.items():
            part = part_of(name, value)
            self.digest ^= self._parts.pop((kind, name), 0) ^ part
            if part:
                self._parts[kind, name] = part

    def digest_at(self, version: Version) -> int | None:
        """The digest of the node at a version; None if the version is too old."""
        return self._digests.get(version)
