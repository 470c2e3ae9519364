# SPDX-License-Identifier: Apache-2.0
"""From a request to the hosts that pass, and to the reasons of the others."""

from __future__ import annotations

import pytest

from shared_scheduler.decision.candidates import forms_on
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import PlacementForm
from shared_scheduler.model.resources import Inventory
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.messages import Usage
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import Freshness
from tests.unit.decision.small_clouds import SMALL, add_host, chosen, cloud, form, host_leaves, small_request


def test_an_empty_table_selects_no_host_and_gives_the_reason():
    decision = Decider(HostTable()).decide(small_request())
    assert list(decision.nodes()) == []
    assert decision.text() == "0 of 0 hosts pass"


def test_the_emptiest_host_comes_first():
    table = cloud("a")
    add_host(table, "b", **{"cn.vcpus_used": 4})
    add_host(table, "c", **{"cn.vcpus_used": 2})
    assert chosen(table) == ["a", "c", "b"]


def test_equal_hosts_come_in_the_order_of_the_table():
    assert chosen(cloud("c", "a", "b")) == ["c", "a", "b"]


def test_every_host_is_counted_under_one_reason():
    table = cloud("fine")
    add_host(table, "full", used={"DISK_GB": 100})
    add_host(table, "disabled")
    table.set_service(ServiceFacts("disabled", disabled=True))
    add_host(table, "stale")
    table.set_freshness("stale", Freshness.STALE)
    add_host(table, "away", **{"agent.ready": False})
    table.upsert("new", "cell1", "new", "new")

    decision = Decider(table).decide(small_request())

    assert list(decision.nodes()) == ["fine"]
    assert decision.reasons == {
        "stale": 1,
        "agent_not_ready": 1,
        "never_reported": 1,
        "no_room:DISK_GB": 1,
        "ComputeFilter": 1,
    }
    assert decision.hosts == 6 == decision.survivors + sum(decision.reasons.values())


def test_a_claim_is_seen_by_the_next_decision():
    table = HostTable()
    add_host(table, "one-slot", inventories={"DISK_GB": Inventory(1)})
    decider = Decider(table)
    assert list(decider.decide(small_request()).nodes()) == ["one-slot"]
    table.assume("one-slot", "c1", "server-1", {"one-slot": SMALL}, Usage(1, 512, 1, 1, 1))
    refused = decider.decide(small_request())
    assert list(refused.nodes()) == []
    assert refused.stale_mirror


@pytest.mark.parametrize(
    ("inventory", "passes"),
    [
        (Inventory(100, 0, 2, 100), False),
        (Inventory(100, 0, 1, 0), False),
        (Inventory(100, 0, 1, 100, 3), False),
        (Inventory(100, 99, 1, 100), True),
        (Inventory(100, 100, 1, 100), False),
        (None, False),
    ],
)
def test_placements_units_are_kept(inventory, passes):
    table = HostTable()
    add_host(table, "host", inventories={"DISK_GB": inventory})
    assert chosen(table) == (["host"] if passes else [])


def test_a_class_without_inventory_fits_no_host():
    request = small_request(forms=(PlacementForm({"CUSTOM_GOLD": 1}),))
    decision = Decider(cloud("a")).decide(request)
    assert decision.reasons == {"no_room:CUSTOM_GOLD": 1}


def test_traits_of_root_and_giver():
    table = HostTable()
    add_host(table, "plain")
    add_host(table, "fast", traits=("COMPUTE_NODE", "HW_CPU_X86_AVX2"))
    add_host(table, "leaving", traits=("HW_CPU_X86_AVX2", "COMPUTE_STATUS_DISABLED"))
    wanted = form(
        required=frozenset({"HW_CPU_X86_AVX2"}),
        root_forbidden=frozenset({"COMPUTE_STATUS_DISABLED"}),
    )
    decision = Decider(table).decide(small_request(forms=(wanted,)))
    assert list(decision.nodes()) == ["fast"]
    assert decision.reasons == {"root_traits": 1, "traits": 1}


def test_a_trait_that_appears_is_seen():
    table = cloud("a", "b")
    decider = Decider(table)
    request = small_request(forms=(form(root_required=frozenset({"OWNER_NOVA"})),))
    assert list(decider.decide(request).nodes()) == []
    add_host(table, "b", traits=("OWNER_NOVA",))
    assert list(decider.decide(request).nodes()) == ["b"]


def test_aggregates_are_an_and_of_ors_without_the_forbidden():
    table = HostTable()
    add_host(table, "a", provider_aggregates=("az1", "ssd"))
    add_host(table, "b", provider_aggregates=("az1",))
    add_host(table, "c", provider_aggregates=("az2", "ssd", "isolated"))
    both = form(member_of=(frozenset({"az1", "az2"}), frozenset({"ssd"})))
    assert chosen(table, small_request(forms=(both,))) == ["a", "c"]
    without = form(member_of=both.member_of, forbidden_aggregates=frozenset({"isolated"}))
    assert chosen(table, small_request(forms=(without,))) == ["a"]


def test_a_host_that_joined_a_forbidden_aggregate_after_the_decision_has_no_form_any_more():
    # given a host that may be selected
    table = cloud("a")
    without = form(forbidden_aggregates=frozenset({"isolated"}))
    context = Decider(table).context(small_request(forms=(without,)))
    assert forms_on(context, 0) == (without,)
    # when its provider joins the aggregate before the host is tried
    table.load("a", host_leaves("a", provider_aggregates=("isolated",)), {})
    # then
    assert forms_on(context, 0) == ()


def test_in_tree_names_one_node():
    assert chosen(cloud("a", "b"), small_request(forms=(form(in_tree="b"),))) == ["b"]


def test_pinned_cpus_first_then_shared_ones():
    table = HostTable()
    add_host(table, "pinned", inventories={"VCPU": None, "PCPU": Inventory(4)})
    add_host(table, "shared")
    add_host(table, "neither", inventories={"VCPU": None})
    forms = (PlacementForm({"PCPU": 2, "MEMORY_MB": 512}), PlacementForm({"VCPU": 2, "MEMORY_MB": 512}))
    decision = Decider(table).decide(small_request(forms=forms))
    assert set(decision.nodes()) == {"pinned", "shared"}
    assert decision.form("pinned") == forms[0]
    assert decision.form("shared") == forms[1]
    assert decision.reasons == {"placement": 1}


def test_a_class_of_another_provider_is_a_question_to_placement():
    table = cloud("flat")
    child = {
        "name": "disks",
        "parent": "nested",
        "generation": 1,
        "inventories": {"DISK_GB": Inventory(50).to_leaf()},
        "traits": [],
        "aggregates": [],
    }
    add_host(table, "nested", inventories={"DISK_GB": None}, **{"rp.disks": child})
    decision = Decider(table).decide(small_request())
    assert set(decision.nodes()) == {"flat", "nested"}
    assert not decision.asks_placement("flat")
    assert decision.asks_placement("nested")
    big = small_request(forms=(PlacementForm({"VCPU": 1, "DISK_GB": 60}),))
    assert list(Decider(table).decide(big).nodes()) == ["flat"]


def test_a_request_without_forms_does_not_concern_placement():
    table = HostTable()
    add_host(table, "full", used={"DISK_GB": 100})
    assert chosen(table, small_request(forms=())) == ["full"]
