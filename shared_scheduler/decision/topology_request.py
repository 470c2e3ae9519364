# SPDX-License-Identifier: Apache-2.0
"""NUMA and PCI of a request, read from its ``topology`` text without Nova's objects.

The text is ``{"numa": InstanceNUMATopology primitive or null, "pci": [InstancePCIRequest primitives], ...}``.  Only the
parts that a screen needs are read.  Parts that cannot be read reject no host, because Nova's own fit decides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared_scheduler.model.topology import unwrap

PINNED = frozenset({"dedicated", "mixed"})
KIB_PER_MIB = 1024


@dataclass(frozen=True, slots=True)
class CellAsk:
    """One NUMA cell of an instance.  ``page_kb``: a size, -1 small, -2 large, -3 any, 0 not requested."""

    shared_cpus: int
    pinned_cpus: int
    memory_mb: int
    page_kb: int
    pinned: bool
    shared: bool


@dataclass(frozen=True, slots=True)
class DeviceAsk:
    """``count`` devices that match one of the alternatives, each a set of (key, text) pairs."""

    count: int
    alternatives: tuple[frozenset[tuple[str, str]], ...]


@dataclass(frozen=True, slots=True)
class TopologyAsk:
    """The NUMA cells and PCI devices that a request asks for."""

    cells: tuple[CellAsk, ...] = ()
    devices: tuple[DeviceAsk, ...] = ()


def topology_ask(text: str) -> TopologyAsk:
    """Read a topology text; the result is empty if nothing is asked or nothing can be read."""
    if not text:
        return TopologyAsk()
    try:
        raw = unwrap(json.loads(text))
        cells = (raw.get("numa") or {}).get("cells") or ()
        return TopologyAsk(
            tuple(_cell(cell) for cell in cells),
            tuple(_devices(one) for one in raw.get("pci") or ()),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return TopologyAsk()


def _cell(cell: Mapping[str, Any]) -> CellAsk:
    policy = cell.get("cpu_policy")
    return CellAsk(
        shared_cpus=len(cell.get("cpuset") or ()),
        pinned_cpus=len(cell.get("pcpuset") or ()),
        memory_mb=cell["memory"],
        page_kb=cell.get("pagesize") or 0,
        pinned=policy in PINNED,
        shared=policy != "dedicated",
    )


#: keys of a device spec that are not properties of a pool of devices
_NO_PROPERTY = frozenset({"remote_managed", "resource_class", "traits", "rp_uuids", "live_migratable"})


def _devices(one: Mapping[str, Any]) -> DeviceAsk:
    alternatives = tuple(
        frozenset(
            (key, value.lower()) for key, value in spec.items() if isinstance(value, str) and key not in _NO_PROPERTY
        )
        for spec in one.get("spec") or ()
    )
    return DeviceAsk(one["count"], alternatives)
