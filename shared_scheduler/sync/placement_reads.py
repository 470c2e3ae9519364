# SPDX-License-Identifier: Apache-2.0
"""The reads of Placement over many nodes: which provider trees have changed, and what is shared."""

from __future__ import annotations

from collections.abc import Iterator

from shared_scheduler.core.events import SharingRead
from shared_scheduler.placement.mirror import PlacementMirror
from shared_scheduler.sync.fleet import KnownNodes
from shared_scheduler.sync.flight import ReadRequest
from shared_scheduler.sync.read_registry import NODE

#: A read of one tree costs Placement as much as this number of providers in one list of all providers.
PROVIDERS_A_TREE = 100


class PlacementReads:
    """Each read may raise ``PlacementError``; what it yielded before remains valid."""

    def __init__(self, mirror: PlacementMirror, fleet: KnownNodes) -> None:
        self._mirror = mirror
        self._fleet = fleet

    def providers(self) -> Iterator[ReadRequest]:
        """Requests nodes without an agent whose tree has changed."""
        silent = self._fleet.silent()
        if not silent:
            return
        if len(silent) * PROVIDERS_A_TREE >= len(self._fleet.nodes()):
            moved = self._mirror.sweep()
        else:
            moved = self._mirror.changed_among(silent)
        for node in sorted(moved & silent.keys()):
            yield ReadRequest(NODE, (silent[node], node))

    def sharing(self) -> Iterator[SharingRead]:
        """The providers that share with other trees."""
        yield SharingRead(self._mirror.sharing())
