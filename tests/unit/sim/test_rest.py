# SPDX-License-Identifier: Apache-2.0
"""The last checks wait until the world is at rest, and then find every error."""

from __future__ import annotations

import pytest

from shared_scheduler.sim import rest
from shared_scheduler.sim.exhibition import DemoPlan, run_demo
from shared_scheduler.sim.invariants import AT_REST
from shared_scheduler.sim.network import Weather
from shared_scheduler.sim.rest import heal
from shared_scheduler.sim.workload import Fate, Habits, Server
from shared_scheduler.sim.world import Sizes, World
from tests.unit.sim import planted

#: bugs that lose the delete of an allocation: by nova-compute, and by a scheduler
LOST_DELETES = (planted.lose_the_delete_of_an_allocation, planted.leave_behind_what_was_written)
#: demos that are tried for each
PLANTED_SEEDS = range(8)
#: demos whose last checks once came while an audit of a nova-compute showed zeros
DEMOS_CHECKED_DURING_AN_AUDIT = (15, 90)
#: so long before the checks of a world without a fault: increments are on their way that long
ON_ITS_WAY_S = 0.001


def small_demo(seed: int) -> DemoPlan:
    """One that takes less than half a second."""
    return DemoPlan(seed, nodes=30, schedulers=2, duration_s=4.0, rate_per_s=15.0)


def quiet_world() -> World:
    """Servers that live on two nodes, and nothing that fails."""
    world = World(1, Sizes(nodes=2, schedulers=2), Habits(rate_per_s=2.0, build_fails=0.0), Weather())
    world.run(10.0)
    return world


def checked_at_s(world: World) -> float:
    """When the last checks of such a world begin, if it is at rest by then: every row is fresh after one heartbeat."""
    return world.now + world.sizes.heartbeat_interval_s + rest.SETTLE_S


def delete(world: World, server: Server) -> None:
    """A user deletes it, however late that is."""
    server.fate = Fate.DELETED
    del world.living[server.uuid]
    world.nodes[server.node].delete(server.uuid)


@pytest.mark.parametrize("seed", DEMOS_CHECKED_DURING_AN_AUDIT)
def test_a_demo_is_not_checked_while_an_audit_shows_zeros(seed: int) -> None:
    assert run_demo(small_demo(seed)).checkers.violations == []


def test_a_world_is_not_checked_while_a_delete_is_under_way() -> None:
    # given a server that is deleted just before the last checks
    world = quiet_world()
    server = next(iter(world.living.values()))
    world.agenda.at(checked_at_s(world) - ON_ITS_WAY_S, delete, world, server)
    # when the world comes to rest
    heal(world)
    # then everybody has heard of it before anything was checked
    assert server.uuid not in world.placement.consumers
    assert world.checkers.violations == []


def test_a_world_is_not_checked_while_a_request_is_under_way() -> None:
    # given a request that comes just before the last checks
    world = quiet_world()
    world.agenda.at(checked_at_s(world) - ON_ITS_WAY_S, world.ask)
    # when the world comes to rest
    heal(world)
    # then it was answered, and its server built, before anything was checked
    assert {asked.outcome is not None for asked in world.users.asked.values()} == {True}
    assert world.checkers.violations == []


@pytest.mark.parametrize("bug", LOST_DELETES, ids=lambda bug: bug.name)
def test_a_delete_that_is_really_lost_is_found_in_a_demo(bug: planted.Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.patch(monkeypatch)
    for seed in PLANTED_SEEDS:
        crowded = DemoPlan(seed, nodes=6, schedulers=3, duration_s=8.0, rate_per_s=20.0)
        if any(broken.name in bug.breaks & AT_REST.keys() for broken in run_demo(crowded).checkers.violations):
            return
    pytest.fail(f"{bug.name} was not caught")
