# SPDX-License-Identifier: Apache-2.0
"""The broker delivers requests again, most of them to the same scheduler, and Placement is often not heard."""

from __future__ import annotations

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
