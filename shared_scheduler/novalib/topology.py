# SPDX-License-Identifier: Apache-2.0
"""The NUMA and PCI fit by Nova's own functions, on objects that are rebuilt from the leaves.

The request is the JSON text of a claim's ``topology``::

    {"numa": InstanceNUMATopology primitive or null,
     "limits": NUMATopologyLimits primitive or null,
     "pci": [InstancePCIRequest primitive, ...],
     "mappings": {request group: [provider uuid, ...]}}

nova-compute computes the fit again when it claims, and may pin other CPUs of the same cells.  Therefore the result is
used only while the claim is pending; then the leaves of the resource tracker replace it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import perm
from typing import Any

from nova import exception, objects
from nova.objects import fields
from nova.objects.base import NovaObject
from nova.pci import whitelist
from nova.pci.stats import PciDeviceStats
from nova.virt import hardware

from shared_scheduler.model import leaves as names
from shared_scheduler.model.topology import cpus_of, numa_leaves, pool_id, pool_key, pool_leaves
from shared_scheduler.protocol.messages import Leaf, Reason, RefusalCode

#: Types of devices whose parent (a physical function) cannot be used any more when one of them is taken.
_CHILDREN = frozenset({fields.PciDeviceType.SRIOV_VF, fields.PciDeviceType.VDPA})

#: Longest text of an error in a refusal.
WHY_CHARS = 500

#: Arrangements of NUMA cells that Nova may try for one host.  They take some seconds, in which the scheduler decides
#: nothing else.  Guests of three cells may be tried on 64 cells, of four on 33, of eight on nine.
ARRANGEMENTS_MAX = 1_000_000
#: If devices are asked for, Nova compares each pool for each arrangement of cells that fit.  A comparison takes as long
#: as so many arrangements.
POOL_COST = 10

objects.register_all()


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """A parsed topology request."""

    numa: Any  # objects.InstanceNUMATopology or None
    limits: Any  # objects.NUMATopologyLimits or None
    pci: list[Any]  # objects.InstancePCIRequest
    mappings: dict[str, list[str]] | None


def topology_text(numa: Any, limits: Any, pci: Iterable[Any], mappings: Mapping[str, Iterable[str]] | None) -> str:
    """The request for ``consume``; empty if it asks for neither NUMA nor PCI."""
    requests = list(pci)
    if numa is None and not requests:
        return ""
    return json.dumps(
        {
            "numa": None if numa is None else numa.obj_to_primitive(),
            "limits": None if limits is None else limits.obj_to_primitive(),
            "pci": [request.obj_to_primitive() for request in requests],
            "mappings": {key: list(value) for key, value in (mappings or {}).items()},
        }
    )


def parse(text: str) -> TopologyRequest:
    """The topology request in a claim.

    :raises ValueError: when the text is not valid; the error says why
    """
    try:
        raw = json.loads(text)
        return TopologyRequest(
            numa=_object(raw.get("numa"), objects.InstanceNUMATopology),
            limits=_object(raw.get("limits"), objects.NUMATopologyLimits),
            pci=[_object(one, objects.InstancePCIRequest) for one in raw.get("pci") or ()],
            mappings=raw.get("mappings") or None,
        )
    except Exception as error:  # versioned objects raise various errors for an invalid primitive
        raise ValueError(f"topology request: {type(error).__name__}: {error}") from error


def _object(primitive: Any, kind: type[Any]) -> Any:
    """:raises TypeError: when it is an object of another class"""
    if primitive is None:
        return None
    found = NovaObject.obj_from_primitive(primitive)
    if not isinstance(found, kind):
        raise TypeError(f"{kind.__name__} was expected, not {type(found).__name__}")
    return found


def topology_leaves(numa_text: str | None, pools: Iterable[Mapping[str, Any]]) -> dict[str, Leaf]:
    """All NUMA and PCI leaves of a resource tracker: ``cn.numa_topology`` and its stats' pools."""
    pools = list(pools)
    found = numa_leaves(numa_text)
    found.update(pool_leaves(pools))
    if pools:
        found[names.PCI_ORDER] = list(dict.fromkeys(pool_id(pool_key(pool)) for pool in pools))
    return found


