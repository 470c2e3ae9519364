# SPDX-License-Identifier: Apache-2.0
"""NUMA and PCI without Nova: one cell of CPUs to pin, one pool of devices, the leaves of the product.

A topology text is JSON: ``{"pin": 2, "nic": 1}`` wants two CPUs of its own and one device.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from shared_scheduler.model.topology import bitmap, cpus_of
from shared_scheduler.protocol.messages import Leaf, Reason, RefusalCode

CELL = "numa.0"
POOL = "pci.nic"


def cell_leaves(cpus: int, devices: int) -> dict[str, Leaf]:
    """A machine on which nothing is pinned and no device is taken."""
    static: dict[str, Leaf] = {
        "id": 0,
        "socket": 0,
        "cpuset": [*range(cpus)],
        "pcpuset": [*range(cpus)],
        "siblings": [],
        "memory": 8192,
        "mempages": [],
        "network_metadata": {"physnets": [], "tunneled": False},
    }
    return {
        "numa.static": [static],
        CELL: [0, 0, "0", {}],
        "pci.static.nic": {"vendor_id": "8086", "product_id": "10ed"},
        POOL: devices,
    }


def pinned(leaves: Mapping[str, Any]) -> frozenset[int]:
    """The CPUs that are taken."""
    return frozenset(cpus_of(leaves[CELL][2]))


class CellsFit:
    """The agent's fit, and what nova-compute does itself: the lowest free CPUs are taken."""

    def consume(self, leaves: Mapping[str, Any], topology: str) -> Mapping[str, Leaf] | Reason:
        asked = json.loads(topology)
        if "numa.static" not in leaves:
            return Reason(RefusalCode.TOPOLOGY, {"why": "nothing is known of the machine yet"})
        free = sorted(set(leaves["numa.static"][0]["cpuset"]) - pinned(leaves))
        pins, devices = asked.get("pin", 0), asked.get("nic", 0)
        if pins > len(free) or devices > leaves[POOL]:
            return Reason(RefusalCode.TOPOLOGY, {"pins": len(free), "devices": leaves[POOL]})
        usage, memory_mb, _, pages = leaves[CELL]
        taken = pinned(leaves) | set(free[:pins])
        cell: Leaf = [usage + pins, memory_mb, bitmap(taken), pages]
        return {CELL: cell, POOL: leaves[POOL] - devices}
