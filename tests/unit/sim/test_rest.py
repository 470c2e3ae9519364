# SPDX-License-Identifier: Apache-2.0
"""The last checks wait until the world is at rest, and then find every error."""

from __future__ import annotations

import pytest

from compute_agent.events import MessagesArrived
from shared_scheduler.core.effects import Fail
from shared_scheduler.core.events import WriteCode
from shared_scheduler.protocol.messages import Claim
from shared_scheduler.sim import rest
from shared_scheduler.sim.exhibition import DemoPlan
from shared_scheduler.sim.invariants import AT_REST
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.rest import Rest, end_faults, heal
from shared_scheduler.sim.workload import FLAVORS, Server, ServerState, Workload
from shared_scheduler.sim.world import Sizes, World
from tests.support.demos import run_demo
from tests.unit.sim import planted
from tests.unit.sim.single_requests import ask_for

#: bugs that lose the delete of an allocation: by nova-compute, and by a scheduler
LOST_DELETES = (planted.lose_the_delete_of_an_allocation, planted.leave_behind_what_was_written)
#: demos that are tried for each
PLANTED_SEEDS = range(8)
#: demos whose last checks once came while an audit of a nova-compute showed zeros
DEMOS_CHECKED_DURING_AN_AUDIT = (15, 90)
#: so long before the checks of a world without a fault: increments are on their way that long
ON_ITS_WAY_S = 0.001
#: a Placement that takes so long for a call; longer than the caller waits, shorter than a proxy allows
LATE_S = 25.0
#: requests per second of a cloud that only the test asks
NOBODY = 1e-6


def small_demo(seed: int) -> DemoPlan:
    """One that takes less than half a second."""
    return DemoPlan(seed, nodes=30, schedulers=2, duration_s=4.0, rate_per_s=15.0)


def quiet_world(rate_per_s: float = 2.0) -> World:
    """Servers that live on two nodes, and nothing that fails."""
    workload = Workload(rate_per_s, build_fails=0.0, flavors=FLAVORS[:2])
    world = World(1, Sizes(nodes=2, schedulers=2), workload, NetworkFaults())
    world.run(10.0)
    return world


def checked_at_s(world: World) -> float:
    """When the last checks of such a world begin, if it is at rest by then: every row is fresh after one heartbeat."""
    return world.now + world.sizes.heartbeat_interval_s + rest.SETTLE_S


def delete(world: World, server: Server) -> None:
    """A user deletes it, however late that is."""
    server.state = ServerState.DELETED
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


def test_a_claim_that_came_after_its_server_is_ended_by_its_agent() -> None:
    # given a server, and an earlier claim of its node that comes late, while the Release of it was lost
    world = quiet_world(NOBODY)
    (server,) = ask_for(world).servers
    world.run(5.0)
    node, allocations = world.nodes[server.node], world.placement.consumers[server.uuid]
    assert node.agent is not None
    late = Claim(
        "late", server.node, "scheduler-0.1", server.uuid, allocations, server.usage, seen_epoch=node.agent.epoch
    )
    node.feed(MessagesArrived((late,), node.clock.now))
    assert "late" in node.agent.ledger.pending
    # when the world comes to rest, and nova-compute has counted the server for some minutes
    heal(world)
    # then the agent has ended the claim
    assert not node.agent.ledger.pending
    assert world.checkers.violations == []


def test_a_late_write_of_a_dead_scheduler_for_a_deleted_server_is_left_to_nova() -> None:
    # given a request that failed because a proxy holds its write, which Placement will carry out late
    world = quiet_world(NOBODY)
    world.placement.held_s = LATE_S
    failed = ask_for(world)
    world.run(LATE_S - 5.0)
    assert isinstance(failed.outcome, Fail)
    # when the server is asked for again, lives, and is deleted, and its first scheduler dies
    world.placement.held_s = 0.0
    world.crash(world.schedulers[0])
    other = world.schedulers[1]
    again = world.users.ask_again(failed, other.name, world.now, lambda server: world.nodes[server.node].host)
    other.ask(again.request, again.deadline_s)
    world.run(3.0)
    (server,) = again.servers
    delete(world, server)
    # then the write is carried out, and nobody but the next audit of nova-compute finds it
    world.run(5.0)
    assert server.uuid in world.placement.consumers
    heal(world)
    assert world.checkers.violations == []


def fill_unseen(world: World, servers: tuple[Server, ...]) -> None:
    """Placement stores allocations of these servers, each of the whole disk of a node, and no event follows."""
    for node, server in zip(world.nodes, servers, strict=True):
        disk_gb = int(world.placement.providers[node].inventories["DISK_GB"].capacity)
        write = world.placement.begin_write(server.uuid, {node: {"DISK_GB": disk_gb}})
        assert world.placement.end_write(write) == (WriteCode.WRITTEN, "")


@pytest.mark.parametrize(("dies", "broken"), [(True, []), (False, ["never_refused"])])
def test_placement_may_refuse_only_because_of_what_a_dead_scheduler_wrote_unseen(dies: bool, broken: list[str]) -> None:
    # given two nodes that Placement knows to be full, and a scheduler that has not heard of it
    world = quiet_world(NOBODY)
    asked = ask_for(world, count=len(world.nodes))
    if dies:
        world.crash(world.schedulers[0])
    end_faults(world)
    world.run(rest.SETTLE_S)
    for server in asked.servers:
        world.placement.delete(server.uuid)
    fill_unseen(world, asked.servers)
    # when requests come alone, then their refusals are an error, unless the servers were lost with a scheduler
    Rest(world).ask_alone()
    assert [violation.name for violation in world.checkers.violations] == broken


@pytest.mark.parametrize("bug", LOST_DELETES, ids=lambda bug: bug.name)
def test_a_delete_that_is_really_lost_is_found_in_a_demo(bug: planted.Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.patch(monkeypatch)
    for seed in PLANTED_SEEDS:
        crowded = DemoPlan(seed, nodes=6, schedulers=3, duration_s=8.0, rate_per_s=20.0)
        if any(broken.name in bug.breaks & AT_REST.keys() for broken in run_demo(crowded).checkers.violations):
            return
    pytest.fail(f"{bug.name} was not caught")
