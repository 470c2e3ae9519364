# SPDX-License-Identifier: Apache-2.0
"""Weights that are kept are those that weighing all hosts gives, to the last bit."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import LABEL_POLICY, Group, SpreadConstraint, SpreadMode
from shared_scheduler.decision.weigh import KEPT_MAX, weigh
from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.protocol.messages import Consumer
from shared_scheduler.table.host_table import CHANGES_MAX
from tests.unit.decision.small_clouds import add_host, cloud, small_request

SETTINGS = DecisionSettings(num_instances_weight_multiplier=-0.7, cpu_weight_multiplier=1.3, near_tie=None)


def mixed_cloud(rng, hosts=40, disk_gb=(0, 0, 100)):
    """``disk_gb``: in use on a host; with all 100 it is full."""
    table = cloud()
    for number in range(hosts):
        add_host(table, f"n{number:02}", used={"DISK_GB": rng.choice(disk_gb)})
        change(table, rng, f"n{number:02}")
    return table


def change(table, rng, node):
    table.apply(
        node,
        {
            "cn.vcpus_used": rng.randrange(16),
            "cn.free_ram_mb": rng.randrange(-10, 16000),
            "stats.num_instances": rng.randrange(20),
            "stats.io_workload": rng.randrange(3),
            "stats.failed_builds": rng.choice([0, 0, 0, 2]),
        },
        {},
        {},
        epoch=1,
        sequence=table.version(node).sequence + 1,
    )


def expected(decider, table, decision, request=None):
    """Weights of the same survivors, each weighed anew."""
    slots = np.array([table.slot_of(node) for node in decision.weights()])
    context = decider.context(request or small_request())
    return weigh(context, decider.weighers, slots, len(slots)).total.tolist()


@pytest.mark.parametrize("changes", [0, 1, 3, pytest.param(3 * CHANGES_MAX, marks=pytest.mark.long)])
def test_however_many_hosts_changed_the_weights_are_those_of_weighing_all(changes):
    rng = Random(changes)
    table = mixed_cloud(rng)
    decider = Decider(table, SETTINGS)
    for _ in range(30):
        decision = decider.decide(small_request())
        assert list(decision.weights().values()) == expected(decider, table, decision)
        for _ in range(changes):
            change(table, rng, f"n{rng.randrange(40):02}")


@pytest.mark.parametrize("narrow", [False, True])
def test_the_shares_of_the_best_hosts_are_their_weights(narrow):
    table = mixed_cloud(Random(3))
    few = tuple(table.nodes())[:4]
    decision = Decider(table, SETTINGS).decide(small_request(force_hosts=few) if narrow else small_request())

    best = decision.best()

    assert len(best) > 1 and any(len(one.shares) > 1 for one in best)
    assert [sum(one.shares.values()) for one in best] == pytest.approx([one.weight for one in best])


@pytest.mark.parametrize("disk_gb", [(0, 0, 100), (0,)], ids=["some hosts pass", "all hosts pass"])
def test_the_weight_of_spreading_is_added_to_those_that_are_kept(disk_gb):
    rng = Random(5)
    table = mixed_cloud(rng, disk_gb=disk_gb)
    racks = [frozenset(f"n{number:02}" for number in range(rack, 40, 4)) for rack in range(4)]
    table.set_aggregates([AggregateFacts(n, f"u{n}", "", its, {"rack": str(n)}) for n, its in enumerate(racks)])
    soft, web = SpreadConstraint("rack", mode=SpreadMode.SOFT), Group("web", LABEL_POLICY, frozenset({"a", "b", "c"}))
    for server, node in (("a", "n00"), ("b", "n04"), ("c", "n01")):
        table.apply(node, {}, {server: Consumer({}, True, "web")}, {}, epoch=1, sequence=9)
    decider = Decider(table, replace(SETTINGS, spread_keys=("rack",)))
    asked = small_request(group=web, spread=(soft,))
    for _ in range(5):
        decision = decider.decide(asked)
        assert list(decision.weights().values()) == expected(decider, table, decision, asked)
        assert decision.weights() != Decider(table, SETTINGS).decide(small_request()).weights()
        change(table, rng, f"n{rng.randrange(40):02}")


def test_an_added_or_removed_host_is_weighed_like_the_others():
    rng = Random(7)
    table = mixed_cloud(rng)
    decider = Decider(table, SETTINGS)
    decider.decide(small_request())
    add_host(table, "new")
    assert "new" in decider.decide(small_request()).weights()
    table.remove("n01")
    decision = decider.decide(small_request())
    assert "n01" not in decision.weights()
    assert list(decision.weights().values()) == expected(decider, table, decision)


def test_a_decision_keeps_its_weights_when_the_next_one_is_made():
    rng = Random(8)
    table = mixed_cloud(rng)
    decider = Decider(table, SETTINGS)
    first = decider.decide(small_request())
    before = first.weights()
    for number in range(40):
        change(table, rng, f"n{number:02}")
    decider.decide(small_request())
    assert first.weights() == before


def test_the_cache_is_bounded():
    rng = Random(9)
    table = mixed_cloud(rng)
    decider = Decider(table, SETTINGS)
    for _ in range(5 * KEPT_MAX):
        for number in range(40):
            change(table, rng, f"n{number:02}")
        decider.decide(small_request())
    assert len(decider._totals._kept) <= KEPT_MAX
