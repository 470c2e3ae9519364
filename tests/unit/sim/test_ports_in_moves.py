# SPDX-License-Identifier: Apache-2.0
"""A server moves in the simulator, and somebody else attaches a port to it before the scheduler writes."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, TypeVar

import pytest

from shared_scheduler.core.effects import Answer, DeleteAllocation
from shared_scheduler.core.events import AllocationDeleted, AllocationWritten
from shared_scheduler.protocol.messages import Allocations, GroupPolicy
from shared_scheduler.sim.attached_ports import BANDWIDTH, PORT, PORTS
from shared_scheduler.sim.clock import LocalClock
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.rest import heal
from shared_scheduler.sim.run import RunPlan, run
from shared_scheduler.sim.scheduled_moves import MOVES
from shared_scheduler.sim.surroundings import Surroundings
from shared_scheduler.sim.workload import FLAVORS, Server, ServerState, Workload
from shared_scheduler.sim.world import Sizes, World
from shared_scheduler.sim.writers import SimWriters
from tests.unit.sim.single_requests import ask_for

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

T = TypeVar("T")

ONE_PORT = {PORTS: {BANDWIDTH: PORT}}
PART = {"target": {"VCPU": 1}}


class FirstOfAll(Random):
    """Chooses the first of everything: one change, and it comes soon."""

    def choice(self, seq: SupportsLenAndGetItem[T]) -> T:
        return seq[0]


def moved(*merged_moves: str) -> tuple[World, Server, str]:
    """A world in which a server was asked to move, the server, and its node before that."""
    workload = Workload(0.0001, lifetime_s=1e6, several=0.0, not_root_only=0.0, build_fails=0.0, flavors=FLAVORS[:1])
    world = World(1, Sizes(nodes=2, schedulers=1, merged_moves=merged_moves), workload, NetworkFaults())
    world.run(5.0)
    (server,) = ask_for(world).servers
    world.run(5.0)
    source = server.node
    assert world.scheduled_moves.begin(FirstOfAll(1))
    world.run(5.0)
    heal(world)
    return world, server, source


def held(world: World, server: Server) -> Allocations:
    return world.placement.consumers[server.uuid]


def test_the_port_is_kept_when_the_move_is_merged() -> None:
    world, server, source = moved(*MOVES)
    assert server.state is ServerState.LIVES
    assert server.node != source
    assert held(world, server) == {server.node: world.scheduled_moves.amounts[server.uuid]} | ONE_PORT
    # the port, and the merge
    assert world.placement.records[server.uuid].generation == 2
    assert world.checkers.violations == []
    assert world.checkers.checked["others_kept"]


@pytest.mark.parametrize("merged_moves", [(), MOVES[1:]])
def test_a_move_that_the_option_does_not_name_fails_and_the_port_is_kept(merged_moves: tuple[str, ...]) -> None:
    world, server, source = moved(*merged_moves)
    assert world.counters["failed_consumer_conflict"] == 1
    assert (server.state, server.node) == (ServerState.LIVES, source)
    assert held(world, server) == {source: world.scheduled_moves.amounts[server.uuid]} | ONE_PORT
    assert world.checkers.violations == []


def test_what_is_lost_or_is_there_twice_is_noticed() -> None:
    world, server, source = moved(*MOVES)
    once = {server.node: world.scheduled_moves.amounts[server.uuid]}
    for wrong in (once, once | {source: {"VCPU": 1}} | ONE_PORT, ONE_PORT):
        world.placement.consumers[server.uuid] = wrong
        world.checkers.violations.clear()
        world.ports.check(server.uuid, server.node, once)
        assert [violation.name for violation in world.checkers.violations] == ["others_kept"]


def test_members_of_groups_move_too_but_not_those_that_must_stay_together() -> None:
    # given a world in which most servers are in groups, and schedulers are asked to move them
    workload = Workload(rate_per_s=4.0, lifetime_s=60.0, grouped=0.8, build_fails=0.0, flavors=FLAVORS[:1])
    sizes = Sizes(nodes=5, schedulers=3, merged_moves=MOVES, heartbeat_interval_s=2.0)
    world = run(RunPlan(1, 15.0, sizes, workload, fault_every_s=1.0, fault_kinds=("ports_in_moves",)))
    # then members have moved, but none that must be where the others are
    moves = [asked for asked in world.users.asked.values() if asked.moved is not None]
    answered = [asked for asked in moves if isinstance(asked.outcome, Answer)]
    policies = {asked.servers[0].group.policy for asked in answered if asked.servers[0].group is not None}
    assert policies == set(GroupPolicy) - {GroupPolicy.AFFINITY}
    assert any(asked.servers[0].group.policy == GroupPolicy.AFFINITY for asked in moves if asked.servers[0].group)
    # and each policy was kept
    assert world.checkers.violations == []


def test_servers_with_a_label_move_too_and_stay_spread() -> None:
    workload = Workload(rate_per_s=4.0, lifetime_s=60.0, spread=0.8, build_fails=0.0, flavors=FLAVORS[:1])
    sizes = Sizes(nodes=5, schedulers=3, merged_moves=MOVES, heartbeat_interval_s=2.0)
    world = run(RunPlan(1, 15.0, sizes, workload, fault_every_s=1.0, fault_kinds=("ports_in_moves",)))
    moves = [asked for asked in world.users.asked.values() if asked.moved is not None]
    labelled = [asked for asked in moves if asked.servers[0].group is not None and asked.servers[0].group.label]
    assert any(isinstance(asked.outcome, Answer) for asked in labelled)
    assert world.checkers.checked["spread"]
    assert world.checkers.violations == []


class Listener:
    """Receives the answers of the writers."""

    def __init__(self) -> None:
        self.answers: list[AllocationWritten | AllocationDeleted] = []
        self.needed: bool | None = False

    def written_or_deleted(self, event: AllocationWritten | AllocationDeleted) -> None:
        self.answers.append(event)

    def is_needed(self, consumer: str, allocations: Allocations) -> bool | None:
        return self.needed

    def is_merged_move(self, consumer: str) -> bool:
        return True

    def is_in_cell(self, consumer: str) -> bool:
        return True

    def taken_back(self, consumer: str, allocations: Allocations) -> None:
        pass


@pytest.mark.parametrize("others_change_it", [False, True])
def test_a_merged_write_that_is_taken_back_leaves_the_port(others_change_it: bool) -> None:
    # given a merged write, which made generation 2
    world, server, _ = moved(*MOVES)
    written, listener = held(world, server), Listener()
    around = Surroundings(world.agenda, world.network, world.placement, world.trace, world.placement_delay_s)
    writers = SimWriters("scheduler", around, LocalClock(world.agenda, Random(1)), Random(1), listener)
    if others_change_it:
        world.placement.end_write(world.placement.begin_write(server.uuid, written, 2))
        listener.needed = None
    # when its claim is taken back
    writers.submit(DeleteAllocation("claim", server.uuid, written, "req", ONE_PORT, float("inf"), generation=2))
    world.run(5.0)
    # then the port stands alone, or everything stays until Nova can tell, if somebody has written since
    assert held(world, server) == (written if others_change_it else ONE_PORT)
    (answer,) = listener.answers
    assert isinstance(answer, AllocationDeleted)
    assert (answer.gone, answer.changed) == (not others_change_it, others_change_it)
