# SPDX-License-Identifier: Apache-2.0
"""A recorded request is decided again with other multipliers: the verdict is that of the real pipeline, or none."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest

from shared_scheduler.decision.decision_settings import DecisionSettings, plain_settings
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.record import DecisionRecord, asked_of
from shared_scheduler.records.entries import entry
from shared_scheduler.records.reweigh import CANNOT, DIFFERS, SAME, Replayed, most_weight, reweighed
from shared_scheduler.table.host_table import HostTable
from tests.unit.decision.small_clouds import add_host, small_request

EXACT = DecisionSettings(near_tie=None)
"""The settings of these stories: the heaviest host is chosen."""


def cloud(rng: Random, hosts: int) -> HostTable:
    table = HostTable()
    for number in range(hosts):
        changes = {
            "cn.free_ram_mb": rng.randrange(1, 16) * 1024, "cn.free_disk_gb": rng.randrange(1, 100),
            "cn.vcpus_used": rng.randrange(8), "stats.io_workload": rng.randrange(4),
        }  # fmt: skip
        add_host(table, f"c{number}", **changes)
    return table


def recorded(table: HostTable, settings: DecisionSettings, place: int = 0) -> dict[str, Any]:
    """The record of a small request, as it is read from a store; ``place``: that of the chosen host by weight."""
    decision = Decider(table, settings).decide(small_request())
    answer = tuple((node,) for node in list(decision.nodes())[place : place + 1])
    counts = decision.counts(next((node for (node,) in answer), None))
    record = DecisionRecord("req-1", asked_of(small_request()), (counts,), (), answer,
                            "" if answer else "no_valid_host")  # fmt: skip
    return dict(json.loads(json.dumps(entry(record, "sched1", 1000.0))))


def again(record: dict[str, Any], **changes: Any) -> Replayed:
    return reweighed(record, plain_settings(replace(EXACT, **changes)))


def test_a_chosen_host_that_is_none_of_the_best_is_weighed_again() -> None:
    replayed = again(recorded(cloud(Random(1), 20), EXACT, place=19), ram_weight_multiplier=2.0)

    assert replayed.verdict == DIFFERS
    assert f" and {replayed.was[0]} " in replayed.why, "its weight"


def test_the_same_settings_choose_the_same_host() -> None:
    replayed = again(recorded(cloud(Random(1), 20), EXACT))

    assert replayed.verdict == SAME
    assert replayed.was == replayed.now


def test_every_verdict_agrees_with_the_real_pipeline() -> None:
    """Given random clouds and multipliers: same and differs are true; few hosts beyond the recorded are not told."""
    verdicts: Counter[str] = Counter()
    for seed in range(300):
        rng = Random(seed)
        table = cloud(rng, rng.choice((1, 2, 4, 5, 9, 40)))
        changes = {name: rng.choice((-2.0, -0.5, 0.25, 1.0, 3.0)) for name in
                   ("ram_weight_multiplier", "cpu_weight_multiplier", "disk_weight_multiplier")}  # fmt: skip
        other = replace(EXACT, **changes)
        replayed = reweighed(recorded(table, EXACT), plain_settings(other))
        truth = next(Decider(table, other).decide(small_request()).nodes())

        verdicts[replayed.verdict] += 1
        weights = Decider(table, other).decide(small_request()).weights()
        if replayed.verdict == SAME:
            assert weights[replayed.was[0]] == pytest.approx(weights[truth])
        elif replayed.verdict == DIFFERS:
            assert truth != replayed.was[0]
            assert replayed.now[0] in (truth, "another host")
            assert replayed.why
    assert min(verdicts[SAME], verdicts[DIFFERS], verdicts[CANNOT]) > 20


def test_the_bound_of_hosts_that_are_not_recorded_is_the_maximum_over_all_scores() -> None:
    steps = [number / 10 for number in range(11)]
    for seed in range(40):
        rng = Random(seed)
        pairs = [(rng.choice((-1.0, 0.0, 0.5, 2.0)), rng.choice((-2.0, 0.0, 1.0, 3.0))) for _ in range(3)]
        at_most = rng.uniform(-1, 2)
        allowed = [sum(new * score for (_, new), score in zip(pairs, scores, strict=True))
                   for scores in product(steps, repeat=3)
                   if sum(old * score for (old, _), score in zip(pairs, scores, strict=True)) <= at_most]  # fmt: skip
        bound = most_weight(pairs, at_most)

        assert bound >= max(allowed, default=float("-inf")) - 1e-6
        if allowed:
            assert bound <= max(allowed) + 1.0  # the grid is coarse


def test_the_reason_names_both_weights() -> None:
    table = HostTable()
    add_host(table, "much-ram", **{"cn.free_ram_mb": 16000, "cn.free_disk_gb": 10})
    add_host(table, "much-disk", **{"cn.free_ram_mb": 8000, "cn.free_disk_gb": 100})

    replayed = again(recorded(table, replace(EXACT, disk_weight_multiplier=0.5)), disk_weight_multiplier=5.0)

    assert (replayed.verdict, replayed.was, replayed.now) == (DIFFERS, ("much-ram",), ("much-disk",))
    assert replayed.why == "much-disk weighs 6.5 and much-ram 2.5"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"enabled_filters": ("ComputeFilter", "IoOpsFilter")}, "IoOpsFilter would be asked"),
        ({"max_io_ops_per_host": 3}, "max_io_ops_per_host differ"),
        ({"num_instances_weight_multiplier": 1.0}, "NumInstancesWeigher had no effect"),
        ({"host_subset_size": 3}, "host_subset_size differ"),
    ],
)
def test_what_the_record_does_not_hold_is_named(changes: dict[str, Any], text: str) -> None:
    replayed = again(recorded(cloud(Random(1), 20), EXACT), **changes)

    assert replayed.verdict == CANNOT
    assert text in replayed.why


def test_a_filter_that_rejected_nothing_may_be_removed_and_one_that_did_may_not() -> None:
    table = cloud(Random(1), 4)
    add_host(table, "down")
    table.set_service(replace(table.service("down"), disabled=True))  # type: ignore[type-var]
    record = recorded(table, EXACT)

    harmless = again(record, enabled_filters=("ComputeFilter",))
    harmful = again(record, enabled_filters=("ComputeCapabilitiesFilter",))

    assert harmless.verdict == SAME
    assert (harmful.verdict, harmful.why) == (CANNOT, "ComputeFilter rejected hosts, whose weights are not recorded")


def test_a_record_of_an_older_release_cannot_be_replayed() -> None:
    record = recorded(cloud(Random(1), 4), EXACT)
    for one in record["decisions"]:
        del one["settings"], one["multipliers_of_aggregates"]

    assert again(record).why == "the record is from a release that did not keep the settings"
    assert again(record | {"decisions": []}).why == "the record holds no decision"


def test_a_request_without_a_host_stays_without_one() -> None:
    assert again(recorded(HostTable(), EXACT), ram_weight_multiplier=7.0).verdict == SAME
