# SPDX-License-Identifier: Apache-2.0
"""A nova-compute stops in the simulator, and a server is evacuated from its host."""

from __future__ import annotations

from random import Random

import pytest

from shared_scheduler.core.effects import Answer, DeleteAllocation
from shared_scheduler.core.events import AllocationDeleted
from shared_scheduler.placement import consumer_conflicts
from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.sim.attached_ports import without_ports
from shared_scheduler.sim.clock import LocalClock
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.nodes import SimNode
from shared_scheduler.sim.rest import heal
from shared_scheduler.sim.scheduled_moves import EVACUATION
from shared_scheduler.sim.surroundings import Surroundings
from shared_scheduler.sim.workload import FLAVORS, Server, ServerState, Workload
from shared_scheduler.sim.world import Sizes, World
from shared_scheduler.sim.writers import SimWriters
from tests.unit.sim.single_requests import ask_for
from tests.unit.sim.test_ports_in_moves import ONE_PORT, FirstOfAll, Listener

BASE, PART = {"source": {"VCPU": 1}}, {"target": {"VCPU": 1}}


def with_server(nodes: int = 2) -> tuple[World, Server, SimNode]:
    """A world with one server, and its node, whose nova-compute has stopped."""
    workload = Workload(0.0001, lifetime_s=1e6, several=0.0, not_root_only=0.0, build_fails=0.0, flavors=FLAVORS[:1])
    world = World(1, Sizes(nodes=nodes, schedulers=1, merged_moves=(EVACUATION,)), workload, NetworkFaults())
    world.run(5.0)
    (server,) = ask_for(world).servers
    world.run(5.0)
    source = world.nodes[server.node]
    source.kill_compute()
    return world, server, source


def held(world: World, server: Server) -> Allocations:
    return world.placement.consumers[server.uuid]


def test_the_target_is_added_and_the_source_removed_when_its_nova_compute_returns() -> None:
    world, server, source = with_server()
    assert world.evacuations.begin(FirstOfAll(1))
    world.run(5.0)
    amounts = world.scheduled_moves.amounts[server.uuid]
    assert (server.state, server.node != source.node) == (ServerState.LIVES, True)
    assert held(world, server) == {source.node: amounts, server.node: amounts} | ONE_PORT
    assert server.uuid in source.tracker.instances
    source.start_compute()
    world.run(5.0)
    assert held(world, server) == {server.node: amounts} | ONE_PORT
    assert source.tracker.instances == {}
    heal(world)
    assert world.checkers.violations == []


def test_a_server_that_gets_no_host_stays_with_what_it_had() -> None:
    world, server, source = with_server(nodes=1)
    assert world.evacuations.begin(FirstOfAll(1))
    world.run(5.0)
    source.start_compute()
    heal(world)
    assert (server.state, server.node) == (ServerState.LIVES, source.node)
    assert without_ports(held(world, server)) == {source.node: world.scheduled_moves.amounts[server.uuid]}
    assert server.uuid in source.tracker.instances
    assert world.checkers.violations == []


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_source_returns_before_there_is_an_answer(nodes: int) -> None:
    # given a scheduler that does not answer, and a source that returns
    world, server, source = with_server(nodes)
    world.schedulers[0].freeze()
    assert world.evacuations.begin(Random(1))
    source.start_compute()
    world.run(5.0)
    assert server.uuid not in source.tracker.instances
    # when it answers, then the server is on the target, or nothing is left of it
    world.schedulers[0].thaw()
    heal(world)
    assert server.state is (ServerState.LIVES if nodes > 1 else ServerState.DELETED)
    assert server.uuid not in world.placement.consumers_of(source.node)
    assert world.checkers.violations == []


def test_a_source_that_cannot_reach_placement_starts_again_until_it_can() -> None:
    world, server, source = with_server()
    assert world.evacuations.begin(Random(1))
    world.run(5.0)
    world.set_placement(False)
    source.start_compute()
    world.run(5.0)
    assert not source.compute_up
    world.set_placement(True)
    world.run(5.0)
    assert (source.compute_up, source.node in held(world, server)) == (True, False)


def test_a_scheduler_knows_what_the_server_has_if_its_agent_has_told() -> None:
    world, *_ = with_server()
    world.placement.tells_generations = True
    for node in world.nodes.values():
        node.kill_agent()
        node.start_agent()
    world.run(5.0)
    assert world.evacuations.begin(Random(1))
    world.run(5.0)
    answers = [asked.outcome for asked in world.users.asked.values() if asked.moved is not None]
    assert [type(answer) for answer in answers] == [Answer]
    assert world.checkers.violations == []


#: for how long a proxy holds the first write of an evacuation: Placement carries it out shortly before or after the
#: scheduler has given it up, reads the server, and writes the next host
HELD_S = [round(9.98 + 0.001 * step, 3) for step in range(40)]


def evacuated_with_a_late_write(held_s: float, monkeypatch: pytest.MonkeyPatch) -> tuple[World, Server]:
    """An evacuation some time after its first write was held for so long."""
    world, server, _ = with_server(nodes=4)
    monkeypatch.setattr(world.ports, "change", lambda *_: None)
    world.placement.held_s = held_s
    assert world.evacuations.begin(Random(1))
    world.run(1.0)
    world.placement.held_s = 0.0
    world.run(40.0)
    return world, server


def test_an_evacuation_replaces_its_own_late_write(monkeypatch: pytest.MonkeyPatch) -> None:
    for held_s in HELD_S:
        world, server = evacuated_with_a_late_write(held_s, monkeypatch)
        assert world.checkers.violations == [], held_s
        assert len(held(world, server)) == 2, held_s  # its source and its target


def test_an_evacuation_that_takes_its_own_late_write_for_that_of_others_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer_conflicts, "own_attempt", lambda *_: None)
    ends = [evacuated_with_a_late_write(held_s, monkeypatch) for held_s in HELD_S]
    names = {violation.name for world, _ in ends for violation in world.checkers.violations}
    assert {"written_first", "others_kept"} <= names  # the first host keeps its part
    assert 1 in {len(held(world, server)) for world, server in ends}  # it has failed


@pytest.mark.parametrize("needed", [False, None, True])
def test_what_others_have_changed_is_taken_back_when_nova_can_tell(needed: bool | None) -> None:
    # given an evacuation after which a port was attached
    world, server, source = with_server()
    assert world.evacuations.begin(FirstOfAll(1))
    world.run(5.0)
    part = {server.node: world.scheduled_moves.amounts[server.uuid]}
    before = {source.node: world.scheduled_moves.amounts[server.uuid]}
    listener = Listener()
    listener.needed = needed
    around = Surroundings(world.agenda, world.network, world.placement, world.trace, world.placement_delay_s)
    writers = SimWriters("scheduler", around, LocalClock(world.agenda, Random(1)), Random(1), listener)
    # when its claim is taken back
    writers.submit(DeleteAllocation("claim", server.uuid, before | part, "req", before, float("inf"), generation=2))
    world.run(5.0)
    # then its part goes only if the server does not need it
    assert held(world, server) == before | ONE_PORT | ({} if needed is False else part)
    (answer,) = listener.answers
    assert isinstance(answer, AllocationDeleted)
    assert (answer.gone, answer.left_alone, answer.changed) == (needed is False, needed is True, needed is not False)
