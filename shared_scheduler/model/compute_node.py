# SPDX-License-Identifier: Apache-2.0
"""Converts a compute node record of Nova to leaves.

Both readers use it: the bulk read of the ``compute_nodes`` table, and the conductor's ComputeNode object.  Keys are the
columns of the table (nova/db/main/models.py, ComputeNode); columns with JSON text may be parsed already.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from shared_scheduler.model import leaves
from shared_scheduler.model.topology import numa_leaves, pci_leaves
from shared_scheduler.protocol.messages import Leaf

#: Columns that become ``cn.<column>`` unchanged.
PLAIN_COLUMNS = (
    "id",
    "uuid",
    "host",
    "hypervisor_hostname",
    "hypervisor_type",
    "hypervisor_version",
    "vcpus",
    "vcpus_used",
    "memory_mb",
    "memory_mb_used",
    "free_ram_mb",
    "local_gb",
    "local_gb_used",
    "free_disk_gb",
    "disk_available_least",
    "cpu_allocation_ratio",
    "ram_allocation_ratio",
    "disk_allocation_ratio",
    "running_vms",
    "current_workload",
    "cpu_info",
    "metrics",
)
#: Columns that are read for other leaves.
JSON_COLUMNS = ("host_ip", "supported_instances", "stats", "numa_topology", "pci_stats")

#: not a column: leaves of ``model/image_properties.py``, if they were read together with the record
IMAGE_COUNTS = "image_counts"


def leaves_from_compute_node(row: Mapping[str, Any]) -> dict[str, Leaf]:
    """``cn.*``, ``stats.*``, ``numa.*`` and ``pci.*`` leaves of one record.

    :raises ValueError: when a column cannot be parsed, or has another shape (``MalformedTopologyError`` among them)
    """
    try:
        return _leaves(row)
    except (AttributeError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(f"compute_nodes of {row.get('host')}: a column of another shape: {error!r}") from error


def _leaves(row: Mapping[str, Any]) -> dict[str, Leaf]:
    found: dict[str, Leaf] = {leaves.COMPUTE_NODE + column: row.get(column) for column in PLAIN_COLUMNS}
    host_ip = row.get("host_ip")
    found[leaves.COMPUTE_NODE + "host_ip"] = None if host_ip is None else str(host_ip)
    found[leaves.COMPUTE_NODE + "supported_hv_specs"] = _parsed(row, "supported_instances", [])
    stats: Mapping[str, Leaf] = _parsed(row, "stats", {})
    found.update({leaves.STATS + key: value for key, value in stats.items()})
    found.update(numa_leaves(row.get("numa_topology")))
    found.update(pci_leaves(row.get("pci_stats")))
    found.update(row.get(IMAGE_COUNTS) or {})
    return found


def _parsed(row: Mapping[str, Any], column: str, empty: Any) -> Any:
    value = row.get(column)
    if not isinstance(value, str):
        return value or empty
    try:
        return json.loads(value) or empty
    except ValueError as error:
        where = f"compute_nodes.{column} of {row.get('host')}"
        raise ValueError(f"{where}: not JSON: {error}") from error
