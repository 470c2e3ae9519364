# SPDX-License-Identifier: Apache-2.0
"""Weights, dice and slices: which of the hosts that pass comes first."""

from __future__ import annotations

from random import Random

import pytest

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.errors import DecisionError
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import Group
from shared_scheduler.model.aggregates import AggregateFacts
from tests.unit.decision.small_clouds import add_host, chosen, cloud, small_request

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


def schedulers_first(table, names, near_tie, settings=None, **asked):
    firsts = {}
    for own in names:
        decider = Decider(table, DecisionSettings(near_tie=near_tie, **(settings or {})))
        decider.set_schedulers("cell1", names, own)
        firsts[own] = next(decider.decide(small_request(**asked)).nodes())
    return firsts


def test_schedulers_avoid_one_another_among_equal_hosts():
    table = cloud(*(f"h{n}" for n in range(40)))
    firsts = schedulers_first(table, ("s1", "s2", "s3", "s4"), 0.0)
    assert len(set(firsts.values())) == 4


@pytest.mark.parametrize("policy", ["affinity", "soft-affinity"])
def test_members_that_belong_together_meet_on_one_of_the_equal_hosts(policy):
    table = cloud(*(f"h{n}" for n in range(40)))
    group = Group("g", policy, frozenset({"server-1", "server-2"}))
    firsts = schedulers_first(table, ("s1", "s2", "s3", "s4"), 0.0, group=group)
    assert len(set(firsts.values())) == 1


@pytest.mark.parametrize(("policy", "taken"), [("soft-affinity", {"old"}), ("soft-anti-affinity", {"new"})])
@pytest.mark.parametrize("number", range(4))
def test_hosts_with_other_numbers_of_members_are_no_near_ties_of_the_best(policy, taken, number):
    # given a member of a group whose policy adds less to a weight than what makes a near tie
    table = cloud("new")
    add_host(table, "old", instances=("member",))
    option = policy.replace("-", "_") + "_weight_multiplier"
    # when several schedulers place another member
    group = Group(f"group-{number}", policy, frozenset({"member"}))
    firsts = schedulers_first(table, ("s1", "s2", "s3", "s4"), 0.1, {option: 0.05}, group=group)
    # then none of them violates the policy because it prefers another host
    assert set(firsts.values()) == taken


def test_near_ties_are_those_of_the_best_host_that_is_not_left_out():
    # given a host that is better than all others, which are equal
    table, names = cloud(*(f"h{n}" for n in range(40))), ("s1", "s2", "s3", "s4")
    add_host(table, "best", **{"cn.free_ram_mb": 200_000})
    firsts = set()
    for own in names:
        decider = Decider(table, DecisionSettings(near_tie=0.1))
        decider.set_schedulers("cell1", names, own)
        decision = decider.decide(small_request())
        # when it is left out, then all others remain, and schedulers avoid one another among them
        assert {*decision.nodes(frozenset({"best", "unknown"}))} == {f"h{n}" for n in range(40)}
        firsts.add(next(decision.nodes(frozenset({"best"}))))
    assert len(firsts) == 4


def test_without_spreading_all_schedulers_select_the_same_host():
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
