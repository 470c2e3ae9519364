# SPDX-License-Identifier: Apache-2.0
"""Twenty servers of one affinity group are asked for at the same moment, by way of four schedulers."""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.protocol.messages import GroupPolicy
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.workload import FLAVORS, RACE_S, ServerGroup
from shared_scheduler.sim.world import Sizes, World
from tests.unit.sim.label_bursts import AT_S, QUIET, WITHIN_S, failed, times_s

#: of which twenty have room on one host
TINY = replace(FLAVORS[0], memory_mb=256, root_gb=1)
#: the callers wait for 20 seconds
SOON_S = 15.0


def burst(seed: int, requests: int, placement_s: float) -> World:
    """The world when all has ended."""
    sizes = Sizes(nodes=24, schedulers=4, placement_s=placement_s)
    world = World(seed, sizes, replace(QUIET, flavors=(TINY,), not_root_only=0.0), NetworkFaults())
    world.checkers.rows_every = 10**9
    group, rng = ServerGroup("group", GroupPolicy.AFFINITY, 1), world.rng("burst")
    world.users.groups.append(group)
    for _ in range(requests):
        world.agenda.at(AT_S + RACE_S * rng.random(), _ask, world, group)
    world.run(AT_S + WITHIN_S)
    return world


def _ask(world: World, group: ServerGroup) -> None:
    world.users.racing = group
    world.ask()
    world.users.racing = None


def test_all_of_them_are_placed_together_although_placement_is_slow() -> None:
    # when twenty servers of one group are asked for at once, and each call of Placement takes 100 ms
    world = burst(1, 20, placement_s=0.1)
    # then all are placed soon, on one host
    assert world.checkers.violations == []
    assert [one.outcome for one in failed(world)] == []
    assert times_s(world)[-1] < SOON_S
    assert len({node for held in world.placement.consumers.values() for node in held}) == 1
