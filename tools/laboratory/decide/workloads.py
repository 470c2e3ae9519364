# SPDX-License-Identifier: Apache-2.0
"""Hosts and requests of a workload, in our table and as Nova's own objects, from the same rows."""

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

from shared_scheduler.decision.request import Flavor, Group, PlacementForm, Request
from shared_scheduler.decision.spread_request import LABEL as LABEL_KEY
from shared_scheduler.decision.spread_request import SPREAD, label_uuid, with_spreading
from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.model.compute_node import leaves_from_compute_node
from shared_scheduler.model.resources import Inventory
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.messages import Consumer, Usage
from shared_scheduler.table.host_table import HostTable

CELL = "00000000-0000-0000-0000-00000000ce11"
TRAITS = ["COMPUTE_NODE", "OWNER_NOVA", *(f"HW_CPU_X86_FEATURE_{n}" for n in range(70))]
VCPUS, MEMORY_MB, DISK_GB = 64, 262144, 4000
CPUS_A_CELL = 16
CPU_INFO = json.dumps({"arch": "x86_64", "model": "EPYC", "features": ["avx", "sse"] * 40})
PROJECT = "project-a"
LABEL = "web"
WEB = label_uuid(PROJECT, LABEL)
SPREAD_KEYS = ("rack",)


@dataclass
class Workload:
    """One entry of workloads.yaml."""

    name: str
    hosts: list[int]
    request: dict[str, Any]
    fleet: dict[str, Any] = field(default_factory=dict)
    filters: list[str] = field(default_factory=list)
    nova: int = 0
    decisions: int = 10_000

    @property
    def instances(self) -> int:
        """Instances of one request."""
        return int(self.request.get("instances", 1))


def uuid_of(number: int) -> str:
    """A node's."""
    return f"00000000-0000-0000-0000-{number:012d}"


def instance(number: int) -> str:
    """An instance's."""
    return f"00000000-0000-0000-0002-{number:012d}"


def compute_node_row(number: int, fleet: dict[str, Any], rng: Random) -> dict[str, Any]:
    """Columns of ``compute_nodes``; the usage of each host differs slightly."""
    used, ram_used, disk_used = rng.randrange(40), rng.randrange(200) * 512, rng.randrange(2000)
    numa = numa_text(fleet, rng) if fleet.get("numa") else None
    return {
        "id": number + 1,
        "uuid": uuid_of(number),
        "host": f"compute{number}",
        "hypervisor_hostname": f"compute{number}.example",
        "hypervisor_type": "QEMU",
        "hypervisor_version": 8002000,
        "vcpus": VCPUS,
        "vcpus_used": used,
        "memory_mb": MEMORY_MB,
        "memory_mb_used": ram_used,
        "free_ram_mb": MEMORY_MB - ram_used,
        "local_gb": DISK_GB,
        "local_gb_used": disk_used,
        "free_disk_gb": DISK_GB - disk_used,
        "disk_available_least": None,
        "cpu_allocation_ratio": 4.0,
        "ram_allocation_ratio": 1.0,
        "disk_allocation_ratio": 1.0,
        "running_vms": 10,
        "current_workload": 0,
        "cpu_info": CPU_INFO,
        "host_ip": f"10.{number // 65536}.{number // 256 % 256}.{number % 256}",
        "supported_instances": json.dumps([["x86_64", "kvm", "hvm"], ["i686", "kvm", "hvm"]]),
        "stats": json.dumps({"num_instances": 10, "io_workload": rng.randrange(3), "failed_builds": 0}),
        "metrics": "[]",
        "numa_topology": numa,
        "pci_stats": pci_text(number) if fleet.get("pci") else None,
    }


def numa_text(fleet: dict[str, Any], rng: Random) -> str:
    """Two cells; on the part ``busy`` of the hosts all pinnable CPUs are used."""
    taken = rng.random() < fleet.get("busy", 0.0)
    cells = []
    for number in range(2):
        cpus = list(range(number * CPUS_A_CELL, (number + 1) * CPUS_A_CELL))
        cells.append(
            {
                "id": number,
                "cpuset": cpus[:2],
                "pcpuset": cpus[2:],
                "memory": MEMORY_MB // 2,
                "cpu_usage": 0,
                "memory_usage": 4096,
                "pinned_cpus": cpus[2:] if taken else [],
                "siblings": [[cpu] for cpu in cpus],
                "socket": number,
                "mempages": [
                    _wrapped(
                        "NUMAPagesTopology",
                        "1.1",
                        {"size_kb": 4, "total": MEMORY_MB * 128, "used": 0, "reserved": 0},
                    )
                ],
                "network_metadata": _wrapped("NetworkMetadata", "1.0", {"physnets": [], "tunneled": False}),
            }
        )
    return json.dumps(_wrapped("NUMATopology", "1.2", {"cells": [_wrapped("NUMACell", "1.5", c) for c in cells]}))


def pci_text(number: int) -> str:
    """Four devices on every second host."""
    pool = {
        "vendor_id": "8086",
        "product_id": "1520",
        "numa_node": None,
        "count": 4 if number % 2 else 0,
        "tags": {"dev_type": "type-PCI"},
    }
    pools = [_wrapped("PciDevicePool", "1.1", pool)]
    return json.dumps(_wrapped("PciDevicePoolList", "1.1", {"objects": pools}))


def _wrapped(name: str, version: str, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "nova_object.name": name,
        "nova_object.namespace": "nova",
        "nova_object.version": version,
        "nova_object.data": data,
        "nova_object.changes": sorted(data),
    }


