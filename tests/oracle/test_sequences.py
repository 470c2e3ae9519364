# SPDX-License-Identifier: Apache-2.0
"""One request for a hundred instances: the same hosts in the same order as Nova chooses them.

Nova narrows its host objects from instance to instance and consumes from them; we decide each
instance over the table, claims assumed.  The hosts differ little, so that the best changes often.

Equal hosts: Nova takes the one that its list happens to name first, and the list is in the order of a
set for the first instance, then in that of the last sort.  Here both sides take the first of the cloud.
"""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from nova import objects

from shared_scheduler.decision.pipeline import OncePerRequestFilters
from shared_scheduler.decision.request import Request
from tests.oracle import nova_side, our_side
from tests.oracle.asks import Ask
from tests.oracle.clouds import CELLS, FLAVORS, Cloud, Node, Service

INSTANCES = 100
FILTERS = [
    "ComputeFilter",
    "ComputeCapabilitiesFilter",
    "ServerGroupAntiAffinityFilter",
    "ServerGroupAffinityFilter",
    "IoOpsFilter",
    "NumInstancesFilter",
]
OPTIONS = {"max_io_ops_per_host": 20, "metrics": {"weight_setting": []}}


def cloud_of(hosts: int, rng: Random) -> Cloud:
    nodes = []
    for number in range(hosts):
        uuid = f"00000000-0000-0000-0000-{number:012d}"
        ram_used, vcpus_used = rng.randrange(8) * 256, rng.randrange(4)
        row = {
            "id": number + 1,
            "uuid": uuid,
            "host": f"compute{number}",
            "hypervisor_hostname": f"compute{number}",
            "hypervisor_type": "QEMU",
            "hypervisor_version": 8002000,
            "vcpus": 16,
            "vcpus_used": vcpus_used,
            "memory_mb": 32768,
            "memory_mb_used": ram_used,
            "free_ram_mb": 32768 - ram_used,
            "local_gb": 400,
            "local_gb_used": 0,
            "free_disk_gb": 400,
            "disk_available_least": None,
            "cpu_allocation_ratio": 4.0,
            "ram_allocation_ratio": 1.0,
            "disk_allocation_ratio": 1.0,
            "running_vms": 0,
            "current_workload": 0,
            "cpu_info": "{}",
            "host_ip": "10.0.0.1",
            "supported_instances": "[]",
            "stats": json.dumps({"num_instances": 0, "io_workload": rng.randrange(2)}),
            "metrics": "[]",
            "numa_topology": None,
            "pci_stats": None,
        }
        nodes.append(Node(uuid, f"compute{number}", f"compute{number}", CELLS[0], row))
    services = {node.host: Service() for node in nodes}
    return Cloud(nodes, services, {node.uuid: [] for node in nodes})


def uuids() -> list[str]:
    return [f"00000000-0000-0000-0006-{n:012d}" for n in range(INSTANCES)]


def novas_sequence(cloud: Cloud, ask: Ask) -> list[str]:
    """As ``SchedulerManager._schedule``: the first of the sorted hosts, then consume."""
    scheduler = nova_side.Scheduler(FILTERS)
    hosts, spec = nova_side.host_states(cloud), nova_side.request_spec(ask)
    position, chosen = {state.host: n for n, state in enumerate(hosts)}, []
    for index, uuid in enumerate(uuids()):
        spec.instance_uuid = uuid
        found = nova_side.decided(scheduler, hosts, spec, index)
        if not found:
            break
        best = found[0].obj
        hosts = sorted((one.obj for one in found), key=lambda state: position[state.host])
        best.consume_from_request(spec)
        if spec.instance_group is not None:
            spec.instance_group.hosts = [*spec.instance_group.hosts, best.host]
            best.instances[uuid] = objects.Instance(uuid=uuid)
        chosen.append(best.host)
    return chosen


def our_sequence(cloud: Cloud, ask: Ask) -> list[str]:
    table = our_side.host_table(cloud)
    decider, narrowing = our_side.decider(table, FILTERS), OncePerRequestFilters()
    request = our_side.request(nova_side.request_spec(ask), cloud)
    request = replace(request, instance_uuids=tuple(uuids()))
    chosen: list[str] = []
    for index, uuid in enumerate(uuids()):
        decision = decider.decide(seen_by(request, chosen), index, (), narrowing)
        node = next(decision.nodes(), None)
        if node is None:
            break
        table.assume(node, uuid, uuid, {}, request.usage)
        chosen.append(table.view(node).host)
    return chosen


def seen_by(request: Request, chosen: list[str]) -> Request:
    """The instances before are in the group already."""
    if request.group is None:
        return request
    hosts = request.group.hosts | set(chosen)
    return replace(request, group=replace(request.group, hosts=hosts))


def group(policy: str) -> dict[str, Any]:
    rules = {"max_server_per_host": "5"} if policy == "anti-affinity" else {}
    return {"policy": policy, "members": uuids(), "hosts": [], "rules": rules}


@pytest.mark.parametrize("hosts", [3, 40])
@pytest.mark.parametrize(
    "ask",
    [
        Ask(uuids()[0], flavor=FLAVORS[0]),
        Ask(uuids()[0], flavor=FLAVORS[1]),
        Ask(uuids()[0], extra_specs={"capabilities:vcpus_used": "<= 2"}),
        *(
            Ask(uuids()[0], group=group(policy))
            for policy in ("affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity")
        ),
    ],
    ids=lambda ask: (ask.group or {}).get("policy") or ask.flavor + "".join(ask.extra_specs),
)
def test_a_hundred_instances_go_where_nova_puts_them(ask, hosts):
    with nova_side.configured(OPTIONS):
        cloud = cloud_of(hosts, Random(hosts))
        novas, ours = novas_sequence(cloud, ask), our_sequence(cloud, ask)
    assert ours == novas
    assert len(ours) > 10
