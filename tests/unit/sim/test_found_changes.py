# SPDX-License-Identifier: Apache-2.0
"""Schedulers in the simulator find what somebody removes from Placement, and nothing where nobody does."""

from __future__ import annotations

import pytest

from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.report import report
from shared_scheduler.sim.run import begin, drawn
from shared_scheduler.sim.workload import Workload
from shared_scheduler.sim.world import Sizes, World
from tests.unit.sim.single_requests import ask_for


def quiet_world(agentless: float) -> World:
    sizes = Sizes(nodes=2, schedulers=1, agentless=agentless)
    world = World(7, sizes, Workload(rate_per_s=1e-9, lifetime_s=1e9), NetworkFaults())
    world.placement.tells_generations = True
    world.agenda.run_until(10.0)
    return world


@pytest.mark.parametrize("agentless", [0.0, 1.0])
def test_a_removal_is_found_by_reports(agentless: float) -> None:
    # given a server that lives, of whose host everything was read
    world = quiet_world(agentless)
    [server] = ask_for(world).servers
    world.agenda.run_until(world.now + 1_500)
    assert report(world)["foreign_changes"] == {}
    # when somebody removes its allocations
    world.placement.delete(server.uuid)
    world.agenda.run_until(world.now + 1_500)
    # then the next read of the agent, or of the databases, shows it, once
    assert report(world)["foreign_changes"] == {"removed": 1}


def test_what_is_written_beside_the_scheduler_is_found() -> None:
    world = quiet_world(agentless=0.0)
    [server] = ask_for(world).servers
    world.agenda.run_until(world.now + 1_500)
    standing = world.placement.standing(server.uuid)
    world.placement.end_write(
        world.placement.begin_write(server.uuid, standing.allocations, standing.generation, "an operator")
    )
    world.agenda.run_until(world.now + 1_500)
    assert report(world)["foreign_changes"] == {"rewritten": 1}


@pytest.mark.parametrize("seed", [5016, 5002])
def test_nobody_removes_anything_in_drawn_worlds(seed: int) -> None:
    # given generations, so that all writes are compared, agents that start, and requests that arrive twice
    world = begin(drawn(seed))
    world.placement.tells_generations = True
    world.agenda.run_until(drawn(seed).duration_s)
    assert "removed" not in report(world)["foreign_changes"]