def provider_leaf(number: int, fleet: dict[str, Any]) -> dict[str, Any]:
    """The root provider: 72 traits, three aggregates."""
    full = fleet.get("full")
    inventories = {
        "VCPU": Inventory(VCPUS, 0, 1, VCPUS, 1, 4.0),
        "MEMORY_MB": Inventory(MEMORY_MB, 512, 1, MEMORY_MB),
        "DISK_GB": Inventory(DISK_GB, DISK_GB if full else 0, 1, DISK_GB),
    }
    if fleet.get("numa"):
        inventories["PCPU"] = Inventory(2 * CPUS_A_CELL - 4)
    traits = sorted([*TRAITS, *(["HW_CPU_X86_AVX2"] if number % 2 else [])])
    return {
        "name": f"compute{number}.example",
        "parent": None,
        "generation": 5,
        "inventories": {rc: one.to_leaf() for rc, one in inventories.items()},
        "traits": traits,
        "aggregates": [f"az{number % 3}", f"rack{number // 40}"],
    }


def aggregates(hosts: int) -> list[AggregateFacts]:
    """Three availability zones, two of which have ssd, and one for another project."""
    found = []
    for zone in range(3):
        names = frozenset(f"compute{number}" for number in range(zone, hosts, 3))
        metadata = {"availability_zone": f"az{zone}", "ssd": "true" if zone else "false"}
        found.append(AggregateFacts(zone + 1, f"az{zone}", f"az{zone}", names, metadata))
    few = frozenset(f"compute{number}" for number in range(0, hosts, 100))
    found.append(AggregateFacts(9, "own", "own", few, {"filter_tenant_id": "project-b"}))
    return found


def racks(hosts: int, count: int) -> list[AggregateFacts]:
    """Aggregates with the key rack; neighbours are in different ones."""
    return [
        AggregateFacts(
            100 + rack, f"rack{rack}", f"rack{rack}",
            frozenset(f"compute{number}" for number in range(rack, hosts, count)), {"rack": f"r{rack}"},
        )
        for rack in range(min(count, hosts))
    ]  # fmt: skip


def labelled(hosts: int, servers: int) -> dict[int, dict[str, Consumer]]:
    """Servers with the label, one after the other on the hosts: host number -> consumers."""
    found: dict[int, dict[str, Consumer]] = {}
    for number in range(servers):
        found.setdefault(number % hosts, {})[instance(2 * 10**9 + number)] = Consumer({}, True, WEB)
    return found


def members(hosts: int, wanted: int) -> dict[int, str]:
    """Instances of a server group, spread over the fleet: host number -> uuid."""
    step = max(1, hosts // max(wanted, 1))
    return {number: instance(number) for number in range(0, min(hosts, step * wanted), step)}


def make_table(workload: Workload, rows: list[dict[str, Any]], instances: int = 0) -> HostTable:
    """Our table; ``instances`` more run on each host (for memory)."""
    table = HostTable()
    group = workload.request.get("group") or {}
    placed = members(len(rows), int(group.get("members", 0)))
    spread = workload.request.get("spread") or {"racks": 0, "servers": 0}
    table.set_aggregates([*aggregates(len(rows)), *racks(len(rows), spread["racks"])])
    web = labelled(len(rows), spread["servers"])
    for number, row in enumerate(rows):
        node = row["uuid"]
        table.set_service(ServiceFacts(row["host"]))
        table.upsert(node, CELL, row["host"], row["hypervisor_hostname"])
        leaves = leaves_from_compute_node(row)
        leaves[f"rp.{node}"] = provider_leaf(number, workload.fleet)
        taken = {node: {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}}
        consumers = {f"00000000-0000-{n:04d}-0000-{number:012d}": Consumer(taken, True) for n in range(instances)}
        if number in placed:
            consumers[placed[number]] = Consumer({}, True)
        consumers |= web.get(number, {})
        table.load(node, leaves, consumers, epoch=1, sequence=1)
    return table


def make_request(workload: Workload, hosts: int, topology: str) -> Request:
    """The request of a workload; ``topology`` is made by the Nova side."""
    asked = workload.request
    resources = dict(asked["resources"])
    form = PlacementForm(
        resources,
        root_required=frozenset(asked.get("traits", ["OWNER_NOVA"])),
        root_forbidden=frozenset({"COMPUTE_STATUS_DISABLED"}),
        member_of=(frozenset({asked["az"]}),) if "az" in asked else (),
    )
    vcpus = resources.get("VCPU", 0) + resources.get("PCPU", 0)
    memory_mb, disk_gb = resources["MEMORY_MB"], resources["DISK_GB"]
    group = asked.get("group")
    placed = members(hosts, int(group["members"])) if group else {}
    spread = asked.get("spread")
    hints = {SPREAD: (";".join(spread["constraints"]),), LABEL_KEY: (LABEL,)} if spread else {}
    made = Request(
        request_id="req-bench",
        project_id=PROJECT,
        user_id="user",
        flavor=Flavor("bench", vcpus, memory_mb, disk_gb, extra_specs=asked.get("extra_specs", {})),
        forms=(form,),
        usage=Usage(vcpus, memory_mb, disk_gb, 1, 1),
        instance_uuids=tuple(instance(10**9 + n) for n in range(workload.instances)),
        image_id="image",
        image_properties={"hw_architecture": "x86_64"},
        group=Group("group", group["policy"], frozenset(placed.values())) if group else None,
        has_numa="numa" in asked,
        has_pci="devices" in asked,
        topology=topology,
        hints=hints,
    )
    return with_spreading(made, SPREAD_KEYS)
