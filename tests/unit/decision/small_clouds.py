# SPDX-License-Identifier: Apache-2.0
"""Small clouds and requests for the stories of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import Flavor, PlacementForm, Request
from shared_scheduler.model.resources import Inventory
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.messages import Consumer, Usage
from shared_scheduler.table.host_table import HostTable

CELL = "cell1"
SMALL = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}


def host_leaves(node: str, **changes: Any) -> dict[str, Any]:
    """8 CPUs over-committed twice, 16 GiB, 100 GB, nothing used.

    ``inventories``, ``traits`` and ``provider_aggregates`` change the root provider.
    """
    inventories = {
        "VCPU": Inventory(8, 0, 1, 8, 1, 2.0),
        "MEMORY_MB": Inventory(16384, 512, 1, 16384),
        "DISK_GB": Inventory(100, 0, 1, 100),
    } | changes.pop("inventories", {})
    provider = {
        "name": node,
        "parent": None,
        "generation": 1,
        "inventories": {rc: one.to_leaf() for rc, one in inventories.items() if one},
        "traits": sorted(changes.pop("traits", ("COMPUTE_NODE",))),
        "aggregates": sorted(changes.pop("provider_aggregates", ())),
    }
    return {
        "cn.vcpus": 8,
        "cn.vcpus_used": 0,
        "cn.memory_mb": 16384,
        "cn.free_ram_mb": 15872,
        "cn.local_gb": 100,
        "cn.free_disk_gb": 100,
        "cn.cpu_allocation_ratio": 2.0,
        "cn.hypervisor_version": 8002000,
        f"rp.{node}": provider,
    } | changes


def add_host(
    table: HostTable,
    node: str,
    *,
    host: str = "",
    cell: str = CELL,
    instances: tuple[str, ...] = (),
    used: Mapping[str, int] | None = None,
    **changes: Any,
) -> None:
    """A host that runs ``instances`` and has ``used`` of its root provider's resources."""
    host = host or node
    table.upsert(node, cell, host, node)
    table.set_service(ServiceFacts(host))
    consumers = {uuid: Consumer({}, True) for uuid in instances}
    if used:
        consumers["somebody"] = Consumer({node: dict(used)}, False)
    table.load(node, host_leaves(node, **changes), consumers)


def cloud(*nodes: str) -> HostTable:
    """Equal empty hosts."""
    table = HostTable()
    for node in nodes:
        add_host(table, node)
    return table


def small_request(**changes: Any) -> Request:
    """One CPU, 512 MiB, 1 GB."""
    values: dict[str, Any] = {
        "request_id": "req-1",
        "project_id": "project-a",
        "user_id": "user-a",
        "flavor": Flavor("m1.small", 1, 512, 1),
        "forms": (form(),),
        "usage": Usage(1, 512, 1, 1, 1),
        "instance_uuids": ("server-1",),
    }
    return Request(**(values | changes))


def form(**changes: Any) -> PlacementForm:
    """What Placement is asked for a small request."""
    return PlacementForm(SMALL, **changes)


def chosen(table: HostTable, request: Request | None = None, **settings: Any) -> list[str]:
    """The nodes of a decision, best first."""
    decider = Decider(table, DecisionSettings(**settings))
    return list(decider.decide(request or small_request()).nodes())
