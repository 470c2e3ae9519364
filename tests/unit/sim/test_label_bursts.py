# SPDX-License-Identifier: Apache-2.0
"""Twelve and twenty servers of one label, whose racks must not differ by more than one, are asked for at once."""

from __future__ import annotations

import pytest

from shared_scheduler.core.effects import Fail, FailureCode
from shared_scheduler.sim.faults import Faults
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.world import Sizes, World
from tests.unit.sim.label_bursts import QUIET, TROUBLES, Trouble, burst, failed, in_racks, times_s

SEEDS = (1,)
#: whose allocations stay as long as nobody can tell whether the dead scheduler has answered
DEADLY = ("a scheduler dies", "a scheduler dies midway")
#: the callers wait for 20 seconds
SOON_S = 12.0


@pytest.mark.parametrize("requests", [12, 20])
@pytest.mark.parametrize("trouble", [one for one in TROUBLES if one.name not in DEADLY], ids=lambda one: one.name)
def test_all_of_them_are_placed_soon(trouble: Trouble, requests: int) -> None:
    for seed in SEEDS:
        world = burst(seed, requests, trouble)
        assert world.checkers.violations == []
        assert [one.outcome for one in failed(world)] == []
        assert times_s(world)[-1] < SOON_S
        assert set(in_racks(world).values()) <= {requests // 3, -(-requests // 3)}


@pytest.mark.parametrize("requests", [12, 20])
@pytest.mark.parametrize("trouble", [one for one in TROUBLES if one.name in DEADLY], ids=lambda one: one.name)
def test_what_a_dead_scheduler_leaves_breaks_no_constraint_and_hangs_nobody(trouble: Trouble, requests: int) -> None:
    for seed in SEEDS:
        world = burst(seed, requests, trouble)
        assert world.checkers.violations == []
        outcomes = [one.outcome for one in failed(world)]
        assert {one.code for one in outcomes if isinstance(one, Fail)} <= {FailureCode.GROUP_UNSETTLED}
        assert None not in outcomes


def test_a_larger_skew_lets_more_of_them_go_on_together() -> None:
    (slow, fast) = (burst(1, 20, max_skew=max_skew) for max_skew in (1, 4))
    assert failed(slow) == failed(fast) == []
    assert times_s(fast)[-1] < times_s(slow)[-1]


def test_the_fault_of_a_drawn_world_is_such_a_burst() -> None:
    # given a world in which nobody asks for anything
    world = World(1, Sizes(nodes=12, schedulers=4), QUIET, NetworkFaults())
    fault = Faults(world, world.rng("faults")).plan("label_bursts", 5.0, 1.0)
    # when the fault has passed
    world.run(20.0)
    # then all of its requests had a host
    (label,) = world.users.groups
    assert fault.what == f"{len(label.members)} requests"
    assert 12 <= len(label.members) <= 20
    assert world.counters["answered"] == len(label.members)
