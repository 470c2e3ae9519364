# SPDX-License-Identifier: Apache-2.0
"""Makes leaves from a ComputeNode object of Nova: the live one of the tap, or one that nova-conductor returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared_scheduler.model import leaves as names
from shared_scheduler.model.compute_node import PLAIN_COLUMNS, leaves_from_compute_node
from shared_scheduler.protocol.messages import Leaf


def scalar_leaves(compute_node: Any, stats: Mapping[str, Any] | None = None) -> dict[str, Leaf]:
    """``cn.*`` and ``stats.*``; without NUMA and PCI.

    ``stats`` are those of the tracker, whose values are numbers; the values in the object are strings.
    """
    record = {name: _field(compute_node, name) for name in PLAIN_COLUMNS}
    record["host_ip"] = _field(compute_node, "host_ip")
    specs = _field(compute_node, "supported_hv_specs") or ()
    record["supported_instances"] = [list(spec.to_list()) for spec in specs]
    record["stats"] = _plain(stats if stats is not None else _field(compute_node, "stats") or {})
    return {name: value for name, value in leaves_from_compute_node(record).items() if value is not None}


def numa_text(compute_node: Any) -> str | None:
    """The JSON text of its NUMA topology."""
    text = _field(compute_node, "numa_topology")
    return text if isinstance(text, str) else None


def pools_of(compute_node: Any) -> list[dict[str, Any]]:
    """Its PCI pools as dicts with tags flattened in."""
    pools = _field(compute_node, "pci_device_pools") or ()
    return [dict(pool.to_dict()) for pool in pools]


def _field(compute_node: Any, name: str) -> Any:
    """None for a field that was never set, instead of a lazy load over RPC."""
    return getattr(compute_node, name) if name in compute_node else None


def _plain(stats: Mapping[str, Any]) -> dict[str, Leaf]:
    """The scalar values only; a number in a string becomes a number."""
    found: dict[str, Leaf] = {}
    for key, value in stats.items():
        if isinstance(value, str) and value.lstrip("-").isdigit():
            found[str(key)] = int(value)
        elif isinstance(value, (bool, int, float, str)):
            found[str(key)] = value
    return found


#: The one leaf that changes without Nova's lock.
FAILED_BUILDS = names.STATS + "failed_builds"
