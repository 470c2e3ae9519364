# SPDX-License-Identifier: Apache-2.0
"""The same rows as Nova's HostState objects, decided by Nova's own filter and weigher classes."""

import datetime
import json
import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import nova.conf
from nova import context as nova_context
from nova import objects
from nova.scheduler import filters, host_manager, weights

from shared_scheduler.conf import opts
from shared_scheduler.nova.request_spec import topology_text
from tools.laboratory.decide.workloads import CELL, PROJECT, Workload, aggregates, instance, members

CONF = nova.conf.CONF
DEFAULT_FILTERS = (
    "ComputeFilter",
    "ComputeCapabilitiesFilter",
    "ImagePropertiesFilter",
    "ServerGroupAntiAffinityFilter",
    "ServerGroupAffinityFilter",
)


class EvenHostsFilter(filters.BaseHostFilter):
    """An example of a site's plug-in."""

    def host_passes(self, host_state: Any, spec: Any) -> bool:
        return int(host_state.host[-1]) % 2 == 0 and host_state.free_ram_mb > 0


def prepare() -> None:
    """Register objects and options, and disable logging, as with the default log level."""
    logging.getLogger("nova").setLevel(logging.ERROR)
    objects.register_all()
    opts.register(CONF)
    # creating ten thousand host states may take longer than a service counts as up
    CONF.set_override("service_down_time", 1_000_000)


@cache
def classes() -> tuple[dict[str, Any], list[Any]]:
    """Filters by name, and weighers in Nova's order."""
    by_name = {one.__name__: one for one in filters.HostFilterHandler().get_all_classes()}
    by_name["EvenHostsFilter"] = EvenHostsFilter
    return by_name, weights.HostWeightHandler().get_all_classes()


class Scheduler(host_manager.HostManager):
    """Nova's HostManager without its databases."""

    def __init__(self, enabled_filters: Sequence[str]) -> None:
        by_name, weighers = classes()
        self.filter_handler = filters.HostFilterHandler()
        self.enabled_filters = [by_name[name]() for name in enabled_filters]
        self.weight_handler = weights.HostWeightHandler()
        self.weighers = [weigher() for weigher in weighers]

    def decide(self, states: list[Any], spec: Any) -> list[Any]:
        """Run filters and weighers, and nothing else of nova-scheduler."""
        for state in states:
            state.limits = {}
            state.allocation_candidates = [{"allocations": {}, "mappings": {}}]
        passing = list(self.get_filtered_hosts(states, spec, 0) or ())
        return list(self.get_weighed_hosts(passing, spec))


def host_states(workload: Workload, rows: list[dict[str, Any]]) -> list[Any]:
    """One host state for each row, in order."""
    group = workload.request.get("group") or {}
    placed = members(len(rows), int(group.get("members", 0)))
    of_host: dict[str, list[Any]] = {}
    for one in aggregates(len(rows)):
        made = objects.Aggregate(id=one.id, name=one.name, hosts=sorted(one.hosts), metadata=dict(one.metadata))
        for host in one.hosts:
            of_host.setdefault(host, []).append(made)
    now = datetime.datetime.now(datetime.UTC)
    service = {"disabled": False, "forced_down": False, "last_seen_up": now, "created_at": now}
    states = []
    for number, row in enumerate(rows):
        state = host_manager.HostState(row["host"], row["hypervisor_hostname"], CELL)
        there = [placed[number]] if number in placed else []
        state.update(
            compute_node(row),
            service,
            of_host.get(row["host"], []),
            {uuid: objects.Instance(uuid=uuid) for uuid in there},
        )
        states.append(state)
    return states


def compute_node(row: Mapping[str, Any]) -> Any:
    """A record of Nova's database as its object."""
    row = dict(row)
    supported, stats = json.loads(row.pop("supported_instances")), json.loads(row.pop("stats"))
    pools = row.pop("pci_stats")
    return objects.ComputeNode(
        supported_hv_specs=[objects.HVSpec.from_list(one) for one in supported],
        stats={key: str(value) for key, value in stats.items()},
        pci_device_pools=(objects.PciDevicePoolList.obj_from_primitive(json.loads(pools)) if pools else None),
        updated_at=None,
        **row,
    )


def request_spec(workload: Workload, hosts: int) -> Any:
    """The RequestSpec of a workload."""
    asked = workload.request
    resources = asked["resources"]
    return objects.RequestSpec(
        context=nova_context.get_admin_context(),
        project_id=PROJECT,
        user_id="user",
        instance_uuid=instance(10**9),
        num_instances=1,
        flavor=objects.Flavor(
            name="bench",
            vcpus=resources.get("VCPU", 0) + resources.get("PCPU", 0),
            memory_mb=resources["MEMORY_MB"],
            root_gb=resources["DISK_GB"],
            ephemeral_gb=0,
            swap=0,
            extra_specs=dict(asked.get("extra_specs", {})),
        ),
        image=objects.ImageMeta(properties=objects.ImageMetaProps.from_dict({"hw_architecture": "x86_64"})),
        scheduler_hints={},
        instance_group=_group(workload, hosts),
        ignore_hosts=[],
        force_hosts=[],
        force_nodes=[],
        availability_zone=None,
        requested_destination=None,
        numa_topology=_numa(asked),
        pci_requests=pci_requests(asked["devices"], "1520") if "devices" in asked else None,
        requested_resources=[],
        limits=objects.SchedulerLimits(),
    )


def topology(workload: Workload, hosts: int) -> str:
    """The text of a Request for it."""
    return topology_text(request_spec(workload, hosts))


def _group(workload: Workload, hosts: int) -> Any:
    asked = workload.request.get("group")
    if not asked:
        return None
    placed = members(hosts, int(asked["members"]))
    group = objects.InstanceGroup(policy=asked["policy"], members=sorted(placed.values()), hosts=[])
    group._rules = {}
    group.policies = [asked["policy"]]
    return group


def _numa(asked: dict[str, Any]) -> Any:
    if "numa" not in asked:
        return None
    cell = objects.InstanceNUMACell(
        id=0,
        cpuset=set(),
        pcpuset=set(range(asked["numa"])),
        memory=asked["resources"]["MEMORY_MB"],
        pagesize=None,
        cpu_policy="dedicated",
        cpu_thread_policy=None,
    )
    return objects.InstanceNUMATopology(cells=[cell])


def pci_requests(count: int, product: str) -> Any:
    """One request for a number of devices of a card."""
    one = objects.InstancePCIRequest(
        count=count,
        spec=[{"vendor_id": "8086", "product_id": product}],
        alias_name="card",
        request_id="00000000-0000-0000-0002-000000000000",
        numa_policy=None,
    )
    return objects.InstancePCIRequests(requests=[one])
