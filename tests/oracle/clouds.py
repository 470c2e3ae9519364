# SPDX-License-Identifier: Apache-2.0
"""Random clouds and settings as plain data: the content of Nova's tables.

Values are drawn from few, so that hosts often have equal ones and ties are frequent.  No object here is ours or Nova's:
``nova_side.py`` and ``our_side.py`` create their objects from it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

ARCHES = ("x86_64", "aarch64", "i686")
HV_TYPES = ("kvm", "qemu", "lxc")
VM_MODES = ("hvm", "exe")
PROJECTS = ("project-a", "project-b")
FLAVORS = ("m1.small", "m1.large")
CELLS = ("00000000-0000-0000-0000-00000000ce11", "00000000-0000-0000-0000-00000000ce12")
METRICS = ("cpu.frequency", "cpu.percent", "numa.membw.current")
IMAGES = tuple(f"00000000-0000-0000-0003-{n:012d}" for n in range(2))
INSTANCES = tuple(f"00000000-0000-0000-0001-{n:012d}" for n in range(12))


@dataclass
class Service:
    disabled: bool = False
    forced_down: bool = False
    up: bool = True


@dataclass
class Node:
    """One compute node; ``row`` are columns of ``compute_nodes``."""

    uuid: str
    host: str
    nodename: str
    cell: str
    row: dict[str, Any]


@dataclass
class Aggregate:
    id: int
    hosts: list[str]
    metadata: dict[str, str]


@dataclass
class Cloud:
    nodes: list[Node]
    services: dict[str, Service]
    instances: dict[str, list[str]]  # node uuid -> instance uuids
    aggregates: list[Aggregate] = field(default_factory=list)
    images: dict[str, dict[str, str]] = field(default_factory=dict)  # instance uuid -> its properties


_PICKS: dict[str, st.SearchStrategy[Any]] = {}


def pick(*values: Any) -> st.SearchStrategy[Any]:
    """One of these; the strategy is made once, which is most of what drawing from one costs."""
    key = repr(values)
    if key not in _PICKS:
        _PICKS[key] = st.sampled_from(values)
    return _PICKS[key]


#: some of the properties that an image may have
IMAGE_PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "hw_architecture": st.sampled_from(ARCHES),
        "img_hv_type": st.sampled_from(HV_TYPES),
        "hw_vm_mode": st.sampled_from(VM_MODES),
        "img_hv_requested_version": pick(">=8.2", ">8.2.0, <9.0.2", "==9.0.1", "<8"),
        "hw_cpu_policy": st.just("shared"),
        "os_distro": pick("debian", "fedora"),
        "hw_qemu_guest_agent": pick("yes", "true"),
    },
)

_SPECS = st.lists(
    st.tuples(st.sampled_from(ARCHES), st.sampled_from(HV_TYPES), st.sampled_from(VM_MODES)),
    max_size=2,
)


@st.composite
def _numa_text(draw: Any) -> str | None:
    """NUMATopology as nova-compute writes it."""
    cells = draw(st.integers(0, 2))
    if not cells:
        return None
    threads = draw(st.booleans())
    return json.dumps(_wrapped("NUMATopology", {"cells": [draw(_numa_cell(n, threads)) for n in range(cells)]}))


@st.composite
def _numa_cell(draw: Any, number: int, threads: bool) -> dict[str, Any]:
    first = number * 4
    cpus = list(range(first, first + 4))
    pinnable = draw(pick(cpus, cpus[:2], []))
    pinned = draw(st.lists(st.sampled_from(pinnable), unique=True)) if pinnable else []
    siblings = [[first, first + 1], [first + 2, first + 3]] if threads else [[c] for c in cpus]
    memory = draw(pick(1024, 2048))
    return _wrapped(
        "NUMACell",
        {
            "id": number,
            "cpuset": [cpu for cpu in cpus if cpu not in pinnable] or cpus,
            "pcpuset": pinnable,
            "memory": memory,
            "cpu_usage": draw(pick(0, 1, 3)),
            "memory_usage": draw(pick(0, 512, 1024)),
            "pinned_cpus": sorted(pinned),
            "siblings": siblings,
            "socket": 0,
            "mempages": draw(_mempages(memory)),
            "network_metadata": _wrapped("NetworkMetadata", {"physnets": [], "tunneled": False}),
        },
    )


@st.composite
def _mempages(draw: Any, memory_mb: int) -> list[dict[str, Any]]:
    if not draw(st.booleans()):
        return []
    small = memory_mb * 1024 // 4
    return [
        _wrapped(
            "NUMAPagesTopology",
            {"size_kb": size, "total": total, "used": draw(pick(0, used)), "reserved": 0},
        )
        for size, total, used in ((4, small // 2, small // 8), (2048, memory_mb // 4, 8))
    ]


def _wrapped(name: str, data: dict[str, Any]) -> dict[str, Any]:
    versions = {"NUMATopology": "1.2", "NUMACell": "1.5", "NUMAPagesTopology": "1.1"}
    return {
        "nova_object.name": name,
        "nova_object.namespace": "nova",
        "nova_object.version": versions.get(name, "1.0"),
        "nova_object.data": data,
        "nova_object.changes": sorted(data),
    }


@st.composite
def _pci_text(draw: Any) -> str | None:
    pools = draw(st.lists(st.tuples(pick("1520", "1521"), pick(0, 1, 3)), max_size=2))
    objects = [
        _wrapped(
            "PciDevicePool",
            {
                "vendor_id": "8086",
                "product_id": product,
                "numa_node": None,
                "count": count,
                "tags": {"dev_type": "type-PCI"},
            },
        )
        for product, count in dict(pools).items()
    ]
    for one in objects:
        one["nova_object.version"] = "1.1"
    made = _wrapped("PciDevicePoolList", {"objects": objects})
    made["nova_object.version"] = "1.1"
    return json.dumps(made) if objects or draw(st.booleans()) else None


@st.composite
def _metrics_text(draw: Any) -> str:
    found = []
    for name in draw(st.lists(st.sampled_from(METRICS[:2]), unique=True, max_size=2)):
        value = 0.25 * draw(st.integers(0, 4)) if name == "cpu.percent" else draw(pick(1, 2400))
        found.append({"name": name, "value": value, "timestamp": "2026-01-01T00:00:00", "source": "m"})
    return json.dumps(found)


@st.composite
def _row(draw: Any, number: int, host: str) -> dict[str, Any]:
    vcpus, memory_mb, disk_gb = draw(pick(4, 8)), draw(pick(4096, 8192)), draw(pick(50, 80))
    cpus_used, ram_used = draw(pick(0, 1, 3, 9)), draw(pick(512, 1024, 9000))
    disk_used = draw(pick(0, 10, 60))
    stats = {
        "num_instances": draw(pick(0, 1, 49, 50)),
        "io_workload": draw(pick(0, 0, 2, 8, 9)),
        "failed_builds": draw(pick(0, 0, 0, 2)),
        "num_proj_a": 3,
    }
    return {
        "id": number + 1,
        "host": host,
        "hypervisor_hostname": f"{host}-n{number}",
        "hypervisor_type": draw(pick("QEMU", "ironic")),
        "hypervisor_version": draw(pick(8002000, 8002000, 9000001, 0)),
        "vcpus": vcpus,
        "vcpus_used": cpus_used,
        "memory_mb": memory_mb,
        "memory_mb_used": ram_used,
        "free_ram_mb": memory_mb - ram_used,
        "local_gb": disk_gb,
        "local_gb_used": disk_used,
        "free_disk_gb": disk_gb - disk_used,
        "disk_available_least": draw(pick(None, 5, 100)),
        "cpu_allocation_ratio": draw(pick(1.0, 4.0, 0.7)),
        "ram_allocation_ratio": draw(pick(1.0, 1.5)),
        "disk_allocation_ratio": 1.0,
        "running_vms": 0,
        "current_workload": 0,
        "cpu_info": json.dumps({"arch": "x86_64", "topology": {"cores": vcpus}, "features": ["avx", "sse"]}),
        "host_ip": f"10.0.{draw(pick(0, 1))}.{number + 1}",
        "supported_instances": json.dumps(draw(_SPECS)),
        "stats": json.dumps(stats),
        "metrics": draw(_metrics_text()),
        "numa_topology": draw(_numa_text()),
        "pci_stats": draw(_pci_text()),
    }


@st.composite
def nodes(draw: Any) -> list[Node]:
    """One to six nodes; now and then one service host has two of them."""
    count = draw(st.integers(1, 6))
    shared = draw(st.booleans())
    found = []
    for number in range(count):
        host = "Compute0" if shared and number == 1 else f"Compute{number}"
        row = draw(_row(number, host))
        uuid = f"00000000-0000-0000-0000-{number:012d}"
        cell = CELLS[0] if host == "Compute0" else draw(st.sampled_from(CELLS))
        found.append(Node(uuid, host, row["hypervisor_hostname"], cell, row | {"uuid": uuid}))
    return found


_METADATA = st.fixed_dictionaries(
    {},
    optional={
        "availability_zone": pick("az1", "az2"),
        "filter_tenant_id": pick("project-a", "project-b, project-c"),
        "filter_tenant_id2": st.just("project-b"),
        "instance_type": pick("m1.small", "m1.small, m1.large", "other"),
        "max_io_ops_per_host": pick("1", "9", "many"),
        "max_instances_per_host": pick("1", "60"),
        "cpu_weight_multiplier": pick("-2.0", "0.0", "much"),
        "ram_weight_multiplier": pick("3", "0.5"),
        "build_failure_weight_multiplier": st.just("2.0"),
        "disk_weight_multiplier": pick("-1", "4.0"),
        "io_ops_weight_multiplier": pick("-3.0", "2"),
        "num_instances_weight_multiplier": pick("1.5", "-1"),
        "hypervisor_version_weight_multiplier": pick("-1.0", "3"),
        "pci_weight_multiplier": pick("0", "2.0"),
        "soft_affinity_weight_multiplier": pick("0.5", "5"),
        "soft_anti_affinity_weight_multiplier": pick("0", "3.0"),
        "cross_cell_move_weight_multiplier": pick("-10.0", "10"),
        "image_props_weight_multiplier": pick("0", "2.5"),
        "metrics_weight_multiplier": pick("0", "2.5"),
        "hw_architecture": pick("x86_64", "aarch64,x86_64"),
        "hw.architecture": pick("x86_64", "i686"),
        "ssd": pick("true", "false", "3"),
        "speed": pick("10", "40"),
    },
)


@st.composite
def clouds(draw: Any) -> Cloud:
    """Nodes, their services, instances and aggregates."""
    its = draw(nodes())
    hosts = sorted({node.host for node in its})
    flags = st.sampled_from((Service(), Service(), Service(), Service(disabled=True),
                             Service(forced_down=True), Service(up=False)))  # fmt: skip
    homes = {uuid: draw(st.integers(0, 2 * len(its))) for uuid in INSTANCES[:8]}
    metadata = draw(st.lists(_METADATA, max_size=3))
    aggregates = [
        Aggregate(number + 1, draw(st.lists(st.sampled_from(hosts), unique=True)), one)
        for number, one in enumerate(metadata)
    ]
    return Cloud(
        its,
        {host: draw(flags) for host in hosts},
        {node.uuid: [uuid for uuid, home in homes.items() if home == number] for number, node in enumerate(its)},
        aggregates,
        {uuid: draw(IMAGE_PROPERTIES) for uuid in homes},
    )
