# SPDX-License-Identifier: Apache-2.0
"""A storm of requests that no host fits reads the list of nodes about once a second, and each is checked by a read."""

from __future__ import annotations

import pytest

from shared_scheduler.core.effects import Fail
from shared_scheduler.decision.request import Flavor
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.refusal_reads import READ_S, RefusalWorld
from shared_scheduler.sim.rest import heal
from shared_scheduler.sim.workload import Workload
from shared_scheduler.sim.world import Sizes
from shared_scheduler.sync.refusal_ages import REFUSALS_BURST, REFUSALS_PER_S, SHARED_S
from tests.unit.sim.planted import Planted
from tests.unit.sim.planted_reads import READS
from tests.unit.sim.single_requests import ask_for

#: a flavor that no host has room for
TOO_LARGE = Flavor("too large", 1_024, 2_048, 20)
REFUSALS_A_SECOND, STORM_S = 60.0, 10.0


def full_world(requests_per_s: float = 1e-9, schedulers: int = 2) -> RefusalWorld:
    """A cloud without room for anything that its users ask for."""
    workload = Workload(requests_per_s, several=0.0, not_root_only=0.0, asks_again=0.0, flavors=(TOO_LARGE,))
    world = RefusalWorld(1, Sizes(nodes=3, schedulers=schedulers), workload, NetworkFaults())
    world.checkers.rows_every = 0
    world.run(5.0)
    return world


def reads(world: RefusalWorld) -> list[int]:
    """How many reads of the list of nodes there were, by scheduler."""
    return [len(refusals.begun_s) for refusals in world.refusals.values()]


def in_a_storm() -> RefusalWorld:
    """Both schedulers refuse 30 requests a second."""
    world = full_world(REFUSALS_A_SECOND)
    world.run(STORM_S)
    return world


@pytest.mark.long
def test_a_storm_of_refusals_reads_the_list_of_nodes_about_once_a_second() -> None:
    # given many refusals
    world = in_a_storm()
    assert world.counters["failed_no_candidates"] > 0.9 * REFUSALS_A_SECOND * STORM_S
    # then they have shared a few reads
    assert max(reads(world)) <= REFUSALS_BURST + 1 + world.now * REFUSALS_PER_S
    # and each has been answered
    heal(world)
    assert world.checkers.violations == []


def test_a_refusal_that_is_alone_is_checked_by_a_read_of_its_own() -> None:
    world = full_world(schedulers=1)
    for count in range(1, 4):
        # given a refusal some time after the last one
        asked = world.ask()
        world.run(REFUSALS_BURST / REFUSALS_PER_S)
        # then it has been answered after one more read, which has begun after it
        assert isinstance(asked.outcome, Fail)
        [refusals] = world.refusals.values()
        assert len(refusals.begun_s) == count
        assert asked.asked_s < refusals.begun_s[-1] <= asked.ended_s - READ_S
    assert world.checkers.violations == []


def test_refusals_of_one_moment_share_two_reads() -> None:
    # given many refusals at once: the read for the first one is in flight when the others come
    world = full_world(schedulers=1)
    asked = [world.ask() for _ in range(3 * REFUSALS_BURST)]
    world.run(SHARED_S)
    # then those that may have a read of their own share the next one, and the others take what there is
    assert reads(world) == [2]
    assert all(isinstance(one.outcome, Fail) for one in asked)
    assert world.checkers.violations == []


def test_a_request_that_has_a_host_waits_for_no_read() -> None:
    world = full_world(schedulers=1)
    ask_for(world)
    world.run(5.0)
    assert world.counters["answered"] == 1
    assert reads(world) == []


@pytest.mark.long
@pytest.mark.parametrize("planted", READS, ids=lambda planted: planted.name)
def test_a_planted_bug_is_caught(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.patch(monkeypatch)
    broken = {violation.name for violation in in_a_storm().checkers.violations}
    assert broken == planted.breaks
