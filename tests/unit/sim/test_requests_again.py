# SPDX-License-Identifier: Apache-2.0
"""The broker delivers requests again, most of them to the same scheduler, and Placement is often not heard."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared_scheduler.sim.run import RunPlan, run
from shared_scheduler.sim.workload import FLAVORS, Workload
from shared_scheduler.sim.world import Sizes


def asked_again(seed: int, nodes: int, schedulers: int, agentless: float) -> RunPlan:
    return RunPlan(
        seed=seed,
        duration_s=20.0,
        sizes=Sizes(nodes=nodes, schedulers=schedulers, agentless=agentless, heartbeat_interval_s=2.0),
        workload=Workload(rate_per_s=2.0, lifetime_s=5.0, several=0.5, patience_s=4.0, flavors=FLAVORS[:1]),
        fault_every_s=1.5,
        fault_kinds=("requests_again",),
        rows_every=1,
    )


def asked_again_beside(seed: int, sizes: tuple[int, int, float], patience_s: float, *faults: str) -> RunPlan:
    """The same beside other faults, with callers who wait longer."""
    plan = asked_again(seed, *sizes)
    load = replace(plan.workload, lifetime_s=8.0, patience_s=patience_s)
    kinds = (*plan.fault_kinds, *plan.fault_kinds, *faults)
    near = replace(plan.sizes, placement_s=0.005)
    return replace(plan, duration_s=25.0, sizes=near, workload=load, fault_kinds=kinds)


#: Each was broken: a claim deleted what it had found, and another one was answered with; a scheduler told its own
#: delete as one of others, at once and a minute later; a check missed the ports of a server that was deleted; a server
#: that two schedulers had answered kept its allocations where it did not live; what was found was told as a new record;
#: and a checker missed that another scheduler had taken what was written, before the answer.
ONCE_BROKEN = (
    asked_again_beside(157, (2, 2, 0.5), 5.0, "placement_loses", "storm"),
    asked_again_beside(139, (2, 2, 0.5), 5.0, "placement_loses", "storm"),
    asked_again_beside(166, (2, 1, 0.5), 5.0, "placement_loses", "storm"),
    asked_again_beside(99, (3, 1, 0.0), 20.0, "placement_loses", "storm"),
    asked_again_beside(231, (3, 2, 0.0), 20.0, "placement_loses", "storm"),
    asked_again_beside(480, (1, 1, 0.0), 5.0, "placement_loses", "storm"),
    asked_again_beside(311, (3, 2, 1.0), 20.0, "placement_slow", "scheduler_dies"),
    asked_again_beside(1084, (3, 2, 0.0), 20.0, "placement_loses", "storm"),
    asked_again_beside(1191, (3, 2, 0.0), 20.0, "placement_loses", "storm"),
    asked_again_beside(1274, (3, 2, 0.0), 20.0, "placement_loses", "storm"),
    asked_again_beside(8, (1, 1, 1.0), 5.0, "ports_in_moves", "scheduler_freezes"),
)


@pytest.mark.parametrize("plan", ONCE_BROKEN, ids=lambda plan: str(plan.seed))
def test_worlds_that_were_broken(plan: RunPlan) -> None:
    assert run(plan).checkers.violations == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("nodes", "schedulers"), [(1, 1), (2, 2)])
@pytest.mark.parametrize("agentless", [0.0, 1.0])
def test_what_a_caller_has_heard_stands_and_nothing_else(
    seed: int, nodes: int, schedulers: int, agentless: float
) -> None:
    world = run(asked_again(seed, nodes, schedulers, agentless))
    assert world.counters["delivered_again"] > 0
    assert world.counters["ended_twice"] > 0
    assert world.checkers.violations == []
