# SPDX-License-Identifier: Apache-2.0
"""NUMA topology and PCI pools of a node: conversion of Nova's JSON text to leaves and cells, and the usage of claims.

Source: ``compute_nodes.numa_topology`` (NUMATopology, nova/objects/numa.py) and ``compute_nodes.pci_stats``
(PciDevicePoolList, nova/objects/pci_device_pool.py).  ``model/leaves.py`` describes the leaves.  Static leaves hold the
data that guests do not change, so a boot changes only one short list for each cell and one count for each pool.

The host judge (Nova's own fit functions) returns the ``numa.<cell>`` and ``pci.<pool>`` leaves after a claim.
``TopologyUsage`` is the difference, so that the claims of one node can be added in any order to any later state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from shared_scheduler.model import leaves as names
from shared_scheduler.protocol.messages import Leaf

#: Bytes of the identity of a pool; 32 bits are enough for the some dozens of pools of a node.
_POOL_ID_BYTES = 4
#: These keys in the dict of a pool are state; all others are its key (nova/pci/stats.py).
_POOL_STATE = frozenset({"count", "devices"})


class MalformedTopologyError(ValueError):
    """The text is not a NUMA topology or pool list of Nova 34; the error names the column and the reason."""


def unwrap(value: Any) -> Any:
    """Remove ``nova_object.*`` envelopes from a primitive, at every depth."""
    if isinstance(value, Mapping):
        inner = value.get("nova_object.data", value)
        return {key: unwrap(item) for key, item in inner.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [unwrap(item) for item in value]
    return value


def bitmap(cpus: Iterable[int]) -> str:
    """CPU numbers as a hex bitmap without prefix: ``{0, 5}`` is ``"21"``."""
    mask = 0
    for cpu in cpus:
        mask |= 1 << int(cpu)
    return format(mask, "x")


def cpus_of(bitmap_hex: str) -> frozenset[int]:
    """The inverse of ``bitmap``."""
    bits = bin(int(bitmap_hex, 16))[:1:-1]
    return frozenset(cpu for cpu, bit in enumerate(bits) if bit == "1")


def numa_leaves(text: str | None) -> dict[str, Leaf]:
    """Leaves of a ``numa_topology`` text; empty if the driver reports none.

    :raises MalformedTopologyError: when the text is not a NUMA topology
    """
    if not text:
        return {}
    cells = _parse("numa_topology", text).get("cells", [])
    try:
        found: dict[str, Leaf] = {f"{names.NUMA}{cell['id']}": _dynamic(cell) for cell in cells}
        found[names.NUMA_STATIC] = [_static(cell) for cell in cells]
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedTopologyError(f"numa_topology: a field of a cell is missing or invalid: {error}") from error
    return found


def pci_leaves(text: str | None) -> dict[str, Leaf]:
    """Leaves of a ``pci_stats`` text; pools with the same key are added.

    :raises MalformedTopologyError: when the text is not a list of pools
    """
    if not text:
        return {}
    return pool_leaves(_pools(_parse("pci_stats", text)))


def pool_leaves(pools: Iterable[Mapping[str, Any]]) -> dict[str, Leaf]:
    """Leaves of pools as dicts, whose ``tags`` may be flattened (as in PciDeviceStats.pools) or not."""
    found: dict[str, Leaf] = {}
    for pool in pools:
        key, count = pool_key(pool), int(pool.get("count", 0))
        name = pool_id(key)
        before = found.get(names.PCI + name, 0)
        found[names.PCI + name] = count + (before if isinstance(before, int) else 0)
        found[names.PCI_STATIC + name] = key
    return found


def pool_key(pool: Mapping[str, Any]) -> dict[str, Leaf]:
    """The key of a pool: everything except counts and devices, with flattened tags."""
    merged = {**pool, **(pool.get("tags") or {})}
    return {key: merged[key] for key in sorted(merged) if key not in _POOL_STATE and key != "tags"}


def pool_id(key: Mapping[str, Leaf]) -> str:
    """A short name of a pool, equal in all programs and after each restart."""
    text = json.dumps(key, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=_POOL_ID_BYTES).hexdigest()


def _parse(column: str, text: str) -> Any:
    try:
        return unwrap(json.loads(text))
    except ValueError as error:
        raise MalformedTopologyError(f"{column}: not JSON: {error}") from error


def _pools(parsed: Any) -> list[Mapping[str, Any]]:
    """The pools in an object list (current releases), or in one dict or a list of dicts (older releases)."""
    if isinstance(parsed, list):
        return parsed
    if "objects" in parsed:
        return list(parsed["objects"])
    return [parsed] if parsed else []


def _static(cell: Mapping[str, Any]) -> Leaf:
    network = cell.get("network_metadata") or {}
    return {
        "id": cell["id"],
        "socket": cell.get("socket"),
        "cpuset": sorted(cell["cpuset"]),
        "pcpuset": sorted(cell.get("pcpuset") or ()),
        "siblings": sorted(sorted(group) for group in cell.get("siblings") or ()),
        "memory": cell["memory"],
        "mempages": [[page["size_kb"], page["total"], page.get("reserved", 0)] for page in cell.get("mempages") or ()],
        "network_metadata": {
            "physnets": sorted(network.get("physnets") or ()),
            "tunneled": bool(network.get("tunneled", False)),
        },
    }


def _dynamic(cell: Mapping[str, Any]) -> Leaf:
    pages: dict[str, Leaf] = {str(page["size_kb"]): page.get("used", 0) for page in cell.get("mempages") or ()}
    return [
        cell.get("cpu_usage", 0),
        cell.get("memory_usage", 0),
        bitmap(cell.get("pinned_cpus") or ()),
        pages,
    ]


@dataclass(frozen=True, slots=True)
class HostCell:
    """One NUMA cell of a host; ``pages``: (size in KiB, total, free), smallest first."""

    shared_cpus: int
    free_pinnable: int
    memory_mb: int
    cpu_usage: int
    memory_usage: int
    pages: tuple[tuple[int, int, int], ...]


def host_cells(leaves: Mapping[str, Leaf]) -> tuple[HostCell, ...]:
    """The cells of a node; empty if its driver reports none."""
    static: Any = leaves.get(names.NUMA_STATIC) or ()
    return tuple(_host_cell(cell, leaves.get(f"{names.NUMA}{cell['id']}")) for cell in static)


def _host_cell(static: Mapping[str, Any], dynamic: Any) -> HostCell:
    values: tuple[int, int, str, dict[str, int]] = dynamic or (0, 0, "0", {})
    cpu_usage, memory_usage, pinned, used = values
    taken = int(pinned, 16)
    pages = tuple(
        (size, total, total - reserved - used.get(str(size), 0)) for size, total, reserved in sorted(static["mempages"])
    )
    return HostCell(
        shared_cpus=len(static["cpuset"]),
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


@dataclass(frozen=True, slots=True)
class CellUsage:
    """The usage of one NUMA cell by a claim.  ``pinned`` is a bit mask of CPUs; ``pages`` by size in KiB."""

    cpu_usage: int
    memory_mb: int
    pinned: int
    pages: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TopologyUsage:
    """The usage of a claim: leaf name of a cell -> usage of the cell, leaf name of a pool -> devices."""

    cells: Mapping[str, CellUsage] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def between(cls, before: Mapping[str, Leaf], after: Mapping[str, Leaf]) -> TopologyUsage:
        """The difference between the leaves before a claim and ``after``, which contains only changed leaves."""
        cells: dict[str, CellUsage] = {}
        devices: dict[str, int] = {}
        for name, now in after.items():
            was: Any = before.get(name)
            if isinstance(now, list):
                cells[name] = _cell_take(was or [0, 0, "0", {}], now)
            elif isinstance(now, int):
                devices[name] = int(was or 0) - now
        return cls(cells, devices)

    def consume_from(self, into: dict[str, Leaf]) -> None:
        """Subtract the usage from the topology leaves in ``into``; missing leaves are not added."""
        for name, take in self.cells.items():
            if isinstance(cell := into.get(name), list):
                into[name] = _taken(cell, take)
        for name, count in self.devices.items():
            if isinstance(free := into.get(name), int):
                into[name] = free - count


def _cell_take(was: Any, now: Any) -> CellUsage:
    pages = {size: used - was[3].get(size, 0) for size, used in now[3].items()}
    pinned = int(now[2], 16) & ~int(was[2], 16)
    return CellUsage(now[0] - was[0], now[1] - was[1], pinned, {size: n for size, n in pages.items() if n})


def _taken(cell: Any, take: CellUsage) -> Leaf:
    pages = {size: used + take.pages.get(size, 0) for size, used in cell[3].items()}
    pinned = format(int(cell[2], 16) | take.pinned, "x")
    return [cell[0] + take.cpu_usage, cell[1] + take.memory_mb, pinned, pages]
