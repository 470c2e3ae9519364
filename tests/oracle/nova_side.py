# SPDX-License-Identifier: Apache-2.0
"""A cloud, options and requests as Nova's own objects, decided by Nova's own classes."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import nova.conf
from nova import context as nova_context
from nova import objects
from nova.objects import fields
from nova.scheduler import filters, host_manager, weights
from oslo_utils import timeutils

from shared_scheduler.conf import opts
from tests.oracle.asks import Ask
from tests.oracle.clouds import FLAVORS, Aggregate, Cloud, Node, Service
from tools.laboratory.decide.nova_side import Scheduler, compute_node, pci_requests

CONF = nova.conf.CONF
logging.getLogger("nova").setLevel(logging.CRITICAL)  # it says much about odd hosts, thousands of times
objects.register_all()
opts.register(CONF)

FILTERS = {one.__name__: one for one in filters.HostFilterHandler().get_all_classes()}
WEIGHERS = weights.HostWeightHandler().get_all_classes()
LONG_AGO = datetime.datetime(2020, 1, 1)

GROUP = "00000000-0000-0000-0004-000000000000"

#: flavor -> (vcpus, memory_mb, root_gb)
SIZES = {FLAVORS[0]: (1, 512, 1), FLAVORS[1]: (4, 2048, 20)}


@contextmanager
def configured(options: dict[str, Any]) -> Iterator[None]:
    """Nova's options for the duration."""
    options = dict(options)
    metrics = options.pop("metrics")
    given: list[tuple[str | None, str, Any]] = [("filter_scheduler", name, value) for name, value in options.items()]
    given += [("metrics", name, value) for name, value in metrics.items()]
    # a busy machine makes no service late
    given.append((None, "service_down_time", 1_000_000))
    for group, name, value in given:
        CONF.set_override(name, value, group=group)
    try:
        yield
    finally:
        for group, name, _ in given:
            CONF.clear_override(name, group=group)


def host_states(cloud: Cloud) -> list[Any]:
    """One HostState a node, in order."""
    instances: dict[str, dict[str, Any]] = {}
    for node in cloud.nodes:
        of_host = instances.setdefault(node.host, {})
        of_host.update({uuid: _instance(cloud, uuid) for uuid in cloud.instances[node.uuid]})
    return [_host_state(cloud, node, instances[node.host]) for node in cloud.nodes]


def _instance(cloud: Cloud, uuid: str) -> Any:
    kept = {f"image_{key}": value for key, value in cloud.images[uuid].items()}
    return objects.Instance(uuid=uuid, image_ref=None, system_metadata=kept)


def _host_state(cloud: Cloud, node: Node, instances: dict[str, Any]) -> Any:
    state = host_manager.HostState(node.host, node.nodename, node.cell)
    its = [_aggregate(one) for one in cloud.aggregates if node.host in one.hosts]
    state.update(compute_node(node.row), _service(cloud.services[node.host], node.host), its, instances)
    return state


def as_new(states: list[Any]) -> list[Any]:
    """Without what the filters of an earlier request left on them."""
    for state in states:
        state.limits = {}
        state.allocation_candidates = [{"allocations": {}, "mappings": {}}]
    return states


def _service(service: Service, host: str) -> dict[str, Any]:
    return {
        "host": host,
        "disabled": service.disabled,
        "disabled_reason": None,
        "forced_down": service.forced_down,
        "last_seen_up": timeutils.utcnow() if service.up else LONG_AGO,
        "created_at": LONG_AGO,
        "binary": "nova-compute",
    }


def _aggregate(one: Aggregate) -> Any:
    return objects.Aggregate(id=one.id, name=f"aggregate{one.id}", hosts=list(one.hosts), metadata=dict(one.metadata))


def request_spec(ask: Ask) -> Any:
    """The RequestSpec, as a scheduler gets it from the conductor."""
    vcpus, memory_mb, root_gb = SIZES[ask.flavor]
    return objects.RequestSpec(
        context=nova_context.get_admin_context(),
        project_id=ask.project,
        user_id="user",
        instance_uuid=ask.instance,
        num_instances=1,
        flavor=objects.Flavor(
            name=ask.flavor,
            vcpus=vcpus,
            memory_mb=memory_mb,
            root_gb=root_gb,
            ephemeral_gb=0,
            swap=0,
            extra_specs=dict(ask.extra_specs),
        ),
        image=objects.ImageMeta(id=ask.image_id, properties=objects.ImageMetaProps.from_dict(ask.image)),
        scheduler_hints={key: list(values) for key, values in ask.hints.items()},
        instance_group=_group(ask),
        ignore_hosts=list(ask.ignore_hosts),
        force_hosts=list(ask.force_hosts),
        force_nodes=list(ask.force_nodes),
        availability_zone=None,
        requested_destination=_destination(ask),
        numa_topology=_numa(ask),
        pci_requests=None if ask.pci is None else pci_requests(*ask.pci),
        requested_resources=[],
        limits=objects.SchedulerLimits(),
    )


def _group(ask: Ask) -> Any:
    if ask.group is None:
        return None
    group = objects.InstanceGroup(
        uuid=GROUP,
        policy=ask.group["policy"],
        members=list(ask.group["members"]),
        hosts=list(ask.group["hosts"]),
    )
    group._rules = dict(ask.group["rules"])
    group.policies = [ask.group["policy"]]
    return group


def _destination(ask: Ask) -> Any:
    if ask.destination is None and ask.preferred_cell is None:
        return None
    found = objects.Destination(allow_cross_cell_move=ask.preferred_cell is not None)
    if ask.destination is not None:
        found.host, found.node = ask.destination
    if ask.preferred_cell is not None:
        found.cell = objects.CellMapping(uuid=ask.preferred_cell)
    return found


def _numa(ask: Ask) -> Any:
    if not ask.numa:
        return None
    cells, first = [], 0
    for number, cell in enumerate(ask.numa):
        cpus = set(range(first, first + cell.cpus))
        pinned = cell.policy == fields.CPUAllocationPolicy.DEDICATED
        first += cell.cpus
        cells.append(
            objects.InstanceNUMACell(
                id=number,
                cpuset=set() if pinned else cpus,
                pcpuset=cpus if pinned else set(),
                memory=cell.memory,
                pagesize=cell.pagesize,
                cpu_policy=cell.policy,
                cpu_thread_policy=None,
            )
        )
    return objects.InstanceNUMATopology(cells=cells)


@contextmanager
def _no_cell_is_targeted(context: Any, _cell: Any) -> Iterator[Any]:
    """Instances come with all that is asked of them."""
    yield context


@contextmanager
def cells_without_databases() -> Iterator[None]:
    """The weigher of image properties goes through the mapping of a cell to its instances."""
    with (
        patch.object(objects.CellMapping, "get_by_uuid", lambda context, uuid: uuid),
        patch.object(nova_context, "target_cell", _no_cell_is_targeted),
    ):
        yield


def decided(scheduler: Scheduler, states: list[Any], spec: Any, index: int = 0) -> list[Any]:
    """WeighedHosts, best first, as ``SchedulerManager._get_sorted_hosts`` without its dice."""
    with cells_without_databases():
        passing = list(scheduler.get_filtered_hosts(as_new(list(states)), spec, index) or ())
        return list(scheduler.get_weighed_hosts(passing, spec)) if passing else []
