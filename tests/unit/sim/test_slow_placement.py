# SPDX-License-Identifier: Apache-2.0
"""A Placement that is slow for minutes, and more requests than it can write: no collapse, and nothing left behind."""

from __future__ import annotations

import pytest

from shared_scheduler.core.effects import Answer
from shared_scheduler.sim.computes import Size
from shared_scheduler.sim.network import Weather
from shared_scheduler.sim.rest import heal
from shared_scheduler.sim.workload import FLAVORS, Habits
from shared_scheduler.sim.world import Sizes, World

#: four writers at one second for each consumer
SLOW_S = 1.0
CAPACITY_PER_S = 4.0
RATE_PER_S = 60.0
#: after this time with a Placement that is well again, requests are served as before
WELL_AFTER_S = 10.0


def crowded_world(seed: int, rate_per_s: float = RATE_PER_S) -> World:
    """A cloud with room for all, and users who do not ask again."""
    habits = Habits(
        rate_per_s, lifetime_s=2.0, several=0.0, not_root_only=0.0, build_fails=0.0, asks_again=0.0,
        flavors=FLAVORS[:1],
    )  # fmt: skip
    size = Size(vcpus=256, memory_mb=1_048_576, disk_gb=32_000)
    world = World(seed, Sizes(nodes=20, schedulers=1, size=size), habits, Weather())
    world.checkers.rows_every = 0
    world.run(5.0)
    return world


def share_answered(world: World, from_s: float, until_s: float) -> float:
    """The share of the requests of this time that got hosts."""
    asked = [one for one in world.users.asked.values() if from_s <= one.asked_s < until_s]
    return sum(isinstance(one.outcome, Answer) for one in asked) / len(asked)


@pytest.mark.parametrize("slow_for_s", [30.0, pytest.param(120.0, marks=pytest.mark.long)])
def test_a_slow_placement_is_used_to_its_capacity_and_is_well_soon_after(slow_for_s: float) -> None:
    # given 60 requests a second, and a Placement that takes a second for each server
    world = crowded_world(1)
    world.placement.consumer_s = SLOW_S
    world.run(slow_for_s)

    # then it serves what it can until the end
    served = share_answered(world, world.now - 15.0, world.now - 5.0) * RATE_PER_S
    assert served > 0.7 * CAPACITY_PER_S, f"{served:.1f} answers a second"

    # and when it is well, so is everything ten seconds later
    world.placement.consumer_s = 0.0
    well_s = world.now
    world.run(WELL_AFTER_S + 10.0)
    assert share_answered(world, well_s + WELL_AFTER_S, world.now - 1.0) == 1.0

    # and no allocation stays that nobody needs
    heal(world)
    assert world.checkers.violations == []


def test_a_second_for_each_call_is_no_overload_because_batches_grow() -> None:
    world = crowded_world(2, rate_per_s=45.0)
    world.placement.call_s = SLOW_S
    world.run(30.0)
    assert share_answered(world, world.now - 20.0, world.now - 5.0) == 1.0
