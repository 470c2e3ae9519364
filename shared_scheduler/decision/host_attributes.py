# SPDX-License-Identifier: Apache-2.0
"""The attributes of Nova's HostState that operators use in extra specs and JSON hints.

Names and types are Nova's (nova/scheduler/host_manager.py), because ``capabilities:free_ram_mb`` and ``$free_ram_mb``
refer to them.  Attributes that hold objects of Nova are ``OPAQUE``: they never reject a host here, because Nova's own
filter checks them when the host is tried.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.host_view import HostView
from shared_scheduler.table.numbers import MIB_PER_GIB


class _Opaque:
    """A value that only Nova's own objects have."""


OPAQUE = _Opaque()


def _leaf(name: str, empty: Any = None) -> Callable[[HostView], Any]:
    return lambda view: view.leaves.get(name, empty)


def _number(name: str) -> Callable[[HostView], Any]:
    """A number of HostState; 0 until nova-compute reports usage, as in Nova."""
    return lambda view: 0 if view.numbers is None else getattr(view.numbers, name)


def _ratio(name: str) -> Callable[[HostView], Any]:
    return lambda view: view.leaves.get(f"cn.{name}_allocation_ratio") or getattr(view.ratios, name)


def _opaque(view: HostView) -> Any:
    return OPAQUE


#: attributes of HostState that are plain values -> the value in a view (also used by ``nova/host_state.py``)
PLAIN: Mapping[str, Callable[[HostView], Any]] = {
    "total_usable_ram_mb": lambda view: view.leaves.get("cn.memory_mb") or 0,
    "total_usable_disk_gb": lambda view: view.leaves.get("cn.local_gb") or 0,
    "disk_mb_used": lambda view: int(view.leaves.get("cn.local_gb_used") or 0) * MIB_PER_GIB,  # type: ignore[arg-type]
    "free_ram_mb": _number("free_ram_mb"),
    "free_disk_mb": _number("free_disk_mb"),
    "vcpus_total": _number("vcpus_total"),
    "vcpus_used": _number("vcpus_used"),
    "num_instances": _number("num_instances"),
    "num_io_ops": _number("num_io_ops"),
    "failed_builds": _number("failed_builds"),
    "cpu_allocation_ratio": _ratio("cpu"),
    "ram_allocation_ratio": _ratio("ram"),
    "disk_allocation_ratio": _ratio("disk"),
    "host_ip": _leaf("cn.host_ip"),
    "hypervisor_type": _leaf("cn.hypervisor_type"),
    "hypervisor_version": _leaf("cn.hypervisor_version"),
    "hypervisor_hostname": _leaf("cn.hypervisor_hostname"),
    "cpu_info": _leaf("cn.cpu_info"),
    "supported_instances": lambda view: list(view.leaves.get("cn.supported_hv_specs") or []),  # type: ignore[arg-type]
    "stats": lambda view: stats(view),
}

_KNOWN: Mapping[str, Callable[[HostView], Any]] = {
    **PLAIN,
    "host": lambda view: view.host,
    "nodename": lambda view: view.nodename,
    "uuid": lambda view: view.node,
    "cell_uuid": lambda view: view.cell,
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
    """``HostState.stats``; as in Nova's object, every value is text."""
    return {key: None if value is None else str(value) for key, value in view.stats.items()}


def is_attribute(name: str) -> bool:
    """``hasattr(host_state, name)``, which is equal for all hosts."""
    return name in _KNOWN or name.startswith("_")


def attribute(view: HostView, name: str) -> Any:
    """``getattr(host_state, name, None)``, or ``OPAQUE``."""
    if name.startswith("_"):
        return OPAQUE
    known = _KNOWN.get(name)
    return None if known is None else known(view)


def capability(view: HostView, path: tuple[str, ...]) -> Any:
    """The value of ``capabilities:a:b``: an attribute or otherwise a statistic, then keys of JSON or of a dict.

    None if there is no value, ``OPAQUE`` if only Nova's own objects have it.
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
        except (RecursionError, ValueError):
            return None
    if isinstance(value, dict):
        return value.get(key)
    return OPAQUE if value is OPAQUE else None


def _service(view: HostView) -> dict[str, Any]:
    """``HostState.service``: the fields of the service record that are known."""
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
    """The value of ``$a.b`` in a JSON hint: an attribute, then keys of a dict."""
    found = _service(view) if path[0] == "service" else attribute(view, path[0])
    for key in path[1:]:
        if found is None or found is OPAQUE:
            return found
        if not isinstance(found, dict):
            return OPAQUE
        found = found.get(key)
    return found


#: Nova writes these as fractions and reads them as whole percentages
#: (nova/objects/monitor_metric.py)
PERCENTS = frozenset(
    {
        "cpu.user.percent",
        "cpu.kernel.percent",
        "cpu.idle.percent",
        "cpu.iowait.percent",
        "cpu.percent",
    }
)


def metrics_of(leaves: Mapping[str, Leaf]) -> dict[str, int]:
    """The metrics as integers, by name; values that do not parse are omitted."""
    text: Any = leaves.get("cn.metrics")
    if not text:
        return {}
    try:
        return {one["name"]: _whole(one) for one in json.loads(text) if "value" in one}
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError):
        return {}


def _whole(one: Mapping[str, Any]) -> int:
    number = int(one["value"] * 100 if one["name"] in PERCENTS else one["value"])
    float(number)  # fails for a value that cannot be weighed
    return number
