# SPDX-License-Identifier: Apache-2.0
"""From a request to hosts, best first, and to the reasons of the others."""

from __future__ import annotations

import json
from random import Random

import pytest

from shared_scheduler.decision.errors import DecisionError, UnknownFilterError, UnknownWeigherError
from shared_scheduler.decision.explain import explain
from shared_scheduler.decision.pipeline import Decider, Narrowing
from shared_scheduler.decision.record import DecisionRecord, asked_of
from shared_scheduler.decision.request import Destination, Flavor, Group, PlacementForm
from shared_scheduler.decision.settings import DecisionSettings
from shared_scheduler.protocol.messages import Usage
from shared_scheduler.state.aggregates import AggregateFacts
from shared_scheduler.state.resources import Inventory
from shared_scheduler.state.row import Freshness
from shared_scheduler.state.services import ServiceFacts
from shared_scheduler.state.table import HostTable
from tests.unit.decision.worlds import add_host, cloud, small_request

SMALL = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}


def form(**changes):
    return PlacementForm(SMALL, **changes)


def chosen(table, request=None, **settings):
    decider = Decider(table, DecisionSettings(**settings))
    return list(decider.decide(request or small_request()).nodes())


# -- who passes


def test_an_empty_table_has_no_host_and_says_so():
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


def test_a_class_that_nobody_has_fits_nowhere():
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


def test_what_a_filter_dropped_for_the_first_instance_stays_dropped():
    """ComputeCapabilitiesFilter runs once a request: later instances do not ask it again."""
    table = cloud("a", "b")
    add_host(table, "b", **{"cn.vcpus_used": 1})
    request = small_request(
        flavor=Flavor("f", extra_specs={"capabilities:vcpus_used": "<= 0"}),
        instance_uuids=("s1", "s2"),
    )
    decider, narrowing = Decider(table), Narrowing()
    assert list(decider.decide(request, 0, narrowing=narrowing).nodes()) == ["a"]
    table.assume("a", "c1", "s1", {"a": SMALL}, request.usage)
    second = decider.decide(request, 1, narrowing=narrowing)
    assert list(second.nodes()) == ["a"], "a second request would find no host"
    assert second.reasons == {"first_instance": 1}
    assert list(decider.decide(request).nodes()) == []


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


# -- weights


def test_the_weight_of_a_single_host_is_nothing():
    decision = Decider(cloud("a")).decide(small_request())
    assert decision.weight("a") == 0.0
    assert decision.weight("b") is None


def test_an_aggregate_turns_a_weigher_round():
    table = cloud("a")
    add_host(table, "b", **{"cn.free_ram_mb": 1000})
    assert chosen(table) == ["a", "b"]
    pack = {"ram_weight_multiplier": "-1.0"}
    table.set_aggregates([AggregateFacts(1, "u", "pack", frozenset({"a", "b"}), pack)])
    assert chosen(table) == ["b", "a"]


def test_a_missing_metric_refuses_the_request_with_a_hint():
    table = cloud("a", "b")
    settings = DecisionSettings(metrics_weight_setting=(("cpu.percent", 1.0),))
    with pytest.raises(DecisionError, match=r"host a .* no metric cpu\.percent: enable its monitor"):
        Decider(table, settings).decide(small_request())


# -- what is wrong is said


def test_an_unknown_filter_is_named():
    with pytest.raises(UnknownFilterError, match="'RamFilter', which is no filter of Nova"):
        Decider(HostTable(), DecisionSettings(enabled_filters=("RamFilter",)))


def test_an_unknown_weigher_is_named():
    with pytest.raises(UnknownWeigherError, match="'LuckWeigher'"):
        Decider(HostTable(), DecisionSettings(weighers=("LuckWeigher",)))


