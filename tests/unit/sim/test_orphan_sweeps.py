# SPDX-License-Identifier: Apache-2.0
"""What a scheduler has left that was stopped is found in a simulated cell 0, also in a storm of requests that fail."""

from __future__ import annotations

import pytest

from shared_scheduler.decision.request import Flavor
from shared_scheduler.sim.computes import Size
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.orphan_sweeps import FOUND_WITHIN_S, CellZero, OrphanSweeps
from shared_scheduler.sim.rest import heal
from shared_scheduler.sim.workload import SentRequest, Workload
from shared_scheduler.sim.world import CALLER_GRACE_S, Sizes, World
from shared_scheduler.sync import orphan_search
from shared_scheduler.sync.orphan_search import AGAIN_S, CHECKS_A_SWEEP, LISTED_MAX
from shared_scheduler.sync.read_registry import ORPHANED, SOURCES
from tests.unit.sim.planted import Planted
from tests.unit.sim.planted_reads import REPEATED_SEARCHES, SEARCHES
from tests.unit.sim.single_requests import ask_for

#: a flavor that no host has room for
TOO_LARGE = Flavor("too large", 1_024, 2_048, 20)
#: fewer checks than in the product, so that fewer failures are a storm
FEW_CHECKS = 40
#: more than one scheduler checks once then, and fewer than three check twice
FAILURES_PER_S = 3.5
#: nearly as many as one scheduler checks once then
ONCE_PER_S = 2.5
STORM_S, LONG_STORM_S = 200.0, 500.0
#: how often a scheduler stops, with requests for so many servers, and for how long it is away
STOPS, SERVERS, AWAY_S = 5, 4, 3.0
PATIENCE_S = 20.0
[SWEEP_S] = (source.poll_s for source in SOURCES if source.name == ORPHANED)


@pytest.fixture
def few_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphan_search, "CHECKS_A_SWEEP", FEW_CHECKS)


def sweeping_world(failures_per_s: float = 1e-9, schedulers: int = 3) -> World:
    """A cloud with room, in which nearly all that users ask for is too large, and nobody asks again."""
    workload = Workload(
        failures_per_s, several=0.0, not_root_only=0.0, build_fails=0.0, asks_again=0.0, flavors=(TOO_LARGE,)
    )
    size = Size(vcpus=64, memory_mb=1_048_576, disk_gb=32_000)
    world = World(1, Sizes(nodes=3, schedulers=schedulers, size=size), workload, NetworkFaults())
    world.checkers.rows_every = 0
    OrphanSweeps(world)
    world.run(5.0)
    return world


def stop_before_the_answer(world: World, count: int = SERVERS) -> SentRequest:
    """The first scheduler stops when Placement has carried its writes out, and before it has answered."""
    asked = ask_for(world, count, patience_s=PATIENCE_S)
    while not world.placement.consumers.keys() >= {*asked.request.instance_uuids}:
        world.run(0.0005)
    assert asked.outcome is None
    world.kill_scheduler(0)
    return asked


def write_late(world: World, *asked: SentRequest) -> None:
    """Placement carries out a write for each of these, whose servers are in cell 0."""
    node = min(world.nodes)
    for server in (uuid for one in asked for uuid in one.request.instance_uuids):
        world.placement.end_write(world.placement.begin_write(server, {node: {"VCPU": 1}}))


def held(world: World, *asked: SentRequest) -> set[str]:
    """Those of the servers that have allocations."""
    return {uuid for one in asked for uuid in one.request.instance_uuids} & world.placement.consumers.keys()


def in_a_storm() -> World:
    """A scheduler is stopped again and again while requests fail, and the others have three minutes from then on."""
    world = sweeping_world(FAILURES_PER_S)
    world.run(STORM_S)
    stop_before_the_answer(world)
    for _ in range(STOPS - 1):
        world.start_scheduler(0)
        world.run(AWAY_S)
        stop_before_the_answer(world)
    world.run(PATIENCE_S + CALLER_GRACE_S + FOUND_WITHIN_S + SWEEP_S)
    return world


def with_late_writes(failures_per_s: float, schedulers: int) -> World:
    """While requests fail, some are written after the first checks of their servers, and three minutes have passed."""
    world = sweeping_world(failures_per_s, schedulers)
    world.run(LONG_STORM_S)
    asked = [world.ask() for _ in range(SERVERS)]
    world.run(2 * SWEEP_S)
    write_late(world, *asked)
    assert len(held(world, *asked)) == SERVERS
    world.run(FOUND_WITHIN_S + SWEEP_S)
    return world


