# SPDX-License-Identifier: Apache-2.0
"""NUMA and PCI claims, judged by Nova's own functions on leaves, compared with Nova's own objects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from nova import objects
from nova.objects import fields
from nova.pci import whitelist
from nova.pci.stats import PciDeviceStats
from nova.virt import hardware

from shared_scheduler.model.topology import unwrap
from shared_scheduler.novalib.topology import consume, host_topology, pci_stats, topology_leaves, topology_text
from shared_scheduler.protocol.messages import Leaf, Reason, RefusalCode

VF = {"vendor_id": "8086", "product_id": "154c", "numa_node": 0, "dev_type": "type-VF", "address": "0000:80:00.0"}
PF = {"vendor_id": "8086", "product_id": "10fb", "numa_node": 0, "dev_type": "type-PF", "address": "0000:80:00.0"}
GPU = {"vendor_id": "10de", "product_id": "2236", "numa_node": 1, "dev_type": "type-PCI", "address": "0000:01:00.0"}


def cell(index: int, pinned: set[int] | None = None) -> Any:
    """Four dedicated and four shared CPUs, 64 pages of 1 GiB."""
    first = index * 8
    return objects.NUMACell(
        id=index,
        socket=index,
        cpuset=set(range(first, first + 4)),
        pcpuset=set(range(first + 4, first + 8)),
        memory=64 * 1024,
        cpu_usage=0,
        memory_usage=0,
        pinned_cpus=pinned or set(),
        siblings=[{cpu} for cpu in range(first, first + 8)],
        mempages=[
            objects.NUMAPagesTopology(size_kb=4, total=1048576, used=0, reserved=0),
            objects.NUMAPagesTopology(size_kb=1048576, total=64, used=0, reserved=0),
        ],
        network_metadata=objects.NetworkMetadata(physnets={"physnet0"}, tunneled=True),
    )


def host(*pools: tuple[dict[str, Any], int], pinned: set[int] | None = None) -> dict[str, Leaf]:
    topology = objects.NUMATopology(cells=[cell(0, pinned), cell(1)])
    flat = [{**key, "count": count, "remote_managed": "false"} for key, count in pools]
    return topology_leaves(topology._to_json(), flat)


def pinned_guest(cpus: int, memory_mb: int = 1024, pagesize: int | None = 1048576) -> Any:
    return objects.InstanceNUMATopology(
        cells=[
            objects.InstanceNUMACell(
                id=0, cpuset=set(), pcpuset=set(range(cpus)), memory=memory_mb, pagesize=pagesize,
                cpu_policy=fields.CPUAllocationPolicy.DEDICATED, cpu_pinning_raw=None,
            )
        ]
    )  # fmt: skip


def device(product_id: str, count: int = 1, **spec: str) -> Any:
    return objects.InstancePCIRequest(
        count=count, spec=[{"product_id": product_id, **spec}], request_id="5e0d8a4a-0000-4000-8000-000000000001",
        numa_policy="preferred", alias_name="device",
    )  # fmt: skip


def take(leaves: dict[str, Leaf], text: str) -> dict[str, Leaf]:
    changed = consume(leaves, text)
    assert not isinstance(changed, Reason), changed
    return leaves | changed


def free(leaves: dict[str, Leaf], key: dict[str, Any]) -> int:
    pools = pci_stats(leaves).pools
    return sum(pool["count"] for pool in pools if pool["product_id"] == key["product_id"])


class TestLeaves:
    def test_a_topology_survives_the_way_through_leaves(self) -> None:
        topology = objects.NUMATopology(cells=[cell(0, {4, 6}), cell(1)])

        rebuilt = host_topology(topology_leaves(topology._to_json(), []))

        assert unwrap(json.loads(rebuilt._to_json())) == unwrap(json.loads(topology._to_json()))

    def test_pools_keep_nova_computes_order(self) -> None:
        leaves = host((PF, 1), (GPU, 2), (VF, 4))

        assert [pool["product_id"] for pool in pci_stats(leaves).pools] == ["10fb", "2236", "154c"]

    def test_a_host_without_topology_has_no_cells(self) -> None:
        assert host_topology({}) is None
        assert pci_stats({}).pools == []

    def test_a_request_for_nothing_is_an_empty_text(self) -> None:
        assert topology_text(None, None, [], {}) == ""


class TestNuma:
    def test_pinned_guests_fit_until_no_cell_has_room(self) -> None:
        text = topology_text(pinned_guest(3), None, [], None)
        leaves = host()

        for _ in range(2):
            leaves = take(leaves, text)
        refused = consume(leaves, text)

        assert isinstance(refused, Reason) and refused.code == RefusalCode.TOPOLOGY
        assert refused.detail["free"] == [
            {"cell": 0, "free_pinned": 1, "free_memory_mb": 63 * 1024},
            {"cell": 1, "free_pinned": 1, "free_memory_mb": 63 * 1024},
        ]

    def test_the_leaves_equal_those_of_novas_own_objects(self) -> None:
        # given what nova-compute does with this guest (claims.py, resource_tracker.py)
        topology, guest = objects.NUMATopology(cells=[cell(0), cell(1)]), pinned_guest(2, 2048)
        fitted = hardware.numa_fit_instance_to_host(topology, guest, provider_mapping=None)
        expected = hardware.numa_usage_from_instance_numa(topology, fitted)

        taken = take(host(), topology_text(pinned_guest(2, 2048), None, [], None))

        assert taken == topology_leaves(expected._to_json(), [])

    def test_only_touched_cells_change(self) -> None:
        changed = consume(host(), topology_text(pinned_guest(1), None, [], None))

        assert not isinstance(changed, Reason)
        assert len(changed) == 1 and next(iter(changed)).startswith("numa.")

    def test_shared_cpus_are_limited_by_the_limits_of_the_scheduler(self) -> None:
        guest = objects.InstanceNUMATopology(
            cells=[objects.InstanceNUMACell(id=0, cpuset={0, 1, 2}, pcpuset=set(), memory=512, pagesize=None)]
        )
        limits = objects.NUMATopologyLimits(cpu_allocation_ratio=1.0, ram_allocation_ratio=1.0)
        text = topology_text(guest, limits, [], None)
        leaves = host()

        for _ in range(2):
            leaves = take(leaves, text)

        assert isinstance(consume(leaves, text), Reason)

    def test_a_host_without_cells_is_judged_like_nova_compute(self) -> None:
        # NUMATopologyFilter keeps such guests away where it is enabled: elsewhere Nova places them so
        assert consume({}, topology_text(pinned_guest(1), None, [], None)) == {}

    def test_a_host_without_cells_still_needs_the_devices(self) -> None:
        text = topology_text(pinned_guest(1), None, [device("2236")], None)

        refused = consume({}, text)

        assert isinstance(refused, Reason) and refused.detail["why"] == "PCI devices"


class TestPci:
    def test_devices_go_one_by_one(self) -> None:
        text = topology_text(None, None, [device("2236")], None)
        leaves = host((GPU, 2))

        for _ in range(2):
            leaves = take(leaves, text)

        assert free(leaves, GPU) == 0
        refused = consume(leaves, text)
        assert isinstance(refused, Reason) and refused.code == RefusalCode.TOPOLOGY

    def test_a_used_virtual_function_makes_its_parent_unavailable(self) -> None:
        leaves = take(host((VF, 2), (PF, 1)), topology_text(None, None, [device("154c")], None))

        assert (free(leaves, VF), free(leaves, PF)) == (1, 0)

    def test_a_used_physical_function_makes_its_children_unavailable(self) -> None:
        text = topology_text(None, None, [device("10fb", dev_type="type-PF")], None)

        leaves = take(host((VF, 2), (PF, 1)), text)

        assert (free(leaves, VF), free(leaves, PF)) == (0, 0)

    def test_a_device_and_cpus_must_be_on_one_cell_if_the_policy_requires_it(self) -> None:
        near = device("2236")
        near.numa_policy = "required"
        leaves = host((GPU, 1), pinned=None)
        leaves = take(leaves, topology_text(pinned_guest(4), None, [near], None))
        assert leaves["numa.1"][2] != "0"  # type: ignore[index]

        far = host((dict(GPU, numa_node=0), 1), pinned={4, 5, 6})
        refused = consume(far, topology_text(pinned_guest(4), None, [near], None))

        assert isinstance(refused, Reason) and "PCI" in str(refused.detail["why"])

    def test_devices_in_placement_come_from_the_provider_that_was_chosen(self) -> None:
        one, two = dict(GPU, rp_uuid="rp-1"), dict(GPU, rp_uuid="rp-2", address="0000:02:00.0")
        asked = device("2236")
        text = topology_text(None, None, [asked], {f"{asked.request_id}-0": ["rp-2"]})

        leaves = take(host((one, 1), (two, 1)), text)

        left = {pool["rp_uuid"]: pool["count"] for pool in pci_stats(leaves).pools}
        assert left == {"rp-1": 1, "rp-2": 0}

    def test_counts_equal_novas_stats(self) -> None:
        stats = PciDeviceStats(None, dev_filter=whitelist.Whitelist([]))
        stats.pools = [{**GPU, "count": 3}, {**VF, "count": 4}]
        stats.apply_requests([device("2236", 2), device("154c", 3)], None)

        leaves = take(host((GPU, 3), (VF, 4)), topology_text(None, None, [device("2236", 2), device("154c", 3)], None))

        assert (free(leaves, GPU), free(leaves, VF)) == (1, 1)
        assert sorted(pool["count"] for pool in stats.pools) == [1, 1]


@pytest.mark.parametrize("text", ["{", "[]", '{"numa": {"nova_object.name": "Nothing"}}', '{"pci": [1]}'])
def test_an_invalid_text_is_malformed(text: str) -> None:
    refused = consume(host(), text)

    assert isinstance(refused, Reason) and refused.code == RefusalCode.MALFORMED
