# SPDX-License-Identifier: Apache-2.0
"""The simulator sees whether an answer about one server is compared with the claims of all."""

from __future__ import annotations

import pytest

from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.sim.compared_names import ComparedName
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.workload import Workload
from shared_scheduler.sim.world import Sizes, World
from tests.unit.sim import planted
from tests.unit.sim.single_requests import ask_for

SERVERS = 20


@pytest.fixture
def world() -> World:
    """Nodes without agents, and nova-computes that do not begin a build for hours."""
    sizes = Sizes(nodes=3, schedulers=1, agentless=1.0, build_queue_s=1e6)
    made = World(1, sizes, Workload(rate_per_s=1e-9, lifetime_s=1e9), NetworkFaults())
    made.run(2.0)
    return made


def wait_for_builds(world: World) -> None:
    """Ask for many servers, until Placement has been asked about each of them once."""
    for _ in range(SERVERS):
        ask_for(world)
        world.run(0.1)
    assert len(world.schedulers[0].core.confirmed_claims) == SERVERS
    world.run(SchedulerSettings().unreported_after_s + 1.0)
    assert world.checkers.checked["few_comparisons"] >= SERVERS


def test_a_name_counts_how_often_it_is_compared_and_is_found_by_one_comparison() -> None:
    others = {f"server-{number}": number for number in range(1_000)}
    name = ComparedName("server-7")
    # when it is looked up, and searched
    assert (others[name], name.compared) == (7, 1)
    assert [number for other, number in others.items() if other == name] == [7]
    assert sum(other != name for other in others) == 999
    # then
    assert name.compared == 2_001


def test_answers_about_servers_that_wait_for_their_builds_are_not_compared_with_all(world: World) -> None:
    wait_for_builds(world)
    assert world.checkers.violations == []


def test_a_search_through_all_claims_is_noticed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # given the code of before
    planted.compare_with_all_claims.patch(monkeypatch)
    # when many builds wait
    wait_for_builds(world)
    # then
    assert {violation.name for violation in world.checkers.violations} == {"few_comparisons"}