@pytest.mark.parametrize(
    ("hints", "complaint"),
    [
        ({"query": ("{",)}, "hint query: not JSON"),
        ({"query": ('["xor", 1]',)}, "does not begin with one of"),
        ({"build_near_host_ip": ("not-an-ip",)}, "hints build_near_host_ip and cidr"),
    ],
)
def test_a_bad_hint_is_said_to_the_caller(hints, complaint):
    settings = DecisionSettings(enabled_filters=("JsonFilter", "SimpleCIDRAffinityFilter"))
    with pytest.raises(DecisionError, match=complaint):
        Decider(cloud("a"), settings).decide(small_request(hints=hints))


# -- plug-ins


class OnlyEvenHosts:
    """A site's filter."""

    name = "OnlyEvenHosts"

    def __init__(self, once: bool = False) -> None:
        self.once = once
        self.asked: list[str] = []

    def passing(self, request, index, views):
        self.asked += [view.node for view in views]
        return [view for view in views if int(view.node[-1]) % 2 == 0]


class BackwardsWeigher:
    """A site's weigher."""

    name = "BackwardsWeigher"
    minval = None
    maxval = None

    def weigh(self, request, views):
        return [int(view.node[-1]) for view in views]

    def multipliers(self, views):
        return [2.0 for _ in views]


def test_plug_ins_see_the_survivors_and_have_their_say():
    table = cloud("h0", "h1", "h2")
    add_host(table, "h4", used={"DISK_GB": 100})
    even = OnlyEvenHosts()
    decider = Decider(
        table,
        DecisionSettings(enabled_filters=("OnlyEvenHosts",), weighers=("BackwardsWeigher",)),
        foreign_filters={"OnlyEvenHosts": even},
        foreign_weighers={"BackwardsWeigher": BackwardsWeigher()},
    )
    decision = decider.decide(small_request())
    assert list(decision.nodes()) == ["h2", "h0"]
    assert decision.weights() == {"h0": 0.0, "h2": 2.0}
    assert even.asked == ["h0", "h1", "h2"]
    assert decision.reasons["OnlyEvenHosts"] == 1


def test_a_plug_in_that_runs_once_is_asked_for_the_first_instance_only():
    table, even = cloud("h0", "h1"), OnlyEvenHosts(once=True)
    decider = Decider(
        table,
        DecisionSettings(enabled_filters=("OnlyEvenHosts",)),
        foreign_filters={"OnlyEvenHosts": even},
    )
    narrowing = Narrowing()
    for index in (0, 1):
        decision = decider.decide(small_request(), index, narrowing=narrowing)
        assert list(decision.nodes()) == ["h0"]
    assert even.asked == ["h0", "h1"]


# -- dice and slices


def test_a_subset_is_drawn_from_the_first_so_many():
    table = cloud(*(f"h{n}" for n in range(6)))
    settings = DecisionSettings(host_subset_size=3)
    firsts = set()
    for seed in range(40):
        nodes = list(Decider(table, settings, rng=Random(seed)).decide(small_request()).nodes())
        assert sorted(nodes) == [f"h{n}" for n in range(6)]
        rest = [node for node in nodes[1:]]
        assert rest == sorted(rest)
        firsts.add(nodes[0])
    assert firsts == {"h0", "h1", "h2"}


def test_equal_best_hosts_are_shuffled_and_others_are_not():
    table = cloud("a", "b", "c")
    add_host(table, "worse", **{"cn.free_ram_mb": 1000})
    settings = DecisionSettings(shuffle_best_same_weighed_hosts=True)
    orders = set()
    for seed in range(30):
        nodes = tuple(Decider(table, settings, rng=Random(seed)).decide(small_request()).nodes())
        assert nodes[-1] == "worse"
        orders.add(nodes)
    assert len(orders) == 6


def schedulers_first(table, names, near_tie):
    firsts = {}
    for own in names:
        decider = Decider(table, DecisionSettings(near_tie=near_tie))
        decider.set_schedulers("cell1", names, own)
        firsts[own] = next(decider.decide(small_request()).nodes())
    return firsts


