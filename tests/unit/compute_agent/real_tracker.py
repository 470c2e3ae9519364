# SPDX-License-Identifier: Apache-2.0
"""Nova's own ResourceTracker without conductor, database and Placement; its writes are discarded."""

from __future__ import annotations

from typing import Any

import nova.conf
from nova import context as nova_context
from nova import objects
from nova.compute import vm_states
from nova.compute.provider_tree import ProviderTree
from nova.compute.resource_tracker import ResourceTracker
from nova.pci.stats import PciDeviceStats

from tests.unit.compute_agent.node_facts import HOST, NODE

objects.register_all()
CONTEXT = nova_context.get_admin_context()


class Record(objects.ComputeNode):  # type: ignore[misc]
    """A ComputeNode whose save goes nowhere."""

    def save(self, *_args: Any, **_kwargs: Any) -> None:
        self.obj_reset_changes()


class Guest(objects.Instance):  # type: ignore[misc]
    """An Instance whose save goes nowhere."""

    def save(self, *_args: Any, **_kwargs: Any) -> None:
        self.obj_reset_changes()


class Driver:
    """A hypervisor with one node."""

    def node_is_available(self, nodename: str) -> bool:
        return nodename == HOST

    def cleanup_host(self, host: str) -> None:
        """nova-compute ends."""


class Devices:
    """Nova's PciDevTracker with one pool; its writes are discarded."""

    def __init__(self, pool: dict[str, Any]) -> None:
        self.stats = PciDeviceStats(objects.NUMATopology(cells=[]))
        self.stats.pools = [pool]

    def save(self, context: Any) -> None:
        """Its last step, whatever it did."""


class ReportClient:
    """Nova's client of Placement, of which only one call is used."""

    def __init__(self) -> None:
        self.traits: dict[str, list[str]] = {}

    def set_traits_for_provider(
        self, _context: Any, rp_uuid: str, traits: list[str], generation: int | None = None
    ) -> None:
        self.traits[rp_uuid] = traits


class Tracker(ResourceTracker):  # type: ignore[misc]
    """Nova's, but its Placement is a tree in memory, and an audit finds the given instances."""

    def __init__(self) -> None:
        conf = nova.conf.CONF
        conf([], project="nova", default_config_files=[])
        self.inventory = {"VCPU": {"total": 4}}
        self.fail_update = False
        super().__init__(HOST, Driver(), reportclient=ReportClient())

    def _update_to_placement(self, context: Any, compute_node: Any, startup: bool = False) -> None:
        if self.fail_update:
            raise RuntimeError("Placement is away")
        tree = ProviderTree()
        tree.new_root(HOST, NODE, generation=1)
        tree.update_inventory(NODE, self.inventory)
        self.provider_tree = tree

    def update_available_resource(self, context: Any, nodename: str, startup: bool = False) -> None:
        self.stats[nodename].clear()
        self.tracked_instances.clear()
        self.tracked_migrations.clear()
        if nodename not in self.compute_nodes:
            self.compute_nodes[nodename] = record()
        self._update(context, self.compute_nodes[nodename], startup=startup)


def record(node: str = NODE, nodename: str = HOST) -> Record:
    return Record(
        CONTEXT, id=1, uuid=node, host=HOST, hypervisor_hostname=nodename, hypervisor_type="fake",
        hypervisor_version=1, vcpus=4, vcpus_used=0, memory_mb=8192, memory_mb_used=0, free_ram_mb=8192,
        local_gb=100, local_gb_used=0, free_disk_gb=100, disk_available_least=100, running_vms=0,
        current_workload=0, cpu_allocation_ratio=4.0, ram_allocation_ratio=1.0, disk_allocation_ratio=1.0,
        cpu_info="{}", host_ip="192.0.2.1", stats={}, numa_topology=None, metrics="[]",
        supported_hv_specs=[objects.HVSpec.from_list(["x86_64", "kvm", "hvm"])],
    )  # fmt: skip


def guest(tracker: Tracker, uuid: str, vcpus: int = 1, memory_mb: int = 512) -> Guest:
    tracker.is_bfv[uuid] = False
    flavor = objects.Flavor(memory_mb=memory_mb, vcpus=vcpus, root_gb=1, ephemeral_gb=0, swap=0)
    return Guest(
        CONTEXT, uuid=uuid, host=None, node=None, vm_state=vm_states.BUILDING, task_state=None,
        project_id="6f5b4d6c8f5a4cbb9f6c3f1f2a3b4c5d", os_type=None, flavor=flavor, numa_topology=None,
        pci_requests=objects.InstancePCIRequests(requests=[]), pci_devices=objects.PciDeviceList(),
        resources=None, migration_context=None,
    )  # fmt: skip
