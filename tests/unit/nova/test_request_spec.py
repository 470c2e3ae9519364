# SPDX-License-Identifier: Apache-2.0
"""A Request has the content of Nova's own ResourceRequest, for each kind of RequestSpec."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, parse_qsl

import pytest
from nova import exception, objects
from nova.scheduler import utils

from shared_scheduler.decision.request import Request
from shared_scheduler.nova import request_spec as conversion
from tests.unit.nova.conftest import PROJECT, USER, NoNodes, flavor, request_spec, user_context

UUID_A = "11111111-1111-4111-8111-111111111111"
UUID_B = "22222222-2222-4222-8222-222222222222"
NODE = "33333333-3333-4333-8333-333333333333"
GROUP = "44444444-4444-4444-8444-444444444444"


def request(spec: Any, uuids: Any = (UUID_A,), alternates: int = 2, nodes: Any = None) -> Request:
    return conversion.make_request(user_context(), spec, uuids, alternates, nodes or NoNodes())


class Nodes(NoNodes):
    def __init__(self, *found: Any) -> None:
        self.found = list(found)

    def get_compute_nodes_by_host_or_node(self, _context: Any, host: Any, node: Any, cell: Any = None) -> list[Any]:
        return [each for each in self.found if host in (None, each.host)]


def numa() -> Any:
    cell = objects.InstanceNUMACell(id=0, cpuset=set(), pcpuset={0, 1}, memory=2048)
    return objects.InstanceNUMATopology(cells=[cell])


def pinned() -> Any:
    return request_spec(flavor=flavor(extra_specs={"hw:cpu_policy": "dedicated"}), numa_topology=numa())


def bandwidth_port() -> Any:
    group = objects.RequestGroup(
        requester_id=UUID_B,
        use_same_provider=True,
        resources={"NET_BW_EGR_KILOBIT_PER_SEC": 1000},
        required_traits={"CUSTOM_PHYSNET_2"},
    )
    group.obj_set_defaults()
    return request_spec(requested_resources=[group])


#: every kind of request that differs in what it asks of Placement
SPECS = {
    "plain": request_spec,
    "volume": lambda: request_spec(is_bfv=True),
    "swap and ephemeral": lambda: request_spec(flavor=flavor(swap=1536, ephemeral_gb=5)),
    "traits": lambda: request_spec(
        flavor=flavor(extra_specs={"trait:HW_CPU_X86_AVX2": "required", "trait:CUSTOM_SLOW": "forbidden"})
    ),
    "override": lambda: request_spec(
        flavor=flavor(
            extra_specs={
                "resources:VCPU": "0",
                "resources:CUSTOM_BAREMETAL_GOLD": "1",
                "resources:MEMORY_MB": "0",
                "resources:DISK_GB": "0",
            }
        )
    ),
    "numbered": lambda: request_spec(
        flavor=flavor(extra_specs={"resources1:VGPU": "1", "trait1:CUSTOM_FAST": "required"})
    ),
    "vtpm": lambda: request_spec(flavor=flavor(extra_specs={"hw:tpm_version": "2.0", "hw:tpm_model": "tpm-crb"})),
    "image traits": lambda: request_spec(
        image=objects.ImageMeta(properties=objects.ImageMetaProps(traits_required=["HW_CPU_X86_SGX"]))
    ),
    "pinned": pinned,
    "port": bandwidth_port,
}


@pytest.mark.parametrize("kind", SPECS)
def test_queries_are_novas_own(kind: str) -> None:
    spec = SPECS[kind]()
    spec.root_required.add("OWNER_NOVA")
    spec.root_forbidden.add("COMPUTE_STATUS_DISABLED")

    made = request(spec)

    own = utils.ResourceRequest.from_request_spec(spec).to_querystring()
    expected = [pair for pair in parse_qsl(own, keep_blank_values=True) if pair[0] != "limit"]
    assert parse_qsl(made.queries[0], keep_blank_values=True) == expected


@pytest.mark.parametrize("kind", ["plain", "volume", "swap and ephemeral", "traits", "vtpm", "image traits", "pinned"])
def test_a_root_only_request_has_the_same_content_in_form_and_query(kind: str) -> None:
    spec = SPECS[kind]()
    spec.root_required.add("OWNER_NOVA")
    spec.root_forbidden.add("COMPUTE_STATUS_DISABLED")

    made = request(spec)

    for form, text in zip(made.forms, made.queries, strict=True):
        asked = parse_qs(text)
        resources = {k: int(v) for k, v in (r.split(":") for r in asked["resources"][0].split(","))}
        assert form.resources == resources
        assert _traits(asked.get("required")) == (form.required, form.forbidden)
        assert _traits(asked.get("root_required")) == (form.root_required, form.root_forbidden)


def _traits(values: list[str] | None) -> tuple[frozenset[str], frozenset[str]]:
    names = values[0].split(",") if values else []
    return (
        frozenset(name for name in names if not name.startswith("!")),
        frozenset(name[1:] for name in names if name.startswith("!")),
    )


@pytest.mark.parametrize("kind", ["plain", "volume", "swap and ephemeral", "pinned"])
def test_amounts_of_the_root_are_flat(kind: str) -> None:
    spec = SPECS[kind]()
    spec.root_required.add("OWNER_NOVA")
    spec.root_forbidden.add("COMPUTE_STATUS_DISABLED")

    assert request(spec).root_only


@pytest.mark.parametrize("kind", ["traits", "vtpm", "image traits"])
def test_traits_are_asked_of_placement_because_no_write_checks_them(kind: str) -> None:
    assert not request(SPECS[kind]()).root_only


def test_aggregates_are_asked_of_placement_because_no_write_checks_them() -> None:
    spec = request_spec(requested_destination=objects.Destination(aggregates=["5e08ea53-c4c6-448e-9334-ac4953de3cfa"]))

    assert not request(spec).root_only


@pytest.mark.parametrize("kind", ["override", "numbered", "port"])
def test_a_request_beyond_the_root_provider_is_not_root_only(kind: str) -> None:
    assert not request(SPECS[kind]()).root_only


def test_a_pinned_request_falls_back_to_vcpu() -> None:
    made = request(pinned())

    assert [dict(form.resources) for form in made.forms] == [
        {"PCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 20},
        {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 20},
    ]
    assert len(made.queries) == 2
    assert made.has_numa


def test_the_fallback_can_be_turned_off(conf: Any) -> None:
    conf.set_override("disable_fallback_pcpu_query", True, group="workarounds")

    assert len(request(pinned()).forms) == 1


def test_aggregates_are_an_and_of_ors() -> None:
    destination = objects.Destination()
    destination.require_aggregates(["agg-a", "agg-b"])
    destination.require_aggregates(["agg-c"])
    destination.append_forbidden_aggregates({"agg-x"})

    made = request(request_spec(requested_destination=destination))

    assert made.forms[0].member_of == (frozenset({"agg-a", "agg-b"}), frozenset({"agg-c"}))
    assert made.forms[0].forbidden_aggregates == {"agg-x"}


def test_a_target_host_becomes_a_tree_and_fills_the_destination() -> None:
    node = objects.ComputeNode(uuid=NODE, host="cmp1", hypervisor_hostname="cmp1.example")
    spec = request_spec(requested_destination=objects.Destination(host="cmp1", node=None))

    made = request(spec, nodes=Nodes(node))

    assert made.forms[0].in_tree == NODE
    assert "in_tree" not in made.queries[0]
    assert made.destination is not None
    assert (made.destination.host, made.destination.node) == ("cmp1", "cmp1.example")


def test_a_target_that_does_not_exist_has_novas_text() -> None:
    spec = request_spec(force_hosts=["nosuch"])

    with pytest.raises(exception.NoValidHost, match="No such host - host: nosuch node: None"):
        request(spec)


def test_rebuild_concerns_neither_placement_nor_a_claim() -> None:
    spec = request_spec(
        scheduler_hints={"_nova_check_type": ["rebuild"]},
        force_hosts=["cmp1"],
        force_nodes=["cmp1"],
    )

    made = request(spec)

    assert made.is_rebuild
    assert (made.forms, made.queries, made.claim) == ((), (), False)
    assert made.check_type == "rebuild"


def test_an_old_conductor_that_names_no_instances_gets_choices_without_claims() -> None:
    made = request(request_spec(num_instances=3), uuids=None)

    assert made.instance_uuids == ("", "", "")
    assert not made.claim
    assert made.forms


def test_uuids_count_not_the_number_of_the_first_boot() -> None:
    # a server of a multi-create of five is resized: its spec still says five
    made = request(request_spec(num_instances=5), uuids=[UUID_B])

    assert made.instance_uuids == (UUID_B,)
    assert made.claim


def test_only_a_move_may_find_allocations_of_its_own() -> None:
    assert not request(request_spec()).merge_with_existing
    assert request(request_spec(ignore_hosts=["dead-host"])).merge_with_existing
    assert not request(request_spec(ignore_hosts=["h"]), uuids=[UUID_A, UUID_B]).merge_with_existing


def test_a_request_contains_its_server_group() -> None:
    spec = request_spec(
        instance_group=objects.InstanceGroup(
            uuid=GROUP,
            policy="anti-affinity",
            rules={"max_server_per_host": "2"},
            members=[UUID_A, UUID_B],
            hosts=["cmp1"],
        )
    )

    group = request(spec).group

    assert group is not None
    assert (group.policy, group.max_server_per_host) == ("anti-affinity", 2)
    assert group.members == {UUID_A, UUID_B}
    assert group.hosts == {"cmp1"}


def test_usage_equals_the_consumption_of_host_state() -> None:
    usage = request(request_spec(flavor=flavor(swap=4096, ephemeral_gb=7), is_bfv=True)).usage

    assert (usage.vcpus, usage.memory_mb, usage.disk_gb) == (2, 2048, 27)


def test_a_request_names_user_and_project() -> None:
    made = request(request_spec(user_id=None))

    assert (made.project_id, made.user_id, made.request_id) == (PROJECT, USER, "req-global")


def test_only_requests_with_a_topology_send_one_to_the_node() -> None:
    assert request(request_spec()).topology == ""

    told = json.loads(request(pinned()).topology)

    back = objects.InstanceNUMATopology.obj_from_primitive(told["numa"])
    assert back.cells[0].pcpuset == {0, 1}
    assert told["pci"] == []


def test_hints_and_image_properties_are_plain() -> None:
    spec = request_spec(
        scheduler_hints={"same_host": [UUID_B], "query": ['[">", "$vcpus_total", 1]']},
        image=objects.ImageMeta(id=NODE, properties=objects.ImageMetaProps(hw_architecture="x86_64")),
    )

    made = request(spec)

    assert made.hints["same_host"] == (UUID_B,)
    assert made.image_id == NODE
    assert made.image_properties["hw_architecture"] == "x86_64"


def test_fields_are_found_where_asking_the_object_finds_them() -> None:
    properties = objects.ImageMetaProps(hw_architecture="x86_64", hw_vif_multiqueue_enabled=True)
    properties.img_hv_type = "kvm"

    asked = {name: getattr(properties, name) for name in properties.fields if name in properties}

    assert len(asked) == 3
    assert conversion.set_fields(properties) == asked