def test_schedulers_avoid_one_another_among_equal_hosts():
    table = cloud(*(f"h{n}" for n in range(40)))
    firsts = schedulers_first(table, ("s1", "s2", "s3", "s4"), 0.0)
    assert len(set(firsts.values())) == 4


def test_plain_nova_takes_the_same_host_everywhere():
    table = cloud(*(f"h{n}" for n in range(40)))
    firsts = schedulers_first(table, ("s1", "s2", "s3", "s4"), None)
    assert set(firsts.values()) == {"h0"}


def test_a_much_better_host_is_taken_whoever_it_belongs_to():
    table = cloud("best")
    for number in range(10):
        add_host(table, f"h{number}", **{"cn.free_ram_mb": 1000})
    firsts = schedulers_first(table, ("s1", "s2", "s3"), 0.1)
    assert set(firsts.values()) == {"best"}


def test_slices_cover_all_hosts_and_change_little():
    table = cloud(*(f"h{n}" for n in range(300)))
    before, after = ("s1", "s2", "s3"), ("s1", "s2")

    def owners(names):
        found = {}
        for own in names:
            decider = Decider(table, DecisionSettings(near_tie=0.0))
            decider.set_schedulers("cell1", names, own)
            nodes = decider.decide(small_request()).nodes()
            mine = decider._slices.own(table)
            found.update({table.node_at(slot): own for slot in mine.nonzero()[0].tolist()})
            assert mine[table.slot_of(next(nodes))]
        return found

    three, two = owners(before), owners(after)
    assert len(three) == len(two) == 300
    moved = [node for node, owner in three.items() if owner != "s3" and two[node] != owner]
    assert moved == []
    assert 60 < list(three.values()).count("s1") < 140


# -- why


def test_explain_tells_the_numbers_that_were_compared():
    table = cloud("fine")
    add_host(table, "full", used={"DISK_GB": 100})
    add_host(table, "plain", traits=())
    add_host(table, "down")
    table.set_service(ServiceFacts("down", disabled=True, record={"disabled_reason": "disk"}))
    table.upsert("new", "cell1", "new", "new")
    request = small_request(forms=(form(root_required=frozenset({"COMPUTE_NODE"})),))

    answers = {answer.node: answer for answer in explain(Decider(table), request)}

    assert answers["fine"].code == ""
    assert answers["full"].code == "no_room:DISK_GB"
    assert answers["full"].detail == {
        "provider": "full",
        "resource_class": "DISK_GB",
        "asked": 1,
        "used": 100,
        "capacity": 100,
    }
    assert answers["plain"].code == "root_traits"
    assert answers["plain"].detail["missing"] == ["COMPUTE_NODE"]
    assert answers["down"].code == "ComputeFilter"
    assert answers["down"].detail["disabled_reason"] == "disk"
    assert answers["new"].code == "never_reported"


def test_explain_tells_what_each_weigher_gave():
    table = cloud("a")
    add_host(table, "b", **{"cn.free_ram_mb": 7936})
    first, second = explain(Decider(table), small_request())
    assert (first.node, second.node) == ("a", "b")
    assert second.weights["RAMWeigher"] == 0.5
    assert second.weight == Decider(table).decide(small_request()).weight("b")


def test_explain_agrees_with_the_decision():
    table = cloud("a", "b")
    add_host(table, "c", used={"VCPU": 16})
    decision = Decider(table).decide(small_request())
    codes = [answer.code for answer in explain(Decider(table), small_request()) if answer.code]
    assert {code: codes.count(code) for code in codes} == decision.reasons


def test_a_record_is_plain_data():
    decision = Decider(cloud("a", "b")).decide(small_request())
    request = small_request(group=Group("g", "affinity"), hints={"query": ("[]",)})
    record = DecisionRecord("req-1", asked_of(request), (decision.counts(),))
    again = json.loads(json.dumps(record.as_dict()))
    assert again["decisions"][0]["survivors"] == 2
    assert again["decisions"][0]["best"][0]["node"] == "a"
    assert again["asked"]["forms"][0]["resources"] == SMALL
