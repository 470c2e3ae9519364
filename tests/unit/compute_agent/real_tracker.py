# SPDX-License-Identifier: Apache-2.0
"""Nova's own ResourceTracker without conductor, database and Placement; its writes are discarded."""

from __future__ import annotations

from typing import Any

import nova.conf
from nova import context as nova_context
from nova import objects
from nova.compute import vm_states
from nova.compute.resource_tracker import ResourceTracker
from nova.pci.stats import PciDeviceStats
from nova.scheduler.client.report import SchedulerReportClient

from shared_scheduler.model.services import DISABLED_TRAIT
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

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        """What the hypervisor knows, which is nothing of Nova's instances."""
        return {
            "hypervisor_hostname": nodename, "uuid": NODE, "hypervisor_type": "fake", "hypervisor_version": 1,
            "vcpus": 4, "vcpus_used": 0, "memory_mb": 8192, "memory_mb_used": 0, "local_gb": 100, "local_gb_used": 0,
            "numa_topology": None, "cpu_info": "{}", "supported_instances": [("x86_64", "kvm", "hvm")],
        }  # fmt: skip

    def cleanup_host(self, host: str) -> None:
        """nova-compute ends."""


class Devices:
    """Nova's PciDevTracker with one pool; its writes are discarded."""

    def __init__(self, pool: dict[str, Any]) -> None:
        self.stats = PciDeviceStats(objects.NUMATopology(cells=[]))
        self.stats.pools = [pool]

    def save(self, context: Any) -> None:
        """Its last step, whatever it did."""


class Answer:
    """What Placement answers to a call that it has carried out, or refused."""

    def __init__(self, status: int, content: Any) -> None:
        self.status_code, self.headers, self.text = status, dict[str, str](), str(content)
        self._content = content

    def json(self) -> Any:
        return self._content


class Placement:
    """The adapter of Nova's client of Placement: it stores what it gets, and the traits of each provider."""

    def __init__(self) -> None:
        self.traits: dict[str, list[str]] = {}
        self.writes: list[str] = []
        #: if it is not 200, a proxy answers this instead, after Placement has carried out a write
        self.status = 200

    def get(self, url: str, **_kwargs: Any) -> Answer:
        return Answer(200, {"traits": url.partition("name=in:")[2].split(",")})

    def put(self, url: str, json: Any, **_kwargs: Any) -> Answer:
        self.writes.append(url)
        *_, provider, what = url.split("/")
        if what == "traits":
            self.traits[provider] = json["traits"]
        return Answer(self.status, json | {"resource_provider_generation": json["resource_provider_generation"] + 1})


class Tracker(ResourceTracker):  # type: ignore[misc]
    """Nova's, but its Placement is in memory, and an audit finds the given instances."""

    def __init__(self) -> None:
        conf = nova.conf.CONF
        conf([], project="nova", default_config_files=[])
        self.inventory = {"VCPU": {"total": 4}}
        self.fail_update = False
        self.placement = Placement()
        self.service_disabled = False
        super().__init__(HOST, Driver(), reportclient=SchedulerReportClient(adapter=self.placement))
        self.service_ref = objects.Service(id=1)

    def _update_to_placement(self, context: Any, compute_node: Any, startup: bool = False) -> None:
        if self.fail_update:
            raise RuntimeError("Placement is away")
        cached = self.reportclient._provider_tree
        if not cached.exists(compute_node.uuid):
            cached.new_root(compute_node.hypervisor_hostname, compute_node.uuid, generation=0)
        tree = cached.subtree(compute_node.uuid)
        tree.update_inventory(compute_node.uuid, self.inventory)
        traits = tree.data(compute_node.uuid).traits - {DISABLED_TRAIT}
        tree.update_traits(compute_node.uuid, traits | ({DISABLED_TRAIT} if self.service_disabled else set()))
        self.provider_tree = tree
        self.while_audited()
        self.reportclient.update_from_provider_tree(context, tree)

    def while_audited(self) -> None:
        """What happens between the look at the service and the write to Placement."""

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