def test_what_a_stopped_scheduler_has_left_is_deleted_after_the_conductor_has_given_up() -> None:
    # given allocations that no scheduler knows
    world = sweeping_world()
    left = stop_before_the_answer(world)
    # when the conductor still waits
    world.run(PATIENCE_S)
    assert len(held(world, left)) == SERVERS
    # then the sweep after that deletes them
    world.run(CALLER_GRACE_S + 2 * SWEEP_S)
    assert held(world, left) == set()
    # and every row shows it
    heal(world)
    assert world.checkers.violations == []


def test_a_write_after_the_first_check_is_found_by_the_second() -> None:
    # given a server without allocations that was checked
    world = sweeping_world()
    asked = world.ask()
    world.run(2 * SWEEP_S)
    [server] = asked.request.instance_uuids
    # when a write comes late
    write_late(world, asked)
    world.run(SWEEP_S)
    assert held(world, asked) == {server}
    # then
    world.run(AGAIN_S + SWEEP_S)
    assert held(world, asked) == set()
    assert world.checkers.violations == []


def test_only_servers_that_will_never_have_a_host_are_in_cell_0() -> None:
    # given a request that was answered, one under way, and one that failed
    world = sweeping_world()
    built = ask_for(world)
    world.run(5.0)
    failed = world.ask()
    world.run(5.0)
    under_way = stop_before_the_answer(world)
    # then
    assert CellZero(world).listed() == [*failed.request.instance_uuids]
    # and later
    world.run(under_way.deadline_s + CALLER_GRACE_S - world.now)
    assert CellZero(world).listed() == [*failed.request.instance_uuids, *under_way.request.instance_uuids]
    world.run(2 * SWEEP_S)
    assert held(world, built, under_way) == {*built.request.instance_uuids}


def test_no_time_runs_while_placement_is_away() -> None:
    # given a Placement that stops with a scheduler
    world = sweeping_world()
    left = stop_before_the_answer(world)
    world.set_placement(False)
    # when it is away for longer than a search takes
    world.run(PATIENCE_S + 2 * FOUND_WITHIN_S)
    assert len(held(world, left)) == SERVERS
    world.set_placement(True)
    # then the search goes on
    world.run(FOUND_WITHIN_S)
    assert held(world, left) == set()
    assert world.checkers.violations == []


@pytest.mark.long
@pytest.mark.usefixtures("few_checks")
def test_what_stopped_schedulers_have_left_is_found_in_a_storm_of_failures() -> None:
    world = in_a_storm()
    assert world.counters["failed_no_candidates"] > FAILURES_PER_S * STORM_S
    assert world.placement.consumers == {}
    heal(world)
    assert world.checkers.violations == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("failures_per_s", "schedulers", "checks"),
    [(2.0, 1, CHECKS_A_SWEEP), (7.0, 3, CHECKS_A_SWEEP), (ONCE_PER_S, 3, FEW_CHECKS)],
)
def test_late_writes_are_found_in_a_long_storm(
    failures_per_s: float, schedulers: int, checks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphan_search, "CHECKS_A_SWEEP", checks)
    world = with_late_writes(failures_per_s, schedulers)
    assert world.placement.consumers == {}
    assert world.checkers.violations == []


@pytest.mark.long
def test_what_a_stopped_scheduler_has_left_is_found_in_a_long_storm() -> None:
    # given as many servers in cell 0 as are listed, most of which were checked
    world = sweeping_world(LISTED_MAX / LONG_STORM_S)
    world.run(LONG_STORM_S)
    # when the scheduler stops that has checked a part of them
    left = stop_before_the_answer(world)
    world.run(PATIENCE_S + CALLER_GRACE_S + AGAIN_S)
    # then the others do not check all of its share before
    assert held(world, left) == set()
    assert world.checkers.violations == []


@pytest.mark.long
@pytest.mark.usefixtures("few_checks")
@pytest.mark.parametrize("planted", SEARCHES, ids=lambda planted: planted.name)
def test_a_planted_bug_is_caught(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.patch(monkeypatch)
    broken = {violation.name for violation in in_a_storm().checkers.violations}
    assert broken == planted.breaks


@pytest.mark.long
@pytest.mark.usefixtures("few_checks")
@pytest.mark.parametrize("planted", REPEATED_SEARCHES, ids=lambda planted: planted.name)
def test_a_planted_bug_of_second_checks_is_caught(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.patch(monkeypatch)
    broken = {violation.name for violation in with_late_writes(ONCE_PER_S, 3).checkers.violations}
    assert broken == planted.breaks
