# SPDX-License-Identifier: Apache-2.0
"""NUMA topology and PCI pools as Nova writes them (JSON text), cut into small absolute leaves.

Source: ``compute_nodes.numa_topology`` (NUMATopology, nova/objects/numa.py) and
``compute_nodes.pci_stats`` (PciDevicePoolList, nova/objects/pci_device_pool.py).  The shapes of
the leaves are those of ``state/leaves.py``.  What never changes while guests come and go is in the
static leaves, so that a boot moves one short list a cell and one count a pool.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.state import leaves

#: Bytes of a pool's identity: 32 bits, a node has some dozens of pools.
_POOL_ID_BYTES = 4
#: Of a pool's dict these are state, everything else is its key (nova/pci/stats.py).
_POOL_STATE = frozenset({"count", "devices"})


class MalformedTopologyError(ValueError):
    """The text is no NUMA topology or pool list that Nova 34 writes; says which column and why."""


def unwrap(value: Any) -> Any:
    """Strip ``nova_object.*`` envelopes from a primitive, at every depth."""
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
    mask, cpus, cpu = int(bitmap_hex, 16), set(), 0
    while mask:
        if mask & 1:
            cpus.add(cpu)
        mask >>= 1
        cpu += 1
    return frozenset(cpus)


def numa_leaves(text: str | None) -> dict[str, Leaf]:
    """Leaves of a ``numa_topology`` text; empty where the driver reports none."""
    if not text:
        return {}
    cells = _parse("numa_topology", text).get("cells", [])
    try:
        found: dict[str, Leaf] = {f"{leaves.NUMA}{cell['id']}": _dynamic(cell) for cell in cells}
        found[leaves.NUMA_STATIC] = [_static(cell) for cell in cells]
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedTopologyError(f"numa_topology: a cell lacks or garbles {error}") from error
    return found


def pci_leaves(text: str | None) -> dict[str, Leaf]:
    """Leaves of a ``pci_stats`` text; pools of the same key are added up."""
    if not text:
        return {}
    return pool_leaves(_pools(_parse("pci_stats", text)))


def pool_leaves(pools: Iterable[Mapping[str, Any]]) -> dict[str, Leaf]:
    """Leaves of pools as dicts, ``tags`` flattened in (as in PciDeviceStats.pools) or not."""
    found: dict[str, Leaf] = {}
    for pool in pools:
        key, count = pool_key(pool), int(pool.get("count", 0))
        name = pool_id(key)
        before = found.get(leaves.PCI + name, 0)
        found[leaves.PCI + name] = count + (before if isinstance(before, int) else 0)
        found[leaves.PCI_STATIC + name] = key
    return found


def pool_key(pool: Mapping[str, Any]) -> dict[str, Leaf]:
    """What tells one pool from another: everything but counts and devices, tags flattened in."""
    flat = {**pool, **(pool.get("tags") or {})}
    return {key: flat[key] for key in sorted(flat) if key not in _POOL_STATE and key != "tags"}


def pool_id(key: Mapping[str, Leaf]) -> str:
    """A short name that is the same wherever and whenever it is computed."""
    text = json.dumps(key, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=_POOL_ID_BYTES).hexdigest()


def _parse(column: str, text: str) -> Any:
    try:
        return unwrap(json.loads(text))
    except ValueError as error:
        raise MalformedTopologyError(f"{column}: not JSON: {error}") from error


def _pools(parsed: Any) -> list[Mapping[str, Any]]:
    """The object list of today, or one dict or a list of dicts of the days before it."""
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
        "mempages": [
            [page["size_kb"], page["total"], page.get("reserved", 0)]
            for page in cell.get("mempages") or ()
        ],
        "network_metadata": {
            "physnets": sorted(network.get("physnets") or ()),
            "tunneled": bool(network.get("tunneled", False)),
        },
    }


def _dynamic(cell: Mapping[str, Any]) -> Leaf:
    pages: dict[str, Leaf] = {
        str(page["size_kb"]): page.get("used", 0) for page in cell.get("mempages") or ()
    }
    return [
        cell.get("cpu_usage", 0),
        cell.get("memory_usage", 0),
        bitmap(cell.get("pinned_cpus") or ()),
        pages,
    ]