def host_topology(leaves: Mapping[str, Leaf]) -> Any:
    """The ``objects.NUMATopology`` of the leaves; None if the node has none."""
    static: Any = leaves.get(names.NUMA_STATIC)
    if not static:
        return None
    return objects.NUMATopology(cells=[_cell(cell, leaves.get(f"{names.NUMA}{cell['id']}")) for cell in static])


def _cell(static: Mapping[str, Any], dynamic: Any) -> Any:
    values: tuple[int, int, str, dict[str, int]] = dynamic or (0, 0, "0", {})
    cpu_usage, memory_usage, pinned, used = values
    network = static["network_metadata"]
    return objects.NUMACell(
        id=static["id"],
        socket=static["socket"],
        cpuset=set(static["cpuset"]),
        pcpuset=set(static["pcpuset"]),
        siblings=[set(group) for group in static["siblings"]],
        memory=static["memory"],
        cpu_usage=cpu_usage,
        memory_usage=memory_usage,
        pinned_cpus=set(cpus_of(pinned)),
        mempages=[
            objects.NUMAPagesTopology(size_kb=size_kb, total=total, reserved=reserved, used=used.get(str(size_kb), 0))
            for size_kb, total, reserved in static["mempages"]
        ],
        network_metadata=objects.NetworkMetadata(physnets=set(network["physnets"]), tunneled=network["tunneled"]),
    )


class Pools(PciDeviceStats):  # type: ignore[misc]
    """Nova's pools of one host for one decision, which compares them in a bounded number of arrangements of cells.

    Nova copies these for each arrangement of cells, and changes the pools of the copy only.
    """

    compared = 0

    @property
    def exhausted(self) -> bool:
        """Whether an arrangement was refused that was not compared."""
        return self.compared * POOL_COST > ARRANGEMENTS_MAX

    def support_requests(self, requests: Any, provider_mapping: Any, numa_cells: Any = None) -> bool:
        """See ``PciDeviceStats``.  False also if too many arrangements were compared."""
        if numa_cells is not None and len(numa_cells) > 1:
            self.compared += len(self.pools)
        return not self.exhausted and bool(super().support_requests(requests, provider_mapping, numa_cells))

    def uncounted(self) -> Pools:
        """The same pools for another decision."""
        found = copy.copy(self)
        found.compared = 0
        return found

    def __deepcopy__(self, _memo: Any) -> Pools:
        found = copy.copy(self)
        found.pools = [dict(pool) for pool in self.pools]
        return found


def arrangements(leaves: Mapping[str, Leaf], asked_cells: int) -> int:
    """How many Nova may have to try until it knows that a guest with so many cells does not fit."""
    static: Any = leaves.get(names.NUMA_STATIC) or ()
    return perm(len(static), asked_cells)


def pci_stats(leaves: Mapping[str, Leaf]) -> Pools:
    """Nova's ``PciDeviceStats`` with the pools of the leaves, in nova-compute's order."""
    stats = Pools(host_topology(leaves), dev_filter=whitelist.Whitelist([]))
    pools: list[dict[str, Any]] = [
        {**key, "count": leaves.get(names.PCI + pool, 0)} for pool, key in _pool_keys(leaves).items()
    ]
    stats.pools = sorted(pools, key=len)
    return stats


def _pool_keys(leaves: Mapping[str, Leaf]) -> dict[str, dict[str, Any]]:
    keys: dict[str, Any] = {
        name.removeprefix(names.PCI_STATIC): key
        for name, key in sorted(leaves.items())
        if name.startswith(names.PCI_STATIC)
    }
    order: Any = leaves.get(names.PCI_ORDER) or ()
    ordered = [pool for pool in order if pool in keys]
    return {pool: keys[pool] for pool in dict.fromkeys([*ordered, *keys])}


class NovaTopologyFit:
    """The ``TopologyFit`` of the agent's ledger."""

    def consume(self, leaves: Mapping[str, Leaf], topology: str) -> dict[str, Leaf] | Reason:
        return consume(leaves, topology)


def consume(leaves: Mapping[str, Leaf], topology: str) -> dict[str, Leaf] | Reason:
    """Consume ``topology`` from ``leaves``: returns the changed leaves with their new values, or the reason why not.

    A request that Nova's functions cannot process is refused, because other claims are judged in the same step.
    """
    try:
        return _consumed(leaves, parse(topology))
    except Exception as error:  # Nova's functions raise various errors for an object without a field
        why = f"{type(error).__name__}: {error}"[:WHY_CHARS]
        return Reason(RefusalCode.MALFORMED, {"field": "topology", "why": why})


