# SPDX-License-Identifier: Apache-2.0
"""The compute nodes of all cells, and how many of them have no agent."""

from __future__ import annotations

from collections.abc import Callable

from shared_scheduler.sync.cell_reads import CellReads

#: How often nodes without an agent are counted: for ten thousand nodes that takes milliseconds.
RECOUNT_S = 1.0


class Fleet:
    """``nodes_max``: how many nodes are few."""

    def __init__(self, nodes_max: int, clock: Callable[[], float]) -> None:
        self.cells: dict[str, CellReads] = {}  # replaced whole, so that any thread may go through it
        self._nodes_max = nodes_max
        self._clock = clock
        self._counted: frozenset[frozenset[str]] = frozenset()
        self._counted_s = float("-inf")
        self._few = False

    @property
    def small(self) -> bool:
        """Whether there are no more than ``nodes_max`` nodes."""
        return sum(len(cell.nodes) for cell in self.cells.values()) <= self._nodes_max

    @property
    def few(self) -> bool:
        """Whether no more than that, but any, have no agent, or ``small``."""
        nodes = frozenset(cell.nodes for cell in self.cells.values())
        if nodes != self._counted or self._clock() - self._counted_s >= RECOUNT_S:
            self._few = self.small or 0 < len(self.silent()) <= self._nodes_max
            self._counted, self._counted_s = nodes, self._clock()  # last: other threads believe ``_few`` from now on
        return self._few

    def nodes(self) -> set[str]:
        """All compute nodes."""
        return {node for cell in self.cells.values() for node in cell.nodes}

    def silent(self) -> dict[str, str]:
        """Node to cell of all nodes without an agent."""
        return {node: uuid for uuid, cell in self.cells.items() for node in cell.silent()}
