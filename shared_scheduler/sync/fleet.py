# SPDX-License-Identifier: Apache-2.0
"""The compute nodes of all cells, and the number of those without an agent."""

from __future__ import annotations

from collections.abc import Callable

from shared_scheduler.sync.cell_reads import CellReads

#: The interval at which nodes without an agent are counted, which takes milliseconds for ten thousand nodes.
RECOUNT_S = 1.0


class KnownNodes:
    """``nodes_max``: the maximum number of nodes that counts as few."""

    def __init__(
        self, nodes_max: int, clock: Callable[[], float], has_unlisted: Callable[[], bool] = lambda: False
    ) -> None:
        self.cells: dict[str, CellReads] = {}  # always replaced as a whole, so that any thread may iterate over it
        #: whether the core knows nodes from messages only
        self.has_unlisted = has_unlisted
        self._nodes_max = nodes_max
        self._clock = clock
        self._counted: frozenset[frozenset[str]] = frozenset()
        self._counted_s = float("-inf")
        self._silent = 0

    @property
    def few_are_silent(self) -> bool:
        """Whether at most ``nodes_max`` nodes, but at least one, have no agent."""
        nodes = frozenset(cell.nodes for cell in self.cells.values())
        if self._is_small or nodes != self._counted or self._clock() - self._counted_s >= RECOUNT_S:
            self._silent = len(self.silent())
            self._counted, self._counted_s = nodes, self._clock()  # last: other threads use ``_silent`` from here on
        return 0 < self._silent <= self._nodes_max

    @property
    def _is_small(self) -> bool:
        return sum(len(cell.nodes) for cell in self.cells.values()) <= self._nodes_max

    def nodes(self) -> set[str]:
        """All compute nodes."""
        return {node for cell in self.cells.values() for node in cell.nodes}

    def silent(self) -> dict[str, str]:
        """All nodes without an agent: node -> cell."""
        return {node: uuid for uuid, cell in self.cells.items() for node in cell.silent()}
