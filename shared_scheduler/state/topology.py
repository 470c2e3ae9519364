# SPDX-License-Identifier: Apache-2.0
"""What one claim changes in the topology leaves of a node, as something that can be added.

The host judge (Nova's own fit functions) says which ``numa.<cell>`` and ``pci.<pool>`` leaves a claim
leaves behind.  Kept as differences, the claims of one node add up in any order, on any later state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared_scheduler.protocol.messages import Leaf


@dataclass(frozen=True, slots=True)
class CellTake:
    """What is taken of one NUMA cell.  ``pinned`` is a bit mask of CPUs, ``pages`` by size in KiB."""

    cpu_usage: int
    memory_mb: int
    pinned: int
    pages: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TopologyTake:
    """What a claim takes: leaf name of a cell -> share, leaf name of a pool -> devices."""

    cells: Mapping[str, CellTake] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def between(cls, before: Mapping[str, Leaf], after: Mapping[str, Leaf]) -> TopologyTake:
        """From the leaves before a claim to those of ``after``, which names the changed ones only."""
        cells: dict[str, CellTake] = {}
        devices: dict[str, int] = {}
        for name, now in after.items():
            was: Any = before.get(name)
            if isinstance(now, list):
                cells[name] = _cell_take(was or [0, 0, "0", {}], now)
            elif isinstance(now, int):
                devices[name] = int(was or 0) - now
        return cls(cells, devices)

    def add_to(self, into: dict[str, Leaf]) -> None:
        """Take it from the topology leaves in ``into``; leaves that are not there stay away."""
        for name, take in self.cells.items():
            if isinstance(cell := into.get(name), list):
                into[name] = _taken(cell, take)
        for name, count in self.devices.items():
            if isinstance(free := into.get(name), int):
                into[name] = free - count


def _cell_take(was: Any, now: Any) -> CellTake:
    pages = {size: used - was[3].get(size, 0) for size, used in now[3].items()}
    pinned = int(now[2], 16) & ~int(was[2], 16)
    return CellTake(
        now[0] - was[0], now[1] - was[1], pinned, {size: n for size, n in pages.items() if n}
    )


def _taken(cell: Any, take: CellTake) -> Leaf:
    pages = {size: used + take.pages.get(size, 0) for size, used in cell[3].items()}
    pinned = format(int(cell[2], 16) | take.pinned, "x")
    return [cell[0] + take.cpu_usage, cell[1] + take.memory_mb, pinned, pages]
