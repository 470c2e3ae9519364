# SPDX-License-Identifier: Apache-2.0
"""The violations that the check of failed requests reports, and the case that it accepts."""

from __future__ import annotations

import pytest

from shared_scheduler.core.effects import Fail, FailureCode
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.decision.record import DecisionRecord
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.workload import SentRequest, Workload
from shared_scheduler.sim.world import Sizes, World
from tests.unit.sim.single_requests import ask_for

#: mean time of a call to Placement: two, or twenty, take all the time that a scheduler has to clean up
SLOW_S, USUAL_S = SchedulerSettings().cleanup_s / 2, SchedulerSettings().cleanup_s / 20


def written(placement_s: float) -> tuple[World, SentRequest]:
    """A quiet cloud with such a Placement, and a request that has written, and has no answer yet."""
    world = World(1, Sizes(nodes=1, schedulers=2, placement_s=placement_s), Workload(rate_per_s=0.001), NetworkFaults())
    world.run(1.0)
    asked = ask_for(world)
    while asked.servers[0].uuid not in world.placement.consumers:
        world.run(0.01)
    assert asked.outcome is None
    return world, asked


def broken_by_failure(world: World, asked: SentRequest, scheduler: int = 0) -> list[str]:
    """The invariants that break if a scheduler fails the request now."""
    request = asked.request
    record = DecisionRecord(request.request_id, {})
    fail = Fail(request, FailureCode.TIMED_OUT, "no host in time", record)
    world.checkers.answered(world.schedulers[scheduler], asked, fail)
    return [violation.name for violation in world.checkers.violations]


def test_at_its_deadline_a_request_leaves_what_a_slow_placement_has_not_deleted_yet() -> None:
    world, asked = written(SLOW_S)
    asked.deadline_s = world.now + 1e-9  # rounded by the clock of the scheduler
    assert broken_by_failure(world, asked) == []


def test_before_its_deadline_it_leaves_nothing() -> None:
    world, asked = written(SLOW_S)
    assert broken_by_failure(world, asked) == ["nothing_left_behind"]


def test_it_leaves_nothing_that_no_claim_will_delete() -> None:
    world, asked = written(SLOW_S)
    # given that the broker has delivered it to another scheduler too, which has no claim
    asked.copies.append((world.schedulers[1].name, world.now))
    assert broken_by_failure(world, asked, scheduler=1) == ["nothing_left_behind"]


@pytest.mark.parametrize("placement_s", [USUAL_S, Sizes().placement_s])
def test_a_placement_of_usual_speed_gives_no_reason_to_leave_anything(placement_s: float) -> None:
    world, asked = written(placement_s)
    asked.deadline_s = world.now
    assert broken_by_failure(world, asked) == ["nothing_left_behind"]
