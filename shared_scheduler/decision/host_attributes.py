# SPDX-License-Identifier: Apache-2.0
"""The attributes of Nova's HostState that operators name in extra specs and JSON hints.

Names and types are Nova's (nova/scheduler/host_manager.py), because ``capabilities:free_ram_mb`` and
``$free_ram_mb`` are written against them.  Attributes that hold objects of Nova are ``OPAQUE``: a host
is not refused here because of one, Nova's own filter looks at it when the host is tried.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from shared_scheduler.state.view import HostView


class _Opaque:
    """A value that only Nova's own objects can show."""


OPAQUE = _Opaque()


def _leaf(name: str, empty: Any = None) -> Callable[[HostView], Any]:
    return lambda view: view.leaves.get(name, empty)


def _number(name: str) -> Callable[[HostView], Any]:
    return lambda view: 0 if view.numbers is None else getattr(view.numbers, name)


def _opaque(view: HostView) -> Any:
    return OPAQUE


_KNOWN: Mapping[str, Callable[[HostView], Any]] = {
    "host": lambda view: view.host,
    "nodename": lambda view: view.nodename,
    "uuid": lambda view: view.node,
    "cell_uuid": lambda view: view.cell,
    "total_usable_ram_mb": _leaf("cn.memory_mb", 0),
    "total_usable_disk_gb": _leaf("cn.local_gb", 0),
    "disk_mb_used": lambda view: int(view.leaves.get("cn.local_gb_used") or 0) * 1024,  # type: ignore[arg-type]
    "free_ram_mb": _number("free_ram_mb"),
    "free_disk_mb": _number("free_disk_mb"),
    "vcpus_total": _number("vcpus_total"),
    "vcpus_used": _number("vcpus_used"),
    "num_instances": _number("num_instances"),
    "num_io_ops": _number("num_io_ops"),
    "failed_builds": _number("failed_builds"),
    "cpu_allocation_ratio": _number("cpu_allocation_ratio"),
    "ram_allocation_ratio": lambda view: (
        view.leaves.get("cn.ram_allocation_ratio") or view.ratios.ram
    ),
    "disk_allocation_ratio": lambda view: (
        view.leaves.get("cn.disk_allocation_ratio") or view.ratios.disk
    ),
    "host_ip": _leaf("cn.host_ip"),
    "hypervisor_type": _leaf("cn.hypervisor_type"),
    "hypervisor_version": _leaf("cn.hypervisor_version"),
    "hypervisor_hostname": _leaf("cn.hypervisor_hostname"),
    "cpu_info": _leaf("cn.cpu_info"),
    "supported_instances": _leaf("cn.supported_hv_specs", []),
    "stats": lambda view: stats(view),
    "limits": lambda view: {},
    "pci_stats": _opaque,
    "numa_topology": _opaque,
    "metrics": _opaque,
    "aggregates": _opaque,
    "instances": _opaque,
    "service": _opaque,
    "updated": _opaque,
    "allocation_candidates": _opaque,
    "update": _opaque,
    "consume_from_request": _opaque,
}


def stats(view: HostView) -> dict[str, str | None]:
    """``HostState.stats``: Nova's object turns every value into text."""
    return {key: None if value is None else str(value) for key, value in view.stats.items()}


def is_attribute(name: str) -> bool:
    """``hasattr(host_state, name)``, which is the same for every host."""
    return name in _KNOWN or name.startswith("_")


def attribute(view: HostView, name: str) -> Any:
    """``getattr(host_state, name, None)``, or ``OPAQUE``."""
    if name.startswith("_"):
        return OPAQUE
    known = _KNOWN.get(name)
    return None if known is None else known(view)


def capability(view: HostView, path: tuple[str, ...]) -> Any:
    """What ``capabilities:a:b`` names: an attribute or else a statistic, then JSON or dict keys.

    None where there is nothing, ``OPAQUE`` where only Nova's own objects could tell.
    """
    found = attribute(view, path[0])
    if found is None:
        found = stats(view).get(path[0])
    for key in path[1:]:
        found = _inside(found, key)
    return found


def _inside(value: Any, key: str) -> Any:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if isinstance(value, dict):
        return value.get(key)
    return OPAQUE if value is OPAQUE else None


def _service(view: HostView) -> dict[str, Any]:
    """``HostState.service``: the record, with what is known of it for certain."""
    service = view.service
    if service is None:
        return {}
    return {
        **service.record,
        "disabled": service.disabled,
        "forced_down": service.forced_down,
        "host": service.host,
    }


def lookup(view: HostView, path: tuple[str, ...]) -> Any:
    """What ``$a.b`` of a JSON hint names: an attribute, then dict keys."""
    found = _service(view) if path[0] == "service" else attribute(view, path[0])
    for key in path[1:]:
        if found is None or found is OPAQUE:
            return found
        if not isinstance(found, dict):
            return OPAQUE
        found = found.get(key)
    return found