def _consumed(leaves: Mapping[str, Leaf], asked: TopologyRequest) -> dict[str, Leaf] | Reason:
    host, stats = host_topology(leaves), pci_stats(leaves)
    fitted = _fit(host, stats, asked)
    if isinstance(fitted, Reason):
        return fitted
    changed = _numa_taken(leaves, host, fitted)
    return changed | _pci_taken(leaves, stats, asked, fitted)


def _fit(host: Any, stats: PciDeviceStats, asked: TopologyRequest) -> Any:
    """The fitted InstanceNUMATopology, a Reason, or None if there is nothing to fit.

    As in nova-compute, a host without cells accepts guests with cells, without a check and without counting them.
    """
    if asked.numa is None or host is None:
        if asked.pci and not stats.support_requests(asked.pci, asked.mappings):
            return Reason(RefusalCode.TOPOLOGY, {"why": "PCI devices", "pools": _free(stats)})
        return None
    fitted = hardware.numa_fit_instance_to_host(
        host,
        asked.numa,
        provider_mapping=asked.mappings,
        limits=asked.limits,
        pci_requests=asked.pci or None,
        pci_stats=stats,
    )
    if fitted is None:
        detail: dict[str, Leaf] = {"why": "NUMA cells", "asked": _wanted(asked), "free": _room(host)}
        if asked.pci:
            detail |= {"why": "NUMA cells with PCI devices", "pools": _free(stats)}
        return Reason(RefusalCode.TOPOLOGY, detail)
    return fitted


def _numa_taken(leaves: Mapping[str, Leaf], host: Any, fitted: Any) -> dict[str, Leaf]:
    if fitted is None:
        return {}
    after = hardware.numa_usage_from_instance_numa(host, fitted)
    return {
        name: value
        for name, value in numa_leaves(after._to_json()).items()
        if name != names.NUMA_STATIC and leaves.get(name) != value
    }


def _pci_taken(
    leaves: Mapping[str, Leaf], stats: PciDeviceStats, asked: TopologyRequest, fitted: Any
) -> dict[str, Leaf]:
    if not asked.pci:
        return {}
    before = {pool_id(pool_key(pool)): (pool["count"], dict(pool)) for pool in stats.pools}
    try:
        stats.apply_requests(asked.pci, asked.mappings, fitted.cells if fitted else None)
    except exception.PciDeviceRequestFailed:  # the same copy supported the request just before
        return {}
    after = {pool_id(pool_key(pool)): pool["count"] for pool in stats.pools}
    taken = {pool for pool, (count, _) in before.items() if after.get(pool, 0) < count}
    changed = {names.PCI + pool: after.get(pool, 0) for pool in taken}
    keys = {pool: key for pool, (_, key) in before.items()}
    return changed | {names.PCI + pool: 0 for pool in _relatives(keys, taken)}


def _relatives(keys: Mapping[str, Mapping[str, Any]], taken: Iterable[str]) -> set[str]:
    """Pools that nova-compute empties as well: the parent of a taken child, and the children of a taken parent.

    The ``address`` of a pool is that of the physical function, both for parents and for children
    (nova/pci/stats.py, ``_create_pool_keys_from_dev``).
    """
    found = set()
    for pool in taken:
        address, kind = keys[pool].get("address"), keys[pool].get("dev_type")
        for other, key in keys.items():
            if address is None or key.get("address") != address:
                continue
            pair = {kind, key.get("dev_type")}
            if fields.PciDeviceType.SRIOV_PF in pair and pair & _CHILDREN:
                found.add(other)
    return found


def _wanted(asked: TopologyRequest) -> Leaf:
    return [
        {"cpus": len(cell.cpuset), "pinned": len(cell.pcpuset), "memory_mb": cell.memory} for cell in asked.numa.cells
    ]


def _room(host: Any) -> Leaf:
    return [
        {
            "cell": cell.id,
            "free_pinned": len(cell.free_pcpus),
            "free_memory_mb": cell.avail_memory,
        }
        for cell in host.cells
    ]


def _free(stats: PciDeviceStats) -> Leaf:
    return [
        {"product_id": pool.get("product_id"), "address": pool.get("address"), "count": pool["count"]}
        for pool in stats.pools
    ]
