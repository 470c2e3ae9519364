# SPDX-License-Identifier: Apache-2.0
"""The check that no host is left out: five refusals of one flavor hide no host from others."""

from __future__ import annotations

from typing import Any

import pytest

from compute_agent.claim_ledger import ClaimLedger
from shared_scheduler.core.effects import Answer, Fail
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.protocol.messages import Claim, Reason, RefusalCode
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.workload import FLAVORS, Workload
from shared_scheduler.sim.world import Sizes, World
from tests.unit.sim import planted
from tests.unit.sim.single_requests import ask_for

SMALL, LARGE = FLAVORS[0], FLAVORS[2]
#: a request that finds no host has failed after that time
ENDS_S = 5.0
REFUSALS = SchedulerSettings().refusals_max


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """One node, whose agent refuses large servers for a reason that its row does not show."""

    def shortage(self: ClaimLedger, claim: Claim) -> Any:
        return Reason(RefusalCode.NO_CAPACITY) if claim.usage.vcpus >= LARGE.vcpus else real(self, claim)

    real = ClaimLedger._shortage
    monkeypatch.setattr(ClaimLedger, "_shortage", shortage)
    made = World(1, Sizes(nodes=1, schedulers=1), Workload(rate_per_s=1e-9, lifetime_s=1e9), NetworkFaults())
    made.run(2.0)
    return made


def refuse_large_servers(world: World) -> None:
    """So many requests that the scheduler puts the node into quarantine."""
    quarantine = world.schedulers[0].core.quarantine
    for _ in range(REFUSALS):
        if not quarantine.refusing:
            asked = ask_for(world, flavor=LARGE)
            world.run(ENDS_S)
            assert isinstance(asked.outcome, Fail)
    assert quarantine.refusing == world.nodes.keys()


def test_a_host_that_has_refused_the_request_itself_is_not_left_out(world: World) -> None:
    # when requests fail because the only host refuses them
    refuse_large_servers(world)
    # then each was compared with what the table shows
    assert world.checkers.checked["none_left_out"] > 0
    assert world.checkers.violations == []


def test_a_host_in_quarantine_is_found_by_other_requests(world: World) -> None:
    # given a host that refuses large servers
    refuse_large_servers(world)
    # when somebody asks for a small one
    asked = ask_for(world, flavor=SMALL)
    world.run(ENDS_S)
    # then
    assert isinstance(asked.outcome, Answer)
    assert world.checkers.violations == []


def test_a_host_that_is_excluded_because_it_refuses_others_is_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given the code of before
    planted.exclude_nodes_that_refuse.patch(monkeypatch)
    refuse_large_servers(world)
    before = len(world.checkers.violations)
    # when somebody asks for a small server
    asked = ask_for(world, flavor=SMALL)
    world.run(ENDS_S)
    # then
    assert isinstance(asked.outcome, Fail)
    assert {one.name for one in world.checkers.violations[before:]} == {"none_left_out"}


def test_a_host_without_room_is_not_left_out(world: World) -> None:
    # given a host without room
    (node,) = world.nodes
    filler = {node: {"MEMORY_MB": world.sizes.size.memory_mb}}
    world.placement.end_write(world.placement.begin_write("filler", filler))
    world.refresh(world.schedulers[0], node, 0.0)
    world.run(1.0)
    # when somebody asks for a server
    asked = ask_for(world, flavor=SMALL)
    world.run(ENDS_S)
    # then
    assert isinstance(asked.outcome, Fail)
    assert world.checkers.checked["none_left_out"] > 0
    assert world.checkers.violations == []
