# SPDX-License-Identifier: Apache-2.0
"""The whole world, seed by seed: real cores, a hostile network, and every invariant watched.

``tests/longer/test_simulator.py`` runs 260 more seeds.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from functools import cache

import pytest

from shared_scheduler.sim.invariants import AT_REST, WHILE_IT_RUNS
from shared_scheduler.sim.report import report
from shared_scheduler.sim.run import RunPlan, drawn, run
from shared_scheduler.sim.workload import Workload
from shared_scheduler.sim.world import Sizes

#: each is a world of its own: sizes, network_faults, faults are drawn from it
SEEDS = range(40)
#: of the long run, each of which was broken once
ONCE_BROKEN = (
    729, 733, 745, 811, 844, 969, 1182, 3014, 4260, 6853, 13426, 30071, 51209, 60049, 60238, 60457, 770185, 80279,
    2001620, 3001023, 3001595, 3004418, 3002969, 3004166, 3004398, 3005016, 3005201, 3005610, 3004502, 3005594,
    3006976, 3020189, 3039653, 3058200, 3070518,
    3072100, 4002098, 4003559, 4011131, 4013291, 4015925, 4017016, 4030215, 4111242, 4130934, 4134227, 142095, 9011550,
    10000208, 10000927, 10001025, 11001386, 11005982, 12000057, 12010092, 12010789, 13101087,
    13113776, 13114212, 13118820, 13200390, 15000458, 15000843,
)  # fmt: skip
#: enough to show most mistakes (`tools/test --quick`)
FIRST = SEEDS[1:16]
OTHERS = [pytest.param(seed, marks=pytest.mark.long) for seed in (0, *SEEDS[16:], *ONCE_BROKEN)]


@dataclass(frozen=True)
class Outcome:
    """How a drawn world ended."""

    violations: list[object]
    checked: Set[str]
    digest: str


@cache
def outcome(seed: int, decode_each: bool) -> Outcome:
    """Several tests look at the same world."""
    world = run(replace(drawn(seed), decode_each=decode_each))
    return Outcome([*world.checkers.violations], world.checkers.checked.keys(), world.trace.digest())


@pytest.mark.parametrize("seed", (*FIRST, *OTHERS))
def test_no_invariant_breaks(seed: int) -> None:
    plan = drawn(seed)
    assert outcome(seed, plan.decode_each).violations == [], plan.command()


@pytest.mark.long
def test_every_invariant_is_really_checked() -> None:
    checked, every = set[str](), WHILE_IT_RUNS.keys() | AT_REST.keys()
    for seed in range(len(every)):
        checked |= outcome(seed, drawn(seed).decode_each).checked
        if checked == every:
            return
    assert checked == every


def test_the_same_seed_gives_the_same_trace_byte_for_byte() -> None:
    plan = RunPlan(7, 10.0, Sizes(nodes=5, schedulers=2), fault_every_s=2.0)
    one, two = run(plan), run(plan)
    assert list(one.trace.lines()) == list(two.trace.lines())
    assert one.trace.digest() == two.trace.digest()
    assert report(one) == report(two)


@pytest.mark.parametrize("seed", SEEDS[1:5])
def test_no_receiver_changes_a_shared_message(seed: int) -> None:
    assert outcome(seed, decode_each=False).digest == outcome(seed, decode_each=True).digest


def test_another_seed_gives_another_trace() -> None:
    sizes = Sizes(nodes=5, schedulers=2)
    assert run(RunPlan(1, 5.0, sizes)).trace.digest() != run(RunPlan(2, 5.0, sizes)).trace.digest()


def test_one_scheduler_and_no_other_writer_is_never_refused() -> None:
    workload = Workload(rate_per_s=20.0, lifetime_s=1e6, build_fails=0.0)
    world = run(RunPlan(3, 20.0, Sizes(nodes=5, schedulers=1), workload))
    endings = report(world)["claim_endings"]
    assert set(endings) == {"confirmed"}
    assert world.counters["failed_no_candidates"] > 0, "the cloud is full, and still nobody erred"


def test_four_schedulers_fill_a_cloud_that_placement_alone_would_over_commit() -> None:
    # given a Placement that over-commits when writes race, as the real one does
    workload = Workload(rate_per_s=60.0, lifetime_s=1e6, build_fails=0.0, not_root_only=0.0)
    world = run(RunPlan(4, 15.0, Sizes(nodes=5, schedulers=4), workload))
    assert world.placement.races
    # then no node is above its capacity, for its agent judged one claim after the other
    assert report(world)["over_committed_nodes"] == 0
    assert world.counters["failed_no_candidates"] > 0
    assert world.checkers.violations == []


def test_a_fleet_without_agents_is_served_from_databases_and_placement() -> None:
    world = run(RunPlan(5, 15.0, Sizes(nodes=5, schedulers=1, agentless=1.0)))
    assert world.counters["answered"] > 50
    assert world.network.counters["sent_claim"] == 0
    assert world.checkers.violations == []
