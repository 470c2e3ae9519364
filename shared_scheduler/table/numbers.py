# SPDX-License-Identifier: Apache-2.0
"""The numbers of a host as in Nova's HostState (nova/scheduler/host_manager.py).

``base`` numbers come from the ``cn.*`` and ``stats.*`` leaves.  Own outstanding claims are consumed from them exactly
as by ``HostState.consume_from_request``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shared_scheduler.protocol.messages import Leaf, Usage

MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True)
class DefaultRatios:
    """Nova's ratios for a compute node record without a ratio (NULL or 0.0): the options ``x_allocation_ratio``,
    otherwise ``initial_x_allocation_ratio`` (the defaults here)."""

    cpu: float = 4.0
    ram: float = 1.0
    disk: float = 1.0


NOVA_DEFAULT_RATIOS = DefaultRatios()


class HostNumbers(NamedTuple):
    """The numbers of one host, with the field names of HostState."""

    vcpus_total: int
    vcpus_used: int
    cpu_allocation_ratio: float
    free_ram_mb: int
    free_disk_mb: int
    num_instances: int
    num_io_ops: int
    failed_builds: int

    @property
    def free_vcpus(self) -> float:
        """Free virtual CPUs, as Nova's CPU weigher computes them."""
        return self.vcpus_total * self.cpu_allocation_ratio - self.vcpus_used


class PendingUsage:
    """The sum of own outstanding claims that the base does not show."""

    __slots__ = ("disk_gb", "instances", "io_ops", "memory_mb", "vcpus")

    def __init__(self) -> None:
        self.vcpus = self.memory_mb = self.disk_gb = self.instances = self.io_ops = 0

    def add(self, usage: Usage, sign: int) -> None:
        """Add the usage of one claim, or subtract it with ``sign=-1``."""
        self.vcpus += sign * usage.vcpus
        self.memory_mb += sign * usage.memory_mb
        self.disk_gb += sign * usage.disk_gb
        self.instances += sign * usage.instances
        self.io_ops += sign * usage.io_ops


def numbers_of(node_leaves: Mapping[str, Any], extra: PendingUsage | None, ratios: DefaultRatios) -> HostNumbers | None:
    """The numbers of a node; None until nova-compute reports usage (``free_disk_gb`` is not set)."""
    found = raw_numbers(node_leaves, extra, ratios)
    return None if found is None else HostNumbers._make(found)


def raw_numbers(
    node_leaves: Mapping[str, Any], extra: PendingUsage | None, ratios: DefaultRatios
) -> tuple[int, int, float, int, int, int, int, int] | None:
    """The fields of ``HostNumbers`` as a plain tuple, which is cheaper; it is created for every boot."""
    get = node_leaves.get
    free_gb = get("cn.free_disk_gb")
    if free_gb is None:
        return None
    least_gb = get("cn.disk_available_least")
    if least_gb is not None and least_gb < free_gb:
        free_gb = least_gb
    instances, io_ops = get("stats.num_instances", 0), get("stats.io_workload", 0)
    failed = get("stats.failed_builds", 0)
    used, ram_mb = get("cn.vcpus_used") or 0, get("cn.free_ram_mb") or 0
    if extra is not None:
        used, ram_mb = used + extra.vcpus, ram_mb - extra.memory_mb
        free_gb -= extra.disk_gb
        instances, io_ops = whole(instances) + extra.instances, whole(io_ops) + extra.io_ops
    return (
        get("cn.vcpus") or 0,
        used,
        get("cn.cpu_allocation_ratio") or ratios.cpu,
        ram_mb,
        free_gb * MIB_PER_GIB,
        whole(instances),
        whole(io_ops),
        whole(failed),
    )


def topology_ratios(node_leaves: Mapping[str, Any], ratios: DefaultRatios) -> tuple[float, float]:
    """The over-commit ratios of shared CPUs and of memory in a NUMA cell."""
    get = node_leaves.get
    return get("cn.cpu_allocation_ratio") or ratios.cpu, get("cn.ram_allocation_ratio") or ratios.ram


def consumed_leaves(node_leaves: Mapping[str, Leaf], extra: PendingUsage) -> dict[str, Leaf]:
    """The leaves with ``extra`` consumed; missing leaves are not added."""
    taken = {
        "cn.vcpus_used": extra.vcpus,
        "cn.memory_mb_used": extra.memory_mb,
        "cn.free_ram_mb": -extra.memory_mb,
        "cn.local_gb_used": extra.disk_gb,
        "cn.free_disk_gb": -extra.disk_gb,
        "cn.disk_available_least": -extra.disk_gb,
        "cn.running_vms": extra.instances,
    }
    found = dict(node_leaves)
    for name, amount in taken.items():
        before = found.get(name)
        if isinstance(before, int | float):
            found[name] = before + amount
    found["stats.num_instances"] = whole(found.get("stats.num_instances", 0)) + extra.instances
    found["stats.io_workload"] = whole(found.get("stats.io_workload", 0)) + extra.io_ops
    return found


def whole(value: Any) -> int:
    """``int(value)`` as in Nova; but a value that is not a number is 0 here, while Nova fails every request."""
    if type(value) is int:
        return value
    try:
        return int(value)
    except (TypeError, ValueError):
        return 0
