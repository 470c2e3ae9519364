# SPDX-License-Identifier: Apache-2.0
"""A Placement that is slow for minutes, and more requests than it can write: no collapse, and nothing left behind."""

from __future__ import annotations

import pytest

from shared_scheduler.core.effects import Answer, Fail, FailureCode
from shared_scheduler.core.write_pace import FORECAST_VALID_S, WRITERS
from shared_scheduler.sim.computes import Size
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.rest import heal
from shared_scheduler.sim.workload import FLAVORS, Workload
from shared_scheduler.sim.world import Sizes, World
from tests.unit.sim.single_requests import ask_for

#: four writers at one second for each consumer
SLOW_S = 1.0
CAPACITY_PER_S = 4.0
RATE_PER_S = 60.0
#: after this time with a Placement that is well again, requests are served as before
WELL_AFTER_S = 10.0
#: time that the caller of a burst waits
PATIENCE_S = 50.0


def crowded_world(seed: int, rate_per_s: float = RATE_PER_S) -> World:
    """A cloud with room for all, and users who do not ask again."""
    workload = Workload(
        rate_per_s, lifetime_s=2.0, several=0.0, not_root_only=0.0, build_fails=0.0, asks_again=0.0,
        flavors=FLAVORS[:1],
    )  # fmt: skip
    size = Size(vcpus=256, memory_mb=1_048_576, disk_gb=32_000)
    world = World(seed, Sizes(nodes=20, schedulers=1, size=size), workload, NetworkFaults())
    world.checkers.rows_every = 0
    world.run(5.0)
    return world


def share_answered(world: World, from_s: float, until_s: float) -> float:
    """The share of the requests of this time that got hosts."""
    asked = [one for one in world.users.asked.values() if from_s <= one.asked_s < until_s]
    return sum(isinstance(one.outcome, Answer) for one in asked) / len(asked)


def assert_used_to_its_capacity_and_well_soon_after(slow_for_s: float) -> None:
    """Assert it of a Placement that is slow for this time (``tests/longer/test_slow_placement.py``: for minutes)."""
    # given 60 requests a second, and a Placement that takes a second for each server
    world = crowded_world(1)
    world.slow_placement(SLOW_S)
    world.run(slow_for_s)

    # then it serves what it can until the end
    served = share_answered(world, world.now - 15.0, world.now - 5.0) * RATE_PER_S
    assert served > 0.7 * CAPACITY_PER_S, f"{served:.1f} answers a second"

    # and when it is well, so is everything ten seconds later
    world.slow_placement(0.0)
    well_s = world.now
    world.run(WELL_AFTER_S + 10.0)
    assert share_answered(world, well_s + WELL_AFTER_S, world.now - 1.0) == 1.0

    # and no allocation stays that nobody needs
    heal(world)
    assert world.checkers.violations == []


@pytest.mark.long
def test_a_slow_placement_is_used_to_its_capacity_and_is_well_soon_after() -> None:
    assert_used_to_its_capacity_and_well_soon_after(20.0)


@pytest.mark.long
def test_a_second_for_each_call_is_no_overload_because_batches_grow() -> None:
    world = crowded_world(2, rate_per_s=30.0)
    world.slow_placement(0.0, call_s=SLOW_S)
    world.run(30.0)
    assert share_answered(world, world.now - 20.0, world.now - 5.0) == 1.0


def test_a_burst_leaves_nothing_behind_when_placement_fails_in_the_middle() -> None:
    assert_a_burst_leaves_nothing_behind(100)


def assert_a_burst_leaves_nothing_behind(count: int) -> None:
    """Assert it of so many servers, while Placement fails (``tests/longer/test_slow_placement.py``: of the most)."""
    # given a request for many servers, of which some are written
    world = crowded_world(3, rate_per_s=0.001)
    world.slow_placement(0.02)
    asked = ask_for(world, count, patience_s=PATIENCE_S)
    while len(world.placement.consumers) < count // 2:
        world.run(0.01)

    # when Placement is away until the request is over
    world.set_placement(False)
    world.run(60.0)
    assert isinstance(asked.outcome, Fail)
    world.set_placement(True)
    world.slow_placement(0.0)

    # then nothing of it stays
    heal(world)
    assert world.placement.consumers.keys().isdisjoint(asked.request.instance_uuids)
    assert world.checkers.violations == []


def test_a_burst_that_a_slow_placement_cannot_write_fails_early_and_is_gone_before_the_answer() -> None:
    # given a Placement that takes a second for each server, and nobody who knows that: nothing was written for long
    world = crowded_world(7, rate_per_s=0.0001)
    world.run(FORECAST_VALID_S)
    world.slow_placement(SLOW_S)

    # when 400 servers are asked for in a minute, in which it writes 240
    asked = ask_for(world, 400, patience_s=60.0)
    while asked.outcome is None and world.now < asked.deadline_s + 1.0:
        world.run(0.1)

    # then the request fails before its time is over, for this reason
    assert isinstance(asked.outcome, Fail)
    assert asked.outcome.code == FailureCode.NO_TIME
    assert asked.ended_s - asked.asked_s < 45.0

    # and nothing of it stands when the caller is told
    assert world.placement.consumers.keys().isdisjoint(asked.request.instance_uuids)
    heal(world)
    assert world.checkers.violations == []


def test_a_burst_is_placed_when_placement_is_slow_only_at_first() -> None:
    # given a Placement whose first calls take four seconds
    world = crowded_world(8, rate_per_s=0.0001)
    world.run(FORECAST_VALID_S)
    world.slow_placement(0.0, call_s=4.0)

    # when 400 servers are asked for, and it is well soon after
    asked = ask_for(world, 400, patience_s=PATIENCE_S)
    world.run(0.5)
    world.slow_placement(0.02)
    while asked.outcome is None and world.now < asked.deadline_s:
        world.run(0.1)

    # then all of them are placed
    assert isinstance(asked.outcome, Answer)


@pytest.mark.long
def test_a_burst_is_tried_where_single_writes_are_slow_and_batches_are_not() -> None:
    # given a Placement whose calls take 0.3 s with one server and 0.46 s with sixteen, and a request for one
    world = crowded_world(5, rate_per_s=0.001)
    world.slow_placement(0.01, call_s=0.3)
    first = ask_for(world, 1, patience_s=PATIENCE_S)
    while first.outcome is None:
        world.run(0.1)

    # when a request for 1,000 arrives
    asked = ask_for(world, 1_000, patience_s=PATIENCE_S)
    while asked.outcome is None and world.now < asked.asked_s + PATIENCE_S:
        world.run(0.1)

    # then it is placed
    assert isinstance(asked.outcome, Answer)


@pytest.mark.long
def test_the_largest_burst_of_a_public_cloud_is_placed_in_time() -> None:
    world = crowded_world(4, rate_per_s=0.001)
    world.slow_placement(0.02)
    asked = ask_for(world, 1_404, patience_s=PATIENCE_S)
    while asked.outcome is None and world.now < asked.asked_s + PATIENCE_S:
        world.run(0.1)
    assert isinstance(asked.outcome, Answer)
    assert asked.ended_s - asked.asked_s < 2 * 1_404 * 0.02 / WRITERS
