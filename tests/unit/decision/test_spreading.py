# SPDX-License-Identifier: Apache-2.0
"""Servers are spread over racks, rooms and zones as Kubernetes spreads pods."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.explain import explain
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import LABEL_POLICY, Destination, Group, SpreadConstraint, SpreadMode
from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.messages import Consumer, Usage
from shared_scheduler.table.host_table import HostTable
from tests.unit.decision.plain_spreading import PlainHost, passing, penalties
from tests.unit.decision.small_clouds import CELL, chosen, form, host_leaves, small_request

FAST, SLOW = "CUSTOM_FAST", "CUSTOM_SLOW"
HARD, SOFT = SpreadMode.HARD, SpreadMode.SOFT
WEB = Group("web-uuid", LABEL_POLICY)
BY_RACK = SpreadConstraint("rack", source="image")
ONLY_SPREAD = DecisionSettings(weighers=(), spread_keys=("rack", "room"))


def racks(**hosts: tuple[str, int]) -> list[PlainHost]:
    """Host -> (rack, number of servers)."""
    return [
        PlainHost(name, {"rack": frozenset({rack})}, tuple(f"{name}-{n}" for n in range(count)))
        for name, (rack, count) in hosts.items()
    ]


def table_of(hosts: list[PlainHost], told: bool = True) -> HostTable:
    """The hosts with their servers.  ``told``: the agents know the group of the servers."""
    table = HostTable()
    for host in hosts:
        table.upsert(host.name, CELL, host.name, host.name)
        table.set_service(ServiceFacts(host.name))
        servers = {uuid: Consumer({}, True, WEB.uuid if told else "") for uuid in host.servers}
        if not host.free:
            servers["somebody"] = Consumer({host.name: {"VCPU": 16}}, True)
        table.load(host.name, host_leaves(host.name, traits=(FAST if host.selected else SLOW,)), servers)
    table.set_aggregates(aggregates_of(hosts))
    return table


def aggregates_of(hosts: list[PlainHost]) -> list[AggregateFacts]:
    named = sorted({(key, value) for host in hosts for key, values in host.values.items() for value in values})
    return [
        AggregateFacts(
            number,
            f"uuid-{number}",
            f"{key}-{value}",
            frozenset(host.name for host in hosts if value in host.values.get(key, ())),
            {key: value},
        )
        for number, (key, value) in enumerate(named, 1)
    ]


def request(*constraints: SpreadConstraint, **fields):
    said = {"group": WEB, "forms": (form(required=frozenset({FAST})),)} | fields
    return small_request(spread=constraints, **said)


def test_the_next_server_goes_to_the_rack_with_the_fewest():
    table = table_of(racks(a=("r1", 2), b=("r1", 0), c=("r2", 1), d=("r3", 1)))
    assert chosen(table, request(BY_RACK)) == ["c", "d"]
    assert chosen(table, request(SpreadConstraint("rack", 2))) == ["a", "b", "c", "d"]
    assert chosen(table, request()) == ["a", "b", "c", "d"]


def test_a_rack_without_an_eligible_host_does_not_count():
    slow = PlainHost("slow", {"rack": frozenset({"r3"})}, selected=False)
    table = table_of([*racks(a=("r1", 1), b=("r2", 1)), slow])
    assert chosen(table, request(BY_RACK)) == ["a", "b"]


def test_servers_on_hosts_that_are_not_eligible_do_not_count():
    slow = PlainHost("slow", {"rack": frozenset({"r1"})}, ("s1", "s2"), selected=False)
    table = table_of([*racks(a=("r1", 0), b=("r2", 0)), slow])
    assert chosen(table, request(BY_RACK)) == ["a", "b"]


def test_a_rack_that_is_full_down_or_tried_still_counts():
    full = PlainHost("full", {"rack": frozenset({"r2"})}, free=False)
    table = table_of([*racks(a=("r1", 1)), full])
    assert chosen(table, request(BY_RACK)) == []
    table = table_of(racks(a=("r1", 1), b=("r2", 0)))
    assert list(Decider(table).decide(request(BY_RACK), excluded={"b"}).nodes()) == []
    table.set_service(ServiceFacts("b", disabled=True))
    assert chosen(table, request(BY_RACK)) == []


def test_the_trait_of_a_disabled_host_does_not_make_it_ineligible():
    table = table_of(racks(a=("r1", 1), b=("r2", 0)))
    table.load("b", host_leaves("b", traits=("COMPUTE_STATUS_DISABLED",)), {})
    enabled = form(root_forbidden=frozenset({"COMPUTE_STATUS_DISABLED"}))
    assert chosen(table, request(BY_RACK, forms=(enabled,))) == []


def test_the_destination_of_a_move_is_judged_like_any_host():
    table = table_of(racks(a=("r1", 1), b=("r2", 0)))
    assert chosen(table, request(BY_RACK, destination=Destination("b"))) == ["b"]
    assert chosen(table, request(BY_RACK, destination=Destination("a"))) == []


def test_only_forced_hosts_skip_constraints():
    table = table_of(racks(a=("r1", 1), b=("r2", 0)))
    assert chosen(table, request(BY_RACK, force_hosts=("a",))) == ["a"]
    assert chosen(table, request(BY_RACK, force_hosts=("a",), check_type="rebuild")) == []


def test_a_host_in_no_rack_or_in_two_is_rejected():
    hosts = [PlainHost("none"), PlainHost("two", {"rack": frozenset({"r1", "r2"})}), *racks(a=("r1", 0))]
    table = table_of(hosts)
    assert chosen(table, request(BY_RACK)) == ["a"]
    assert Decider(table).decide(request(BY_RACK)).reasons == {"spread": 2}


def test_a_key_that_no_aggregate_has_leaves_no_host():
    table = table_of(racks(a=("r1", 0)))
    decision = Decider(table).decide(request(SpreadConstraint("room")))
    assert (list(decision.nodes()), decision.reasons) == ([], {"spread": 1})
    assert chosen(table, request(SpreadConstraint("room", mode=SOFT))) == ["a"]


def test_the_server_that_moves_is_not_counted():
    table = table_of(racks(a=("r1", 1), b=("r2", 1)))
    moving = request(BY_RACK, instance_uuids=("a-0",))
    assert chosen(table, moving) == ["a"]


def test_members_that_only_the_request_knows_are_counted():
    table = table_of(racks(a=("r1", 1), b=("r2", 0)), told=False)
    group = Group("g", "soft-anti-affinity", frozenset({"a-0"}))
    assert chosen(table, request(BY_RACK, group=group)) == ["b"]
    assert chosen(table, request(BY_RACK)) == ["a", "b"]


def test_own_claims_are_counted_at_once_and_once():
    table = table_of(racks(a=("r1", 0), b=("r2", 0)))
    table.assume("a", "claim", "first", {"a": {"VCPU": 1}}, Usage(1), group=WEB.uuid)
    assert chosen(table, request(BY_RACK)) == ["b"]
    first = Consumer({"a": {"VCPU": 1}}, True, WEB.uuid)
    table.apply("a", {}, {"first": first}, {"claim": "first"}, epoch=1, sequence=1)
    assert chosen(table, request(SpreadConstraint("rack", 2))) == ["a", "b"]
    table.forget("claim")
    assert chosen(table, request(BY_RACK)) == ["b"]


def test_soft_constraints_reject_no_host_and_prefer_the_emptier_rack():
    table = table_of(racks(a=("r1", 2), b=("r2", 1), c=("r3", 0)))
    soft = request(SpreadConstraint("rack", mode=SOFT))
    assert list(Decider(table, ONLY_SPREAD).decide(soft).nodes()) == ["c", "b", "a"]
    weights = Decider(table, ONLY_SPREAD).decide(request(SpreadConstraint("rack", 2, SOFT))).weights()
    assert weights["b"] == weights["c"] > weights["a"]


def test_a_host_with_one_of_two_soft_keys_is_as_bad_as_the_worst():
    # given a host whose room no other host is in, and which is in no rack
    alone = PlainHost("alone", {"room": frozenset({"z"})})
    used = PlainHost("used", {"rack": frozenset({"x"}), "room": frozenset({"y"})}, ("s1",))
    empty = PlainHost("empty", {"rack": frozenset({"x"}), "room": frozenset({"w"})})
    soft = request(SpreadConstraint("rack", mode=SOFT), SpreadConstraint("room", mode=SOFT))
    weights = Decider(table_of([alone, used, empty]), ONLY_SPREAD).decide(soft).weights()
    assert weights["empty"] > weights["alone"] == weights["used"]


def test_an_aggregate_that_changes_moves_its_hosts():
    table = table_of(racks(a=("r1", 1), b=("r2", 0)))
    decider = Decider(table)
    assert list(decider.decide(request(BY_RACK)).nodes()) == ["b"]
    table.set_aggregates([AggregateFacts(1, "u", "all", frozenset("ab"), {"rack": "r1"})])
    assert list(decider.decide(request(BY_RACK)).nodes()) == ["a", "b"]


def test_why_prints_the_counts_and_where_the_constraint_is_from():
    hosts = [*racks(a=("r1", 3), b=("r2", 1)), PlainHost("c")]
    answers = {one.host: one for one in explain(Decider(table_of(hosts)), request(BY_RACK)).listed}
    assert answers["a"].code == "spread"
    assert answers["a"].detail == {
        "key": "rack", "domain": "r1", "count": 3, "minimum": 1, "max_skew": 1, "source": "image",
    }  # fmt: skip
    assert answers["c"].detail == {"key": "rack", "values": [], "source": "image"}
    assert answers["b"].code == ""


def test_why_prints_the_minimum_without_servers_that_may_leave():
    hosts = racks(a=("r1", 1), b=("r2", 1))
    unsettled = request(BY_RACK, unsettled=frozenset({"b-0"}))
    answers = {one.host: one for one in explain(Decider(table_of(hosts)), unsettled).listed}
    assert (answers["a"].detail["count"], answers["a"].detail["minimum"]) == (1, 0)


def showing(hosts: list[PlainHost], server: str, *names: str) -> HostTable:
    """A table in which these hosts show a server as well, as while it moves or its resize is not confirmed."""
    return table_of([replace(one, servers=(*one.servers, *[server] * (one.name in names))) for one in hosts])


def test_a_server_that_moves_within_its_rack_counts_once_there():
    hosts = racks(a=("r1", 0), b=("r1", 0), c=("r2", 0))
    assert chosen(showing(hosts, "s", "a", "b"), request(SpreadConstraint("rack", 2))) == ["a", "b", "c"]
    # also if the agent of one of them does not know its label, but the request does
    table = showing(hosts, "s", "a", "b")
    table.load("b", host_leaves("b", traits=(FAST,)), {"s": Consumer({}, True)})
    group = replace(WEB, members=frozenset({"s"}))
    assert chosen(table, request(SpreadConstraint("rack", 2), group=group)) == ["a", "b", "c"]


def test_a_server_that_moves_to_another_rack_counts_in_both():
    hosts = racks(a=("r1", 0), b=("r2", 0), c=("r3", 0))
    assert chosen(showing(hosts, "s", "a", "b"), request(BY_RACK)) == ["c"]


def test_a_server_that_has_moved_counts_where_it_is():
    hosts = racks(a=("r1", 0), b=("r2", 0))
    table = showing(hosts, "s", "a", "b")
    table.load("a", host_leaves("a", traits=(FAST,)), {})
    assert chosen(table, request(BY_RACK)) == ["a"]


def looked_up(server: str, home: str, *beside: str) -> dict[str, object]:
    """The fields of a request after a check that found what a server holds."""
    return {"placed": {server: frozenset({home} - {""})}, "beside": {server: frozenset(beside)}}


def test_a_server_that_holds_two_hosts_of_a_rack_counts_once_there():
    table = table_of(racks(a=("r1", 1), b=("r1", 0), c=("r2", 1)))
    assert chosen(table, request(BY_RACK, **looked_up("a-0", "a", "b"))) == ["a", "b", "c"]
    # also if it is not known on which of them it is
    assert chosen(table, request(BY_RACK, **looked_up("a-0", "", "a", "b"))) == ["a", "b", "c"]


def test_a_server_that_may_be_in_two_racks_counts_in_both_and_not_for_the_smallest_count():
    table = table_of(racks(a=("r1", 0), b=("r2", 0), c=("r3", 0)))
    vacated = frozenset({("s", "a"), ("s", "b")})
    assert chosen(table, request(BY_RACK, vacated=vacated, **looked_up("s", "", "a", "b"))) == ["c"]


def test_a_server_that_its_source_shows_again_counts_once_there():
    # given a server that was evacuated from b to a, while only a showed it; b has another one
    hosts = racks(a=("r1", 1), b=("r2", 1), c=("r3", 1))
    table = table_of([*hosts[:1], replace(hosts[1], servers=("b-0", "a-0")), hosts[2]])
    # then the racks have 1, 2 and 1, and are sure to have 0, 1 and 1
    asked = request(SpreadConstraint("rack", 2), **looked_up("a-0", "a", "b"))
    found = {one.host: one.detail for one in explain(Decider(table, ONLY_SPREAD), asked).listed}
    assert (found["b"]["count"], found["b"]["minimum"]) == (2, 0)


VALUES = st.sampled_from(["x", "y", "z"])
DOMAINS = st.one_of(VALUES.map(lambda value: frozenset({value})), st.frozensets(VALUES, max_size=2))
CONSTRAINTS = st.builds(
    SpreadConstraint, st.sampled_from(["rack", "room"]), st.integers(1, 3), st.sampled_from([HARD, SOFT])
)


@st.composite
def clouds(draw):
    """Some hosts; servers have unique names, and "own" may be anywhere."""
    hosts = []
    for number in range(draw(st.integers(1, 7))):
        values = {"rack": draw(DOMAINS), "room": draw(DOMAINS)}
        servers = tuple(f"s{number}-{n}" for n in range(draw(st.integers(0, 3))))
        hosts.append(PlainHost(f"h{number}", values, servers, draw(st.integers(0, 4)) > 0, draw(st.integers(0, 4)) > 0))
    return hosts


@given(clouds(), st.lists(CONSTRAINTS, min_size=1, max_size=3, unique=True), st.sampled_from(["new", "s0-0", "s1-0"]))
def test_the_decision_is_that_of_the_plain_rules(hosts, constraints, own):
    asked = request(*constraints, instance_uuids=(own,))
    decision = Decider(table_of(hosts), ONLY_SPREAD).decide(asked)
    assert set(decision.nodes()) == passing(hosts, tuple(constraints), own)
    penalty, weights = penalties(hosts, tuple(constraints), own), decision.weights()
    for one in weights:
        for other in weights:
            assert (weights[one] > weights[other]) == (penalty[one] < penalty[other])
