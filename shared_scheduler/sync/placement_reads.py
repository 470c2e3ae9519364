# SPDX-License-Identifier: Apache-2.0
"""The reads of Placement over many nodes: changed provider trees, and providers that share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from shared_scheduler.core.events import NodeDoubted, SharingRead
from shared_scheduler.model.leaves import PROVIDER
from shared_scheduler.placement.connection import PlacementError
from shared_scheduler.placement.mirror import PlacementMirror, Tree
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.sync.fleet import Fleet
from shared_scheduler.sync.flight import ReadRequest
from shared_scheduler.sync.sources import NODE

#: A read of one tree costs Placement as much as this number of providers in one list of all providers.
PROVIDERS_A_TREE = 100
#: How long an agent may take to read its providers; then the decision continues with the present rows.
AGENT_READS_S = 2.0
#: How long the agent of a node that took longer is not asked again.
AGENT_LEFT_ALONE_S = 60.0
#: The interval at which its row is checked meanwhile.
GLANCE_S = 0.01


class PlacementReads:
    """Each read may raise ``PlacementError``; events yielded before stay valid."""

    def __init__(
        self,
        mirror: PlacementMirror,
        fleet: Fleet,
        leaves_of: Callable[[str], Mapping[str, Leaf]],
        agent_speaks_for: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        """``leaves_of``: returns the row of a node."""
        self._mirror = mirror
        self._fleet = fleet
        self._leaves_of = leaves_of
        self._agent_speaks_for = agent_speaks_for
        self._clock = clock
        self._moved: set[str] = set()  # roots of agents' trees that have changed and are not compared yet
        self._lock = threading.Lock()  # guards ``_moved``, which two sources use in different threads
        self._left_alone_until_s: dict[str, float] = {}
        self._glance = threading.Event()  # never set, only waited for

    def providers(self) -> Iterator[ReadRequest]:
        """Requests nodes without an agent whose tree has changed; in a small cloud, remembers those with an agent."""
        silent, there, small = self._fleet.silent(), self._fleet.nodes(), self._fleet.small
        if not silent and not small:
            return
        if small or len(silent) * PROVIDERS_A_TREE >= len(there):
            moved = self._mirror.sweep()
        else:
            moved = self._mirror.changed_among(silent)
        with self._lock:
            self._moved = (self._moved | (moved - silent.keys())) & there if small else set()
        for node in sorted(moved & silent.keys()):
            yield ReadRequest(NODE, (silent[node], node))

    def sharing(self) -> Iterator[SharingRead]:
        """The providers that share with other trees."""
        yield SharingRead(self._mirror.sharing())

    # -- agents' trees

    def agent_trees(self) -> Iterator[NodeDoubted]:
        """Ask the agents to read whose nodes have other providers than their rows; ends when they have read."""
        now = self._clock()
        self._left_alone_until_s = {n: until_s for n, until_s in self._left_alone_until_s.items() if until_s > now}
        doubted: dict[str, Callable[[], bool]] = {}
        for node in sorted(self._moved - self._left_alone_until_s.keys()):
            with self._lock:
                self._moved.discard(node)  # before the comparison, because it may change again meanwhile
            if self._agent_speaks_for(node) and not (agrees := self._agreement_or_again(node))():
                doubted[node] = agrees
                yield NodeDoubted(node, "Placement shows other providers")
        self._wait_for(doubted)

    def _agreement_or_again(self, node: str) -> Callable[[], bool]:
        try:
            return self._agreement(node)
        except PlacementError:
            with self._lock:
                self._moved.add(node)
            raise

    def _agreement(self, node: str) -> Callable[[], bool]:
        """Returns a check whether the row has the providers that Placement has.  A tree with more or fewer providers is
        detected without reading it, which costs some calls for each provider; its agent reads it.
        """
        there = {PROVIDER + uuid for uuid in self._mirror.tree_of(node)}
        if self._providers_of(node).keys() != there:
            return lambda: self._providers_of(node).keys() == there
        return partial(self._is_as, node, self._mirror.read(node))

    def _wait_for(self, doubted: Mapping[str, Callable[[], bool]]) -> None:
        """Wait until these agents have read; an agent that takes too long delays no further decision."""
        until_s = self._clock() + AGENT_READS_S
        while (late := [node for node, agrees in doubted.items() if not agrees()]) and self._clock() < until_s:
            self._glance.wait(GLANCE_S)
        for node in late:
            self._left_alone_until_s[node] = self._clock() + AGENT_LEFT_ALONE_S

    def _is_as(self, node: str, tree: Tree) -> bool:
        """Whether the node's row has the providers of this tree."""
        return _content(self._providers_of(node)) == _content(tree.leaves)

    def _providers_of(self, node: str) -> dict[str, Leaf]:
        row = self._leaves_of(node)
        return {name: leaf for name, leaf in row.items() if name.startswith(PROVIDER)}


def _content(providers: Mapping[str, Any]) -> dict[str, tuple[object, ...]]:
    """The values that nova-compute or others write; each allocation changes the generation, so it is not included."""
    return {
        name: (leaf["parent"], leaf["inventories"], set(leaf["traits"]), set(leaf["aggregates"]))
        for name, leaf in providers.items()
    }
