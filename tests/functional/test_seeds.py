# SPDX-License-Identifier: Apache-2.0
"""The two experiments that this project started from, on a real cloud.

Seed 000 (bug 1341420, comment 24): three nodes with three slots each, nine requests in three groups of
three, half a second apart.  Seed 001: 31 requests at once.  Stock Nova's figures for the second come
from ``tools/lab cloud up --scheduler nova`` and ``tools/lab cloud burst --count 31 --freeze-conductor``, which
``tests/longer/test_cloud_stock.py`` runs.
"""

from __future__ import annotations

from tests.functional import cloud_state
from tools.laboratory.cloud.bursts import BurstReport, burst
from tools.laboratory.cloud.cloud import Cloud

HOSTS = {"c1", "c2", "c3"}


def prepare(cloud: Cloud, schedulers: int, **changes: object) -> None:
    cloud_state.begin(cloud, schedulers=schedulers, **changes)


def refusals(cloud: Cloud) -> int:
    return cloud_state.counter(cloud, "refused")


def assert_nothing_came_back(report: BurstReport) -> None:
    assert report.reschedules == 0
    assert report.no_valid_host == 0
    assert report.over == 0
    assert report.placement_over == {}


def test_seed_000_nine_servers_three_on_each_node(cloud: Cloud) -> None:
    assert_seed_000(cloud, schedulers=1)


def assert_seed_000(cloud: Cloud, schedulers: int) -> None:
    """Assert that nine servers fill three nodes (with four schedulers in ``tests/longer/test_seeds.py``)."""
    prepare(cloud, schedulers, compute_slots=(3,))
    refused_before = refusals(cloud)

    report = burst(cloud, count=9, group=3, interval_s=0.5)

    assert report.states == {"ACTIVE": 9}
    assert report.per_host == {"c1": 3, "c2": 3, "c3": 3}
    assert_nothing_came_back(report)
    assert report.puts_409 == 0
    if schedulers == 1:
        assert refusals(cloud) == refused_before
    print(f"seed 000, {schedulers} schedulers: {refusals(cloud) - refused_before} claims refused")
    cloud_state.assert_consistent(cloud)


def test_seed_001_thirty_one_at_once_for_exactly_that_much_room(cloud: Cloud) -> None:
    # with Placement's own write path, so many racing writes to three providers may take too long on a busy machine
    assert_seed_001(cloud, schedulers=4, placement_app=True)


def assert_seed_001(cloud: Cloud, schedulers: int, **changes: object) -> None:
    """Assert that 31 requests at once fill exactly as much room (other mixtures: ``tests/longer/test_seeds.py``)."""
    # with the option that README asks for: Placement does not repeat a lost race for so long that it answers too late
    prepare(cloud, schedulers, compute_slots=(11, 10, 10), allocation_conflict_retry_count=1, **changes)
    refused_before = refusals(cloud)

    report = burst(cloud, count=31, group=31, freeze_conductor=True)

    assert report.states == {"ACTIVE": 31}
    assert report.per_host == {"c1": 11, "c2": 10, "c3": 10}
    assert_nothing_came_back(report)
    print(
        f"seed 001, {schedulers} schedulers: {refusals(cloud) - refused_before} claims refused"
        f" inside the schedulers, {report.puts_409} conflicts in Placement: {report}"
    )
    cloud_state.assert_consistent(cloud)
