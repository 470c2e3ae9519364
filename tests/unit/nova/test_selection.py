# SPDX-License-Identifier: Apache-2.0
"""The conductor receives the same answer as from nova-scheduler, after serialisation."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from nova import objects
from nova.objects import base
from nova.scheduler import host_manager
from oslo_serialization import jsonutils

from shared_scheduler.core.effects import Choice
from shared_scheduler.core.events import Candidate
from shared_scheduler.nova import selection
from shared_scheduler.nova.aggregates import AggregateCache
from tests.unit.nova.conftest import user_context

NODE = "33333333-3333-4333-8333-333333333333"
NIC = "55555555-5555-4555-8555-555555555555"
PORT = "66666666-6666-4666-8666-666666666666"
CELL = "77777777-7777-4777-8777-777777777777"
CANDIDATE = Candidate(
    {NODE: {"VCPU": 2, "MEMORY_MB": 2048}, NIC: {"NET_BW_EGR_KILOBIT_PER_SEC": 1000}},
    {"": (NODE,), PORT: (NIC,)},
)


def choice(**changes: Any) -> Choice:
    values: dict[str, Any] = {
        "node": NODE,
        "host": "cmp1",
        "nodename": "cmp1.example",
        "cell": CELL,
        "candidate": CANDIDATE,
        "limits": {},
    }
    return Choice(**{**values, **changes})


def aggregate(number: int, hosts: list[str], **metadata: str) -> Any:
    return objects.Aggregate(
        id=number,
        uuid=f"00000000-0000-4000-8000-{number:012}",
        name=f"agg{number}",
        hosts=hosts,
        metadata=metadata,
    )


@pytest.fixture
def aggregates() -> AggregateCache:
    cache = AggregateCache()
    cache.update(
        [
            aggregate(1, ["cmp1"], availability_zone="zone-a", ssd="true"),
            aggregate(3, ["cmp3"], availability_zone="zone-b"),
            aggregate(4, ["cmp3"], availability_zone="zone-a"),
            aggregate(2, ["cmp2"], ssd="true"),
        ]
    )
    return cache


def over_the_wire(thing: Any) -> Any:
    serializer = base.NovaObjectSerializer()
    sent = jsonutils.loads(jsonutils.dumps(serializer.serialize_entity(user_context(), thing)))
    return serializer.deserialize_entity(user_context(), sent)


def test_a_selection_is_the_one_that_nova_makes(aggregates: AggregateCache) -> None:
    limits = objects.NUMATopologyLimits(cpu_allocation_ratio=16.0, ram_allocation_ratio=1.5)
    state = host_manager.HostState("cmp1", "cmp1.example", CELL)
    state.uuid, state.limits = NODE, {"numa_topology": limits}
    state.aggregates = aggregates.of_host("cmp1")
    novas = objects.Selection.from_host_state(state, selection.allocation_request(CANDIDATE), "1.36")

    [[ours]] = over_the_wire(selection.selections([[choice(limits={"numa_topology": limits})]], aggregates))

    assert jsonutils.loads(ours.allocation_request) == jsonutils.loads(novas.allocation_request)
    novas.allocation_request = ours.allocation_request
    assert sent(ours) == sent(novas)


@pytest.mark.parametrize("limits", [{}, {"vcpu": 8.0}])
@pytest.mark.parametrize("candidate", [None, CANDIDATE])
@pytest.mark.parametrize("version", [None, "1.1"])
def test_its_own_way_to_the_wire_ends_where_novas_does(
    aggregates: AggregateCache, limits: dict[str, Any], candidate: Any, version: str | None
) -> None:
    [[ours]] = selection.selections([[choice(limits=limits, candidate=candidate)]], aggregates)
    novas = objects.Selection(**{name: getattr(ours, name) for name in ours.fields})

    assert sent(ours, version) == sent(novas, version)


def sent(one: Any, version: str | None = None) -> Any:
    """What goes over the wire; the order of changes is that of a set, another one in each process."""
    primitive = copy.deepcopy(one.obj_to_primitive(version))
    for part in (primitive, primitive["nova_object.data"]["limits"]):
        part["nova_object.changes"] = sorted(part["nova_object.changes"])
    return primitive


def test_mappings_name_a_provider_for_each_group(aggregates: AggregateCache) -> None:
    [[one]] = selection.selections([[choice()]], aggregates)

    assert json.loads(one.allocation_request)["mappings"] == {"": [NODE], PORT: [NIC]}
    assert one.allocation_request_version == "1.36"


def test_one_list_an_instance_with_the_claimed_host_first(aggregates: AggregateCache) -> None:
    alternate = choice(host="cmp2", nodename="cmp2")

    found = selection.selections([[choice(), alternate], [choice(), alternate]], aggregates)

    assert [[one.service_host for one in each] for each in found] == [["cmp1", "cmp2"]] * 2


def test_a_selection_without_a_claim_has_null(aggregates: AggregateCache) -> None:
    [[one]] = over_the_wire(selection.selections([[choice(candidate=None)]], aggregates))

    assert one.allocation_request == "null"
    assert one.allocation_request_version is None


@pytest.mark.parametrize(("host", "zone"), [("cmp1", "zone-a"), ("cmp2", "nova"), ("cmp3", "zone-a"), ("x", "nova")])
def test_every_host_is_in_a_zone(aggregates: AggregateCache, host: str, zone: str) -> None:
    assert selection.zone(aggregates, host) == zone


def test_old_conductors_get_dicts(aggregates: AggregateCache) -> None:
    limits = objects.NUMATopologyLimits(cpu_allocation_ratio=16.0, ram_allocation_ratio=1.5)
    found = selection.selections([[choice(limits={"numa_topology": limits})]], aggregates)

    [answer] = selection.legacy(found)

    assert (answer["host"], answer["nodename"]) == ("cmp1", "cmp1.example")
    assert answer["limits"]["numa_topology"]["nova_object.name"] == "NUMATopologyLimits"
    json.dumps(answer)
