# SPDX-License-Identifier: Apache-2.0
"""An agent that has lost its memory while its clock was set back, and a late message of the run that it forgot."""

from __future__ import annotations

from shared_scheduler.core.effects import Answer
from shared_scheduler.core.events import MessagesArrived
from shared_scheduler.protocol.messages import Message
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.nodes import SimNode
from shared_scheduler.sim.workload import ServerState, Workload
from shared_scheduler.sim.world import Sizes, World
from shared_scheduler.table.row import Freshness
from tests.unit.sim.single_requests import ask_for

#: the time between two heartbeats of this world
HEARTBEAT_S = 2.0
#: how far the clock of an agent is set back
SET_BACK_S = 500


def hear(world: World, node: SimNode, message: Message) -> None:
    """The only scheduler gets a message of the agent, however late."""
    world.schedulers[0].feed(MessagesArrived(node.cell, (message,)))


def begin_in_older_epoch(world: World, node: SimNode) -> None:
    """The agent stops, loses its memory, and is heard in an older epoch."""
    node.kill_agent()
    node.forget(SET_BACK_S)
    world.checkers.agent_forgot(node)
    world.network.heal(node.address)
    node.start_agent()
    world.run(1.0)


def test_an_agent_exceeds_a_forgotten_run_soon_after_a_scheduler_has_heard_of_it() -> None:
    # given a scheduler that follows an agent in an older epoch, because it has heard nothing of the run before
    sizes = Sizes(nodes=1, schedulers=1, heartbeat_interval_s=HEARTBEAT_S)
    world = World(1, sizes, Workload(rate_per_s=1e-9), NetworkFaults())
    (node,), table = world.nodes.values(), world.schedulers[0].core.table
    world.network.cut(node.address)
    world.run(3.0)
    assert node.agent is not None
    _, late = node.agent.publisher.pipe.take_snapshot(node.clock.now)
    begin_in_older_epoch(world, node)
    assert table.version(node.node).epoch < late.epoch
    # when a snapshot of its forgotten run arrives
    hear(world, node, late)
    assert table.version(node.node).epoch == late.epoch
    # then its next heartbeat shows the difference, and it is asked to exceed that
    world.run(4 * HEARTBEAT_S)
    assert late.epoch < node.agent.epoch == table.version(node.node).epoch
    assert world.checkers.violations == []


def test_a_row_of_a_forgotten_run_lacks_what_was_promised_until_a_message_of_a_greater_epoch_arrives() -> None:
    # given a server that was placed and built while nothing was heard of the agent, which has forgotten that run
    world = World(1, Sizes(nodes=1, schedulers=1), Workload(rate_per_s=1e-9), NetworkFaults())
    world.checkers.rows_every = 1
    (node,), table = world.nodes.values(), world.schedulers[0].core.table
    world.network.cut(node.address)
    world.run(3.0)
    assert node.agent is not None
    _, late = node.agent.publisher.pipe.take_snapshot(node.clock.now)
    asked = ask_for(world)
    world.run(5.0)
    assert isinstance(asked.outcome, Answer) and asked.servers[0].state is ServerState.LIVES
    begin_in_older_epoch(world, node)
    assert [*table.view(node.node).consumers] == [asked.servers[0].uuid]
    # when a late snapshot of that run arrives, the agent exceeds its epoch, and the messages that say so are lost
    hear(world, node, late)
    world.network.cut(node.address, receiving=False)
    hear(world, node, node.agent.publisher.pipe.heartbeat())
    world.run(3.0)
    assert node.agent.epoch > late.epoch
    hear(world, node, late)
    # then the row is still of the forgotten run
    assert table.version(node.node).epoch == late.epoch
    assert asked.servers[0].uuid not in table.view(node.node).consumers
    # and is right as soon as the agent is heard
    world.network.heal(node.address, receiving=False)
    world.run(10.0)
    assert table.freshness(node.node) is Freshness.FRESH
    assert [*table.view(node.node).consumers] == [asked.servers[0].uuid]
    assert world.checkers.violations == []
