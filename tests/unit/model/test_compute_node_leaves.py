# SPDX-License-Identifier: Apache-2.0
"""A compute node record, as Nova itself writes it, becomes leaves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from nova import objects
from nova.objects import numa, pci_device_pool

from shared_scheduler.model.compute_node import leaves_from_compute_node
from shared_scheduler.model.topology import (
    MalformedTopologyError,
    bitmap,
    cpus_of,
    numa_leaves,
    pci_leaves,
    pool_leaves,
)

objects.register_all()

ROW: dict[str, Any] = {
    "id": 7, "uuid": "5c1e0d7e-2f0b-4d4e-9d5c-0a7e8f6f1a11", "host": "cmp-1",
    "hypervisor_hostname": "cmp-1.example.org", "hypervisor_type": "QEMU",
    "hypervisor_version": 8002000, "vcpus": 128, "vcpus_used": 4, "memory_mb": 524288,
    "memory_mb_used": 8704, "free_ram_mb": 515584, "local_gb": 4000, "local_gb_used": 20,
    "free_disk_gb": 3980, "disk_available_least": 2500, "cpu_allocation_ratio": 4.0,
    "ram_allocation_ratio": None, "disk_allocation_ratio": 0.0, "running_vms": 1,
    "current_workload": 0, "cpu_info": '{"arch": "x86_64"}', "metrics": "[]",
    "host_ip": "192.0.2.7", "supported_instances": '[["x86_64", "kvm", "hvm"]]',
    "stats": '{"num_instances": "1", "io_workload": "0"}', "numa_topology": None,
    "pci_stats": None, "deleted": 0,
}  # fmt: skip


def two_cells() -> str:
    """The text that nova-compute stores for two cells, one of them half used."""
    used = numa.NUMAPagesTopology(size_kb=1048576, total=64, used=8, reserved=2)
    small = numa.NUMAPagesTopology(size_kb=4, total=1024, used=0, reserved=0)
    network = objects.NetworkMetadata(physnets={"physnet0"}, tunneled=True)
    cells = [
        objects.NUMACell(
            id=0, cpuset={0, 1}, pcpuset={2, 3, 66, 67}, memory=262144, cpu_usage=2,
            memory_usage=8192, pinned_cpus={2, 66}, siblings=[{2, 66}, {3, 67}],
            mempages=[small, used], network_metadata=network, socket=0,
        ),
        objects.NUMACell(
            id=1, cpuset=set(), pcpuset={4}, memory=1024, cpu_usage=0, memory_usage=0,
            pinned_cpus=set(), siblings=[], mempages=[], socket=None,
        ),
    ]  # fmt: skip
    return objects.NUMATopology(cells=cells)._to_json()


def test_the_numbers_of_a_row_keep_their_names_and_values() -> None:
    found = leaves_from_compute_node(ROW)
    assert found["cn.vcpus"] == 128
    assert found["cn.free_ram_mb"] == 515584
    assert found["cn.ram_allocation_ratio"] is None
    assert found["cn.disk_allocation_ratio"] == 0.0
    assert found["cn.cpu_info"] == '{"arch": "x86_64"}'
    assert found["cn.host_ip"] == "192.0.2.7"
    assert found["cn.supported_hv_specs"] == [["x86_64", "kvm", "hvm"]]
    assert found["stats.num_instances"] == "1"
    assert not [name for name in found if name.startswith(("numa.", "pci."))]


def test_a_row_of_a_compute_that_never_reported_has_nothing_but_blanks() -> None:
    bare = dict.fromkeys(ROW) | {"host": "cmp-2", "cpu_info": ""}
    found = leaves_from_compute_node(bare)
    assert found["cn.free_disk_gb"] is None
    assert found["cn.supported_hv_specs"] == []


def test_numa_cells_are_cut_into_a_static_list_and_one_short_leaf_each() -> None:
    found = numa_leaves(two_cells())
    assert set(found) == {"numa.static", "numa.0", "numa.1"}
    assert found["numa.0"] == [2, 8192, bitmap({2, 66}), {"4": 0, "1048576": 8}]
    assert found["numa.1"] == [0, 0, "0", {}]
    first, second = found["numa.static"]  # type: ignore[misc]
    assert first == {
        "id": 0, "socket": 0, "cpuset": [0, 1], "pcpuset": [2, 3, 66, 67],
        "siblings": [[2, 66], [3, 67]], "memory": 262144,
        "mempages": [[4, 1024, 0], [1048576, 64, 2]],
        "network_metadata": {"physnets": ["physnet0"], "tunneled": True},
    }  # fmt: skip
    assert second["socket"] is None  # type: ignore[index,call-overload]


def test_a_pinned_boot_changes_one_leaf_only() -> None:
    before = numa_leaves(two_cells())
    topology = objects.NUMATopology.obj_from_db_obj(two_cells())
    topology.cells[1].pinned_cpus = {4}
    after = numa_leaves(topology._to_json())
    assert [name for name in after if after[name] != before[name]] == ["numa.1"]


@pytest.mark.parametrize("cpus", [set(), {0}, {5, 63, 64, 127}])
def test_bitmaps_go_both_ways(cpus: set[int]) -> None:
    assert cpus_of(bitmap(cpus)) == cpus


def pools(free: int) -> list[dict[str, Any]]:
    return [
        {"vendor_id": "8086", "product_id": "154c", "numa_node": 0, "count": free,
         "dev_type": "type-VF", "physical_network": "physnet0"},
        {"vendor_id": "10de", "product_id": "2236", "numa_node": None, "count": 1,
         "dev_type": "type-PCI"},
    ]  # fmt: skip


def stored(free: int) -> str:
    """compute_nodes.pci_stats as ComputeNode.save writes it."""
    found = pci_device_pool.from_pci_stats(pools(free))
    return json.dumps(found.obj_to_primitive())


def test_a_pool_from_the_table_and_from_the_tracker_has_one_name() -> None:
    assert pci_leaves(stored(8)) == pool_leaves(pools(8))


def test_taking_a_device_changes_the_count_and_not_the_name() -> None:
    before, after = pci_leaves(stored(8)), pci_leaves(stored(7))
    changed = [name for name in after if after[name] != before[name]]
    assert len(changed) == 1 and after[changed[0]] == 7
    assert before[changed[0].replace("pci.", "pci.static.")] == {
        "vendor_id": "8086", "product_id": "154c", "numa_node": 0, "dev_type": "type-VF",
        "physical_network": "physnet0",
    }  # fmt: skip


def test_pools_in_the_form_before_objects_are_read_too() -> None:
    assert pci_leaves(json.dumps(pools(8))) == pci_leaves(stored(8))


@pytest.mark.parametrize("text", ["{", '{"cells": [{"id": 0}]}', '{"cells": [{}]}'])
def test_garbage_is_named(text: str) -> None:
    with pytest.raises(MalformedTopologyError, match="numa_topology"):
        numa_leaves(text)
