# SPDX-License-Identifier: Apache-2.0
"""What a receiver that misses nothing would hold of each node, at each of its last versions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from shared_scheduler.protocol.digest import claim_hash, consumer_hash, leaf_hash
from shared_scheduler.protocol.messages import Increment, Snapshot
from shared_scheduler.state.row import Version

#: versions of one node whose digests are remembered
VERSIONS_MAX = 2_048


class Published:
    """Follows the increments of one node as they leave its agent, before the network has them."""

    def __init__(self) -> None:
        self.version = Version(0, 0)
        self.digest = 0
        self._parts: dict[tuple[str, str], int] = {}
        self._digests: OrderedDict[Version, int] = OrderedDict()

    def follow(self, increment: Increment) -> bool:
        """Take an increment; False if it is neither the next one nor a repetition."""
        version = Version(increment.epoch, increment.sequence)
        if increment.epoch != self.version.epoch:
            self._begin()
        elif version <= self.version:
            return True
        elif increment.sequence != self.version.sequence + 1:
            return False
        self._take_all(increment, version)
        return True

    def see(self, snapshot: Snapshot) -> bool:
        """Take a snapshot; False if its digest is not that of its content, or of what was sent."""
        version = Version(snapshot.epoch, snapshot.sequence)
        if version.epoch != self.version.epoch or version > self.version:
            self._begin()  # it covers increments that were never sent by themselves
            self._take_all(snapshot, version)
        known = self._digests.get(version)
        return known is None or known == snapshot.digest

    def _begin(self) -> None:
        """A new life: mostly in a greater epoch, in a lesser one if the agent lost its memory."""
        self.digest = 0
        self._parts.clear()

    def _take_all(self, message: Increment | Snapshot, version: Version) -> None:
        self._take("leaf", message.leaves, leaf_hash)
        self._take("consumer", message.consumers, consumer_hash)
        self._take("claim", message.claims, claim_hash)
        self.version = version
        self._digests[version] = self.digest
        if len(self._digests) > VERSIONS_MAX:
            self._digests.popitem(last=False)

    def _take(self, kind: str, changed: Mapping[str, Any], part_of: Any) -> None:
        for name, value in changed.items():
            part = part_of(name, value)
            self.digest ^= self._parts.pop((kind, name), 0) ^ part
            if part:
                self._parts[kind, name] = part

    def digest_at(self, version: Version) -> int | None:
        """The digest of the node at a version; None if that is too long ago."""
        return self._digests.get(version)
