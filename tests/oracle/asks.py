# SPDX-License-Identifier: Apache-2.0
"""Random requests and options as plain data."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from shared_scheduler.decision.filters import NATIVE_FILTERS
from tests.oracle.clouds import CELLS, FLAVORS, IMAGE_PROPERTIES, IMAGES, INSTANCES, PROJECTS, pick

#: filters whose answer is exact from columns
EXACT = tuple(sorted(name for name, native in NATIVE_FILTERS.items() if not native.screens))
SCREENS = tuple(sorted(name for name, native in NATIVE_FILTERS.items() if native.screens))


@dataclass
class NumaCell:
    policy: str | None
    cpus: int
    memory: int
    pagesize: int | None


@dataclass
class Ask:
    """One request for one instance, ``instance`` (which may live in the cloud already)."""

    instance: str
    project: str = PROJECTS[0]
    flavor: str = FLAVORS[0]
    extra_specs: dict[str, str] = field(default_factory=dict)
    image: dict[str, Any] = field(default_factory=dict)
    image_id: str = IMAGES[0]
    hints: dict[str, list[str]] = field(default_factory=dict)
    group: dict[str, Any] | None = None
    ignore_hosts: list[str] = field(default_factory=list)
    force_hosts: list[str] = field(default_factory=list)
    force_nodes: list[str] = field(default_factory=list)
    destination: tuple[str, str | None] | None = None
    preferred_cell: str | None = None
    numa: list[NumaCell] = field(default_factory=list)
    pci: tuple[int, str] | None = None


_EXTRA_SPECS = st.fixed_dictionaries(
    {},
    optional={
        "capabilities:free_ram_mb": pick(">= 4000", "<= 4000", "= 1000"),
        "capabilities:num_proj_a": pick("3", "4", "== 3"),
        "capabilities:cpu_info:topology:cores": pick("== 4", ">= 8", "8"),
        "capabilities:cpu_info:features": pick("<in> avx", "<all-in> avx sse", "<in> mmx"),
        "capabilities:hypervisor_type": st.sampled_from(
            ("s== QEMU", "<or> QEMU <or> ironic", "<or> xen", "s!= ironic")
        ),
        "capabilities:nothing:there": st.just("1"),
        "num_instances": pick("<= 1", "<= 60"),
        "io_workload": pick("<= 2", "s>= 8"),
        "hypervisor_version": pick(">= 8002000", "!= 0"),
        "ssd": pick("true", "<in> tru", "<or> true <or> false", ""),
        "aggregate_instance_extra_specs:speed": pick("== 10", ">= 20", "s> 3"),
        "hw:cpu_policy": st.just("dedicated"),
        "hw:cpu_thread_policy": pick("require", "prefer"),
        "quota:cpu_shares": st.just("5"),
    },
)
# not $host_ip: Nova's is an address object, equal to no text, so that no query can ask for one
_QUERIES = (
    [">=", "$free_ram_mb", 4000],
    ["and", [">", "$vcpus_total", 4], ["<", "$num_io_ops", 5]],
    ["not", [">=", "$free_disk_mb", 20480], ["=", "$host", "Compute0"]],
    ["in", "$hypervisor_type", "QEMU", "xen"],
    ["or", ["=", "$stats.num_proj_a", "3"], ["=", "$nothing", 1]],
    ["=", "$cell_uuid", CELLS[0]],
    [],
)
_HINTS = st.fixed_dictionaries(
    {},
    optional={
        "different_host": st.lists(pick(*INSTANCES, ""), max_size=3),
        "same_host": st.lists(pick(*INSTANCES, ""), max_size=3),
        "build_near_host_ip": pick(["10.0.0.9"], ["10.0.1.1"]),
        "cidr": pick(["/24"], ["/30"], ["/8"]),
        "query": st.sampled_from(_QUERIES).map(lambda query: [json.dumps(query)]),
        "_nova_check_type": pick(["rebuild"], ["check"]),
    },
)


@st.composite
def _group(draw: Any, hosts: list[str]) -> dict[str, Any] | None:
    policies = ("affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity")
    policy = draw(pick(None, *policies))
    if policy is None:
        return None
    rules = draw(pick({}, {"max_server_per_host": "2"}))
    return {
        "policy": policy,
        "members": draw(st.lists(st.sampled_from(INSTANCES), unique=True, max_size=6)),
        "hosts": draw(st.lists(st.sampled_from(hosts), unique=True, max_size=2)),
        "rules": rules if policy == "anti-affinity" else {},
    }


_CELL = st.builds(
    NumaCell,
    policy=st.just(None),
    cpus=pick(1, 2, 4),
    memory=pick(256, 512, 1024, 2048),
    pagesize=pick(None, None, -1, -2, -3, 4, 2048),
)


@st.composite
def _numa(draw: Any) -> list[NumaCell]:
    cells = draw(st.lists(_CELL, max_size=2))
    policy = draw(pick(None, "shared", "dedicated"))
    for cell in cells:
        cell.policy = policy
    return cells


@st.composite
def asks(draw: Any, nodes: list[tuple[str, str]]) -> Ask:
    """One request; most ask for a few things only."""
    hosts = sorted({host for host, _ in nodes})
    some = [*hosts, *(host.upper() for host in hosts), "nobody"]
    ask = Ask(draw(st.sampled_from(INSTANCES)))
    kind = draw(pick("plain", "flavor", "image", "hints", "targets", "group", "topology"))
    ask.project = draw(st.sampled_from(PROJECTS))
    ask.flavor = draw(st.sampled_from(FLAVORS))
    ask.preferred_cell = draw(pick(None, None, *CELLS))
    if kind == "flavor":
        ask.extra_specs = draw(_EXTRA_SPECS)
    elif kind == "image":
        ask.image, ask.image_id = draw(IMAGE_PROPERTIES), draw(st.sampled_from(IMAGES))
    elif kind == "hints":
        ask.hints = draw(_HINTS)
    elif kind == "group":
        ask.group = draw(_group(hosts))
    elif kind == "targets":
        ask.ignore_hosts = draw(st.lists(st.sampled_from(some), max_size=2))
        ask.force_hosts = draw(st.lists(st.sampled_from(some), max_size=2))
        ask.force_nodes = draw(st.lists(st.sampled_from([node for _, node in nodes]), max_size=1))
        ask.destination = draw(st.sampled_from((None, *nodes, *((host, None) for host in hosts))))
        ask.hints = draw(pick({}, {}, {"_nova_check_type": ["check"]}))
    elif kind == "topology":
        ask.numa = draw(_numa())
        ask.pci = draw(st.sampled_from((None, (1, "1520"), (3, "1520"), (1, "1522"))))
    return ask


@st.composite
def options(draw: Any) -> dict[str, Any]:
    """Options of ``[filter_scheduler]``, and ``metrics`` for those of ``[metrics]``."""
    multiplier = pick(1.0, 1.0, -1.0, 0.0, 2.5)
    names = ("ram", "cpu", "disk", "io_ops", "num_instances", "hypervisor_version", "pci",
             "soft_affinity", "soft_anti_affinity", "build_failure", "cross_cell_move")  # fmt: skip
    found: dict[str, Any] = {f"{name}_weight_multiplier": draw(multiplier) for name in names}
    for name in ("pci", "soft_affinity", "soft_anti_affinity"):  # Nova wants these not below 0
        found[f"{name}_weight_multiplier"] = abs(found[f"{name}_weight_multiplier"])
    found["enabled_filters"] = draw(st.lists(pick(*EXACT, *SCREENS), unique=True, min_size=1, max_size=8))
    found["image_props_weight_multiplier"] = draw(pick(0.0, 1.0, -2.0))
    found["image_props_weight_setting"] = draw(
        pick([], [], ["hw_architecture=2.0", "hw_vm_mode=-0.5"], ["img_hv_type=0"])
    )
    found["max_io_ops_per_host"] = draw(pick(8, 2))
    found["max_instances_per_host"] = draw(pick(50, 2))
    found["isolated_images"] = draw(pick([], [IMAGES[0]]))
    found["isolated_hosts"] = draw(pick([], ["Compute0", "Compute2"]))
    found["restrict_isolated_hosts_to_isolated_images"] = draw(st.booleans())
    found["image_properties_default_architecture"] = draw(pick(None, None, "x86_64"))
    found["aggregate_image_properties_isolation_namespace"] = draw(pick(None, None, None, "hw"))
    found["aggregate_image_properties_isolation_separator"] = draw(pick(".", ".", "_"))
    found["metrics"] = {
        "weight_setting": draw(pick([], [], ["cpu.percent=1.0", "cpu.frequency=-0.5"], ["cpu.percent=0"])),
        "required": draw(st.booleans()),
        "weight_multiplier": draw(pick(1.0, 0.0, 2.0)),
        "weight_of_unavailable": draw(pick(-100.0, 0.5)),
    }
    return found
