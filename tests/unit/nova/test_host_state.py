# SPDX-License-Identifier: Apache-2.0
"""Our host state has the values of Nova's HostState, from the same records in the same database."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any

import pytest
from nova import context, objects
from nova.compute import monitors
from nova.pci import stats as pci_stats_module
from nova.scheduler import host_manager
from nova.scheduler.filters import compute_filter
from oslo_utils import timeutils

from shared_scheduler.nova.aggregates import AggregateCache
from shared_scheduler.nova.configuration import default_ratios
from shared_scheduler.nova.databases import NovaApiDatabase, NovaCellDatabase
from shared_scheduler.nova.host_state import DERIVED, HostStates
from shared_scheduler.placement.mirror import Tree
from shared_scheduler.protocol.messages import Consumer, Usage
from shared_scheduler.sync.node_reads import node_read
from shared_scheduler.table.host_table import HostTable
from tests.unit.nova.conftest import admin
from tests.unit.nova.test_request_filters import add_aggregate, cell1

assert monitors  # nova.objects.MonitorMetricList reads its options

INSTANCE = str(uuid.uuid4())


def topology() -> Any:
    return objects.NUMATopology(
        cells=[
            objects.NUMACell(
                id=number,
                socket=0,
                cpuset=set(range(4 * number, 4 * number + 2)),
                pcpuset=set(range(4 * number + 2, 4 * number + 4)),
                memory=8192,
                cpu_usage=number,
                memory_usage=512 * number,
                pinned_cpus={4 * number + 2} if number else set(),
                siblings=[{4 * number, 4 * number + 1}, {4 * number + 2, 4 * number + 3}],
                mempages=[
                    objects.NUMAPagesTopology(size_kb=4, total=2**21, used=0, reserved=0),
                    objects.NUMAPagesTopology(size_kb=2048, total=8, used=number, reserved=0),
                ],
                network_metadata=objects.NetworkMetadata(physnets={"physnet0"}, tunneled=bool(number)),
            )
            for number in range(2)
        ]
    )


def pools() -> Any:
    return objects.PciDevicePoolList(
        objects=[
            objects.PciDevicePool(
                product_id="1515",
                vendor_id="8086",
                numa_node=1,
                count=3,
                tags={"dev_type": "type-VF", "physical_network": "physnet0", "address": "0000:81:00.0"},
            ),
            objects.PciDevicePool(
                product_id="1db6",
                vendor_id="10de",
                numa_node=0,
                count=1,
                tags={"dev_type": "type-PCI"},
            ),
        ]
    )


def compute_node(**changes: Any) -> Any:
    values: dict[str, Any] = {
        "uuid": str(uuid.uuid4()),
        "host": "cmp1",
        "hypervisor_hostname": "cmp1.example",
        "vcpus": 8,
        "vcpus_used": 3,
        "memory_mb": 16384,
        "memory_mb_used": 5120,
        "free_ram_mb": 11264,
        "local_gb": 500,
        "local_gb_used": 60,
        "free_disk_gb": 440,
        "disk_available_least": 400,
        "cpu_allocation_ratio": 4.0,
        "ram_allocation_ratio": 1.0,
        "disk_allocation_ratio": 1.0,
        "running_vms": 2,
        "current_workload": 1,
        "hypervisor_type": "QEMU",
        "hypervisor_version": 8002001,
        "host_ip": "192.0.2.17",
        "cpu_info": json.dumps({"arch": "x86_64", "model": "Skylake", "features": ["aes"]}),
        "supported_hv_specs": [
            objects.HVSpec.from_list(["x86_64", "kvm", "hvm"]),
            objects.HVSpec.from_list(["i686", "kvm", "hvm"]),
        ],
        "stats": {"num_instances": "2", "io_workload": "1", "failed_builds": "3", "num_proj_demo": "2"},
        "numa_topology": topology()._to_json(),
        "pci_device_pools": pools(),
        "metrics": json.dumps(
            [
                {
                    "name": "cpu.user.percent",
                    "value": 0.25,
                    "source": "libvirt",
                    "timestamp": "2026-01-01T00:00:00.000000",
                }
            ]
        ),
        "mapped": 1,
    }
    return objects.ComputeNode(**{**values, **changes})


class World:
    """One compute in a cell's database, seen by Nova's HostState and by ours."""

    def __init__(self, **changes: Any) -> None:
        with context.target_cell(admin(), cell1()) as target:
            node = compute_node(**changes)
            node._context = target
            node.create()
            self.service = objects.Service(
                target,
                host="cmp1",
                binary="nova-compute",
                topic="compute",
                report_count=7,
            )
            self.service.create()
            self.service.last_seen_up = timeutils.utcnow()
            self.service.save()
            objects.Instance(target, uuid=INSTANCE, host="cmp1", project_id="p", user_id="u").create()
            self.node = objects.ComputeNode.get_by_uuid(target, node.uuid)
            self.service = objects.Service.get_by_id(target, self.service.id)
        add_aggregate("ssd", "cmp1", ssd="true")
        self.aggregates = AggregateCache()
        self.table = HostTable(default_ratios())
        self._load()

    def _load(self) -> None:
        api = NovaApiDatabase(self.aggregates)
        [cell] = [each for each in api.cells() if each.schedulable]
        database = NovaCellDatabase(cell)
        [row] = database.nodes()
        read = node_read(cell.uuid, row, database.instances()["cmp1"], Tree(), 0.0)
        assert read is not None
        self.table.upsert(read.node, read.cell, read.host, read.nodename)
        members = {each: Consumer({}, True) for each in read.members}
        self.table.load(read.node, read.leaves, members)
        self.table.set_aggregates(api.aggregates())
        for facts in database.services():
            self.table.set_service(facts)
        self.cell = cell.uuid

    def novas(self) -> Any:
        state = host_manager.HostState("cmp1", "cmp1.example", self.cell)
        state.update(
            self.node,
            dict(self.service),
            list(self.aggregates.of_host("cmp1")),
            {INSTANCE: objects.Instance(uuid=INSTANCE)},
        )
        return state

    def ours(self) -> Any:
        states = HostStates(self.aggregates)
        return states.make(self.table.view(self.node.uuid))


@pytest.fixture
def world(databases: None) -> World:
    return World()


PLAIN = [
    "host", "nodename", "uuid", "cell_uuid", "total_usable_ram_mb", "total_usable_disk_gb",
    "disk_mb_used", "free_ram_mb", "free_disk_mb", "vcpus_total", "vcpus_used", "num_instances",
    "num_io_ops", "failed_builds", "cpu_allocation_ratio", "ram_allocation_ratio",
    "disk_allocation_ratio", "hypervisor_type", "hypervisor_version", "hypervisor_hostname",
    "cpu_info", "supported_instances", "stats", "limits", "allocation_candidates",
]  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_plain_attributes_have_novas_value_and_type(world: World, name: str) -> None:
    ours, novas = getattr(world.ours(), name), getattr(world.novas(), name)

    assert ours == novas
    assert type(ours) is type(novas) or isinstance(novas, (str, dict))


def test_nothing_that_host_state_has_is_missing(world: World) -> None:
    novas, ours = world.novas(), world.ours()

    missing = [name for name in vars(novas) if not hasattr(ours, name)]

    assert missing == []
    assert str(ours) == str(novas)


def test_every_derived_attribute_can_be_worked_out(world: World) -> None:
    ours = world.ours()

    assert {name: getattr(ours, name) is not None for name in DERIVED} == dict.fromkeys(DERIVED, True)
    assert not hasattr(ours, "no_such_attribute")


def test_addresses_compare_as_text(world: World) -> None:
    assert str(world.ours().host_ip) == str(world.novas().host_ip) == "192.0.2.17"


def test_numa_cells_are_the_same(world: World) -> None:
    def fields(state: Any) -> Any:
        return [
            (cell.id, cell.socket, cell.cpuset, cell.pcpuset, cell.memory, cell.cpu_usage,
             cell.memory_usage, cell.pinned_cpus, sorted(map(sorted, cell.siblings)),
             [(page.size_kb, page.total, page.used, page.reserved) for page in cell.mempages],
             cell.network_metadata.physnets, cell.network_metadata.tunneled)
            for cell in state.numa_topology.cells
        ]  # fmt: skip

    assert fields(world.ours()) == fields(world.novas())


def test_pci_pools_are_the_same(world: World) -> None:
    def plain(state: Any) -> list[tuple[Any, ...]]:
        return sorted(
            tuple(sorted((k, str(v)) for k, v in pool.items() if k != "devices")) for pool in state.pci_stats.pools
        )

    assert isinstance(world.ours().pci_stats, pci_stats_module.PciDeviceStats)
    assert plain(world.ours()) == plain(world.novas())


def test_metrics_are_the_same(world: World) -> None:
    [ours], [novas] = world.ours().metrics, world.novas().metrics
    assert (ours.name, ours.value) == (novas.name, novas.value)


def test_aggregates_are_novas_objects(world: World) -> None:
    [ours], [novas] = world.ours().aggregates, world.novas().aggregates
    assert (ours.id, ours.metadata) == (novas.id, novas.metadata)


def test_instances_are_those_of_the_host(world: World) -> None:
    ours = world.ours().instances
    assert set(ours) == {INSTANCE}
    assert INSTANCE in ours
    assert "other" not in ours
    assert ours[INSTANCE].uuid == INSTANCE
    assert next(iter(ours.values())) is ours[INSTANCE]


def test_the_service_is_read_only_and_has_novas_columns(world: World) -> None:
    ours, novas = world.ours().service, world.novas().service

    for key in ("host", "binary", "disabled", "forced_down", "version", "uuid", "report_count"):
        assert ours[key] == novas[key]
    with pytest.raises(TypeError):
        ours["disabled"] = True
    assert compute_filter.ComputeFilter().host_passes(world.ours(), None)


def test_a_service_that_the_polls_find_up_is_up_with_an_old_record(world: World, conf: Any) -> None:
    # heartbeats are not read each time: the poller only looks for services that missed theirs
    view = world.table.view(world.node.uuid)
    assert view.service is not None
    old = dict(view.service.record) | {"last_seen_up": "2020-01-01T00:00:00.000000"}
    world.table.set_service(replace(view.service, record=old, up=True))
    assert compute_filter.ComputeFilter().host_passes(world.ours(), None)

    world.table.set_service(replace(view.service, record=old, up=False))
    assert not compute_filter.ComputeFilter().host_passes(world.ours(), None)


def test_own_claims_are_consumed_as_host_state_does(world: World) -> None:
    flavor = objects.Flavor(vcpus=2, memory_mb=2048, root_gb=20, ephemeral_gb=5, swap=0)
    spec = objects.RequestSpec(flavor=flavor, numa_topology=None, pci_requests=None)
    novas = world.novas()
    novas.consume_from_request(spec)

    consumer = str(uuid.uuid4())
    world.table.assume(
        world.node.uuid,
        "claim-1",
        consumer,
        {world.node.uuid: {"VCPU": 2}},
        Usage(vcpus=2, memory_mb=2048, disk_gb=25, instances=1, io_ops=1),
    )
    ours = world.ours()

    for name in ("free_ram_mb", "free_disk_mb", "vcpus_used", "num_instances", "num_io_ops"):
        assert getattr(ours, name) == getattr(novas, name), name
    assert consumer in ours.instances


def test_a_node_that_never_reported_is_empty(databases: None) -> None:
    world = World(free_disk_gb=None)

    assert world.ours().uuid is None
    assert world.ours().free_ram_mb == 0
    assert world.novas().uuid is None


def test_null_ratios_count_as_novas_defaults(databases: None) -> None:
    world = World(cpu_allocation_ratio=0.0, ram_allocation_ratio=0.0)

    for name in ("cpu_allocation_ratio", "ram_allocation_ratio", "disk_allocation_ratio"):
        assert getattr(world.ours(), name) == getattr(world.novas(), name)


def test_costly_parts_are_kept_until_the_row_changes(world: World) -> None:
    states = HostStates(world.aggregates)
    before = states.make(world.table.view(world.node.uuid))
    assert before.numa_topology is states.make(world.table.view(world.node.uuid)).numa_topology

    world.table.apply(
        world.node.uuid,
        {"numa.0": [2, 1024, "0", {"4": 0, "2048": 0}]},
        {},
        {},
        epoch=1,
        sequence=1,
    )
    after = states.make(world.table.view(world.node.uuid))

    assert after.numa_topology.cells[0].cpu_usage == 2
    assert before.numa_topology.cells[0].cpu_usage == 0


def test_an_attribute_set_by_a_filter_stays_on_its_host_state(world: World) -> None:
    states = HostStates(world.aggregates)
    one = states.make(world.table.view(world.node.uuid))
    one.limits["numa_topology"] = "x"
    one.free_ram_mb = 1

    two = states.make(world.table.view(world.node.uuid))

    assert two.limits == {}
    assert two.free_ram_mb == 11264
