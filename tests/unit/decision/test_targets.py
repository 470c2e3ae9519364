# SPDX-License-Identifier: Apache-2.0
"""Hosts that a request names, and requests that repeat or come in groups."""

from __future__ import annotations

from shared_scheduler.decision.decision_settings import DEFAULT_FILTERS
from shared_scheduler.decision.pipeline import Decider, OncePerRequestFilters
from shared_scheduler.decision.request import Destination, Flavor, Group
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.table.host_table import HostTable
from tests.unit.decision.small_clouds import SMALL, add_host, chosen, cloud, small_request

# -- targets


def test_ignored_and_forced_hosts_are_named_in_any_case():
    table = cloud("Compute1", "Compute2")
    ignoring = small_request(ignore_hosts=frozenset({"compute1"}))
    assert chosen(table, ignoring) == ["Compute2"]
    assert chosen(table, small_request(force_hosts=("COMPUTE1",))) == ["Compute1"]


def test_forced_hosts_skip_the_filters_unless_a_check_is_asked():
    table = cloud("a")
    table.set_service(ServiceFacts("a", disabled=True))
    assert chosen(table, small_request(force_hosts=("a",))) == ["a"]
    assert chosen(table, small_request(force_hosts=("a",), check_type="rebuild")) == []


def test_a_requested_destination_is_exact():
    table = HostTable()
    add_host(table, "n1", host="ironic")
    add_host(table, "n2", host="ironic")
    assert chosen(table, small_request(destination=Destination("ironic"))) == ["n1", "n2"]
    assert chosen(table, small_request(destination=Destination("ironic", "n2"))) == ["n2"]
    assert chosen(table, small_request(destination=Destination("IRONIC"))) == []


def test_a_disabled_cell_is_used_only_where_the_request_names_it():
    table = cloud("here")
    add_host(table, "there", cell="cell2")
    table.set_disabled_cells(frozenset({"cell2"}))
    decider = Decider(table)
    plain = decider.decide(small_request())
    assert list(plain.nodes()) == ["here"]
    assert plain.reasons == {"cell_disabled": 1}
    named = decider.decide(small_request(destination=Destination(cell="cell2")))
    assert list(named.nodes()) == ["there"]
    assert named.reasons == {"cell": 1}


def test_excluded_nodes_are_not_offered_again():
    decision = Decider(cloud("a", "b")).decide(small_request(), 0, {"a", "unknown"})
    assert list(decision.nodes()) == ["b"]
    assert decision.reasons == {"tried": 1}


# -- rebuild, several instances


def test_a_rebuild_asks_only_the_filters_that_nova_asks():
    table = cloud("a")
    table.set_service(ServiceFacts("a", disabled=True))
    rebuild = small_request(forms=(), is_rebuild=True, force_hosts=("a",), check_type="rebuild")
    assert chosen(table, rebuild) == ["a"]
    other_image = small_request(
        forms=(),
        is_rebuild=True,
        check_type="rebuild",
        image_properties={"hw_architecture": "aarch64"},
    )
    assert chosen(table, other_image) == []


def test_hosts_rejected_for_the_first_instance_stay_rejected():
    """ComputeCapabilitiesFilter runs once a request: later instances do not ask it again."""
    table = cloud("a", "b")
    add_host(table, "b", **{"cn.vcpus_used": 1})
    request = small_request(
        flavor=Flavor("f", extra_specs={"capabilities:vcpus_used": "<= 0"}),
        instance_uuids=("s1", "s2"),
    )
    decider, narrowing = Decider(table), OncePerRequestFilters()
    assert list(decider.decide(request, 0, narrowing=narrowing).nodes()) == ["a"]
    table.assume("a", "c1", "s1", {"a": SMALL}, request.usage)
    second = decider.decide(request, 1, narrowing=narrowing)
    assert list(second.nodes()) == ["a"], "a second request would find no host"
    assert second.reasons == {"first_instance": 1}
    assert list(decider.decide(request).nodes()) == []


def test_a_host_that_joins_between_two_instances_is_judged_for_the_second_one():
    # given a request whose first instance has left a host out
    table = cloud("a")
    add_host(table, "b", **{"cn.vcpus_used": 1})
    request = small_request(
        flavor=Flavor("f", extra_specs={"capabilities:vcpus_used": "<= 0"}),
        instance_uuids=("s1", "s2"),
    )
    decider, narrowing = Decider(table), OncePerRequestFilters()
    assert list(decider.decide(request, 0, narrowing=narrowing).nodes()) == ["a"]
    # when that one is replaced by a new one, which gets its place in the table
    table.remove("b")
    add_host(table, "c")
    # then
    assert set(decider.decide(request, 1, narrowing=narrowing).nodes()) == {"a", "c"}


def test_a_member_may_be_resized_on_a_host_that_has_enough_members():
    # given a host with one member more than it may have
    table = HostTable()
    add_host(table, "a", instances=("s1", "s3"))
    add_host(table, "b", instances=("s2",))
    group = Group("g", "anti-affinity", frozenset({"s1", "s2", "s3"}))
    assert chosen(table, small_request(group=group, instance_uuids=("s1",))) == ["a"]


def test_a_host_with_as_many_instances_as_it_may_have_gets_no_more():
    table = cloud()
    for node, instances in (("full", 3), ("other", 2)):
        add_host(table, node, **{"stats.num_instances": instances})
    enabled = (*DEFAULT_FILTERS, "NumInstancesFilter")
    assert chosen(table, enabled_filters=enabled, max_instances_per_host=3) == ["other"]


def test_anti_affinity_counts_claims_that_are_under_way():
    table = cloud("a", "b")
    group = Group("g", "anti-affinity", frozenset({"s1", "s2"}))
    request = small_request(group=group, instance_uuids=("s1", "s2"))
    table.assume("a", "c1", "s1", {"a": SMALL}, request.usage)
    decision = Decider(table).decide(request, 1)
    assert list(decision.nodes()) == ["b"]
    assert decision.reasons == {"ServerGroupAntiAffinityFilter": 1}


def test_all_nodes_of_a_service_host_share_its_instances():
    table = HostTable()
    add_host(table, "n1", host="ironic", instances=("s1",))
    add_host(table, "n2", host="ironic")
    add_host(table, "n3", host="other")
    group = Group("g", "anti-affinity", frozenset({"s1"}))
    request = small_request(group=group, instance_uuids=("s9",))
    assert chosen(table, request) == ["n3"]
