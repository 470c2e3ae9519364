# SPDX-License-Identifier: Apache-2.0
"""A case that only Placement decides: two schedulers that race for the last unit of a node, one of which does not
receive its agent's messages (doc/source/admin/placement.rst)."""

from __future__ import annotations

from shared_scheduler.core.effects import Answer
from shared_scheduler.sim.computes import Size
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.run import drawn, run
from shared_scheduler.sim.workload import FLAVORS, SentRequest, Workload
from shared_scheduler.sim.world import Sizes, World
from shared_scheduler.table.row import Freshness
from tests.unit.sim.single_requests import ask_for

#: the calls of both schedulers overlap
PLACEMENT_S = 0.2
SILENT_S = 60.0


def race(retries_inside: bool) -> tuple[World, list[SentRequest]]:
    """Both schedulers are asked at the same moment; ``retries_inside``: allocation_conflict_retry_count is not 1."""
    sizes = Sizes(nodes=1, schedulers=2, size=Size(disk_gb=FLAVORS[0].root_gb), placement_s=PLACEMENT_S)
    world = World(1, sizes, Workload(rate_per_s=1e-6, build_fails=0.0), NetworkFaults())
    world.placement.races = retries_inside
    world.run(5.0)
    deaf = world.schedulers[1]
    world.network.cut(deaf.name)
    world.run(SILENT_S)
    (node,) = world.nodes
    assert [one.core.table.freshness(node) for one in world.schedulers.values()] == [
        Freshness.FRESH, Freshness.PROVISIONAL,
    ]  # fmt: skip
    asked = [ask_for(world, scheduler=number) for number in world.schedulers]
    world.run(20.0)
    return world, asked


def over(world: World) -> list[dict[str, int]]:
    return [world.placement.over_commit(node) for node in world.nodes]


def test_a_placement_that_retries_inside_over_commits_a_node_that_has_an_agent() -> None:
    world, asked = race(retries_inside=True)
    assert [isinstance(one.outcome, Answer) for one in asked] == [True, True]
    assert over(world) == [{"DISK_GB": FLAVORS[0].root_gb}]


def test_a_placement_that_answers_the_race_with_a_conflict_does_not() -> None:
    world, asked = race(retries_inside=False)
    assert sorted(isinstance(one.outcome, Answer) for one in asked) == [False, True]
    assert over(world) == [{}]


def test_what_is_written_without_an_agent_is_not_counted_as_an_earlier_claim_of_its_server() -> None:
    # a server is placed directly on a node whose agent had accepted a claim for it that was released since
    world = run(drawn(51226))
    assert world.checkers.violations == []
