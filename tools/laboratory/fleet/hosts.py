# SPDX-License-Identifier: Apache-2.0
"""The hosts of a fleet. All values are derived from the number of a host, so a process does not read them."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from shared_scheduler.model.providers import Provider
from shared_scheduler.model.resources import Inventory

NAMESPACE = uuid.UUID("6f2d3c1e-9d0c-4c55-9f0b-0d3f6a1f7a11")
PREFIX = "lab-"
FIRST_GENERATION = 1
"""Of a provider without servers."""

TRAITS = (
    "COMPUTE_ACCELERATORS", "COMPUTE_ADDRESS_SPACE_EMULATED", "COMPUTE_ADDRESS_SPACE_PASSTHROUGH",
    "COMPUTE_DEVICE_TAGGING", "COMPUTE_IMAGE_TYPE_RAW", "COMPUTE_MEM_BACKING_FILE", "COMPUTE_NET_ATTACH_INTERFACE",
    "COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG", "COMPUTE_NODE", "COMPUTE_SECURITY_STATELESS_FIRMWARE",
    "COMPUTE_STORAGE_VIRTIO_FS", "COMPUTE_TRUSTED_CERTS", "COMPUTE_VOLUME_ATTACH_WITH_TAG", "COMPUTE_VOLUME_EXTEND",
    "COMPUTE_VOLUME_MULTI_ATTACH", "OWNER_NOVA",
)  # fmt: skip
"""nova-compute 34's report with the fake driver."""

CPU_INFO = json.dumps({
    "arch": "x86_64", "model": "Nehalem", "vendor": "Intel", "features": ["pge", "clflush"],
    "topology": {"cores": 1, "threads": 1, "sockets": 4},
})  # fmt: skip
NO_PCI = json.dumps({
    "nova_object.name": "PciDevicePoolList", "nova_object.namespace": "nova", "nova_object.version": "1.1",
    "nova_object.data": {"objects": []}, "nova_object.changes": ["objects"],
})  # fmt: skip


@dataclass(frozen=True)
class Hardware:
    """The hardware of every host of a fleet; the sizes of memory alternate."""

    vcpus: int
    cpu_ratio: float
    memory_sizes_mb: tuple[int, ...]
    reserved_mb: int
    disk_gb: int


LARGE = Hardware(64, 4.0, (131_072, 262_144, 393_216), 512, 2_000)
SMALL = Hardware(16, 4.0, (65_536,), 0, 2_000)
HARDWARE = {"large": LARGE, "small": SMALL}


@dataclass(frozen=True)
class Host:
    """One compute host with its one node; `number` counts from 1 and is its id in every table."""

    number: int
    hardware: Hardware = LARGE

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.number:05d}"

    @property
    def node(self) -> str:
        """UUID of the compute node, and of its resource provider."""
        return str(uuid.uuid5(NAMESPACE, self.name))

    @property
    def memory_mb(self) -> int:
        sizes = self.hardware.memory_sizes_mb
        return sizes[self.number % len(sizes)]


def hosts(count: int, hardware: Hardware = LARGE) -> list[Host]:
    """Hosts 1 to `count`."""
    return [Host(number, hardware) for number in range(1, count + 1)]


def number_of(name: str) -> int:
    """The number of the host with this name."""
    return int(name.removeprefix(PREFIX))


def compute_node(host: Host) -> dict[str, Any]:
    """Its row of `compute_nodes` without times and servers."""
    own = host.hardware
    return {
        "id": host.number, "service_id": host.number, "uuid": host.node, "host": host.name,
        "hypervisor_hostname": host.name, "hypervisor_type": "fake", "hypervisor_version": 1000, "host_ip": "127.0.0.1",
        "vcpus": own.vcpus, "vcpus_used": 0, "memory_mb": host.memory_mb, "memory_mb_used": own.reserved_mb,
        "free_ram_mb": host.memory_mb - own.reserved_mb, "local_gb": own.disk_gb, "local_gb_used": 0,
        "free_disk_gb": own.disk_gb, "disk_available_least": 0, "current_workload": 0, "running_vms": 0,
        "cpu_info": CPU_INFO, "pci_stats": NO_PCI, "supported_instances": '[["x86_64", "fake", "hvm"]]',
        "metrics": "[]", "stats": '{"failed_builds": "0"}', "cpu_allocation_ratio": own.cpu_ratio,
        "ram_allocation_ratio": 1.0, "disk_allocation_ratio": 1.0, "mapped": 1, "deleted": 0,
    }  # fmt: skip


def inventories(host: Host) -> dict[str, Inventory]:
    """Its inventories in Placement by resource class."""
    own = host.hardware
    return {
        "VCPU": Inventory(own.vcpus, max_unit=own.vcpus, allocation_ratio=own.cpu_ratio),
        "MEMORY_MB": Inventory(host.memory_mb, own.reserved_mb, max_unit=host.memory_mb),
        "DISK_GB": Inventory(own.disk_gb, max_unit=own.disk_gb),
    }


def provider(host: Host) -> Provider:
    """Its one resource provider."""
    return Provider(host.node, host.name, None, FIRST_GENERATION, inventories(host), frozenset(TRAITS))
