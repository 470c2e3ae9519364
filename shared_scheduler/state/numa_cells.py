# SPDX-License-Identifier: Apache-2.0
"""The NUMA cells of a host, read from its ``numa.*`` leaves (``state/leaves.py``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.state import leaves as names


@dataclass(frozen=True, slots=True)
class HostCell:
    """One NUMA cell of a host; ``pages``: (size in KiB, total, free), smallest first."""

    shared_cpus: int
    pinnable_cpus: int
    free_pinnable: int
    memory_mb: int
    cpu_usage: int
    memory_usage: int
    pages: tuple[tuple[int, int, int], ...]


def host_cells(leaves: Mapping[str, Leaf]) -> tuple[HostCell, ...]:
    """The cells of a node; empty where its driver reports none."""
    static: Any = leaves.get(names.NUMA_STATIC) or ()
    return tuple(_host_cell(cell, leaves.get(f"{names.NUMA}{cell['id']}")) for cell in static)


def _host_cell(static: Mapping[str, Any], dynamic: Any) -> HostCell:
    values: tuple[int, int, str, dict[str, int]] = dynamic or (0, 0, "0", {})
    cpu_usage, memory_usage, pinned, used = values
    taken = int(pinned, 16)
    pages = tuple(
        (size, total, total - reserved - used.get(str(size), 0))
        for size, total, reserved in sorted(static["mempages"])
    )
    return HostCell(
        shared_cpus=len(static["cpuset"]),
        pinnable_cpus=len(static["pcpuset"]),
        free_pinnable=_free(static["pcpuset"], taken),
        memory_mb=static["memory"],
        cpu_usage=cpu_usage,
        memory_usage=memory_usage,
        pages=pages,
    )


def _free(cpus: Sequence[int], taken: int) -> int:
    return sum(1 for cpu in cpus if not taken >> cpu & 1) if taken else len(cpus)


def has_threads(leaves: Mapping[str, Leaf]) -> bool:
    """Whether any core of the node has more than one thread."""
    static: Any = leaves.get(names.NUMA_STATIC) or ()
    return any(len(group) > 1 for cell in static for group in cell["siblings"])
