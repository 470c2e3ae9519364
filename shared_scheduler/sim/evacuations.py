# SPDX-License-Identifier: Apache-2.0
"""Evacuations: the nova-compute of a host has stopped, and its servers are built on other hosts.

The server keeps the allocations of its source, and a scheduler adds those of the target: its write is a merge from the
beginning.  Meanwhile somebody else changes the ports of the server (``attached_ports.py``).  With an answer the target
builds the server.  Without one it stays on its source.  When the nova-compute of the source starts, it destroys the
servers of all evacuations that have not failed, also of those that are still being scheduled, and removes their
allocations there (``_destroy_evacuated_instances`` of nova/compute/manager.py).  If such an evacuation fails then,
nothing is left of the server, and its user deletes it.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from shared_scheduler.core.effects import Choice
from shared_scheduler.sim.nodes import SimNode
from shared_scheduler.sim.scheduled_moves import EVACUATION, ScheduledMove
from shared_scheduler.sim.workload import RACES, Server, ServerState

if TYPE_CHECKING:
    from shared_scheduler.sim.world import World

#: evacuations that begin when the nova-compute of a host has stopped, and the mean time between two later ones
AT_ONCE = (1, 2, 5)
PAUSE_S = 1.0
#: part of the hosts that stop with their agent
WITH_AGENT = 0.5
#: time after which a step that cannot be made yet is tried again
AGAIN_S = 1.0


class Evacuations:
    """Evacuates servers that may move (``ScheduledMoves.movable``)."""

    def __init__(self, world: World) -> None:
        self._world = world

    def begin(self, rng: Random) -> bool:
        """Evacuate some server, and half of the time move another member of its group as well; False if there is none
        that can be evacuated now."""
        world = self._world
        movable = world.scheduled_moves.movable()
        down = [server for server in movable if not world.nodes[server.node].compute_up]
        if not (world.is_open and down and world.placement.up and world.schedulers):
            return False
        server = rng.choice(down)
        self._evacuate(server, rng)
        others = [one for one in movable if one is not server and one.group is server.group and one.group is not None]
        if others and rng.random() < RACES:
            other = rng.choice(others)
            (self._evacuate if other in down else world.scheduled_moves.move)(other, rng)
        return True

    def _evacuate(self, server: Server, rng: Random) -> None:
        world = self._world
        source = world.nodes[server.node]
        move = ScheduledMove(server, EVACUATION, source)
        world.scheduled_moves.add(move)
        move.left = {source.node: world.scheduled_moves.amounts[server.uuid]}
        source.destroy_evacuated = partial(self._destroy, source)
        world.counters["evacuations"] += 1
        world.ports.change(server, rng)
        world.scheduled_moves.ask(move, rng, partial(self._decided, move))

    def _decided(self, move: ScheduledMove, choice: Choice | None) -> None:
        world, server = self._world, move.server
        if choice is None:
            self._fail(move)
            return
        part = {choice.node: world.scheduled_moves.amounts[server.uuid], **move.left}
        world.ports.check(server.uuid, choice.node, part)
        target = world.nodes[choice.node]
        target.build(server.uuid, server.usage, "", False, lambda built: self._end(move, target))

    def _end(self, move: ScheduledMove, target: SimNode) -> None:
        """The target has built the server; only now its record in Nova names the target."""
        world, server = self._world, move.server
        move.has_target = True
        server.state, server.node = ServerState.LIVES, target.node
        world.counters["evacuations_ended"] += 1
        world.trace.note(target.node, f"has {server.uuid}")

    def _fail(self, move: ScheduledMove) -> None:
        """The server stays on its source, if it is there still."""
        world, server = self._world, move.server
        if move.left:
            server.state, move.failed_s = ServerState.LIVES, world.now
            world.trace.note("conductor", f"leaves {server.uuid} on {move.source.node}")
            return
        if not world.placement.forget(server.uuid):
            world.agenda.work(AGAIN_S, self._fail, move)
            return
        world.trace.note("users", f"delete {server.uuid}, of which nothing is left")
        world.remove(server)

    def _destroy(self, source: SimNode) -> bool:
        """The nova-compute of the source starts; False: it cannot reach Placement."""
        world = self._world
        moves = [move for move in world.scheduled_moves.evacuated_from(source) if move.left]
        if moves and not world.placement.up:
            return False
        for move in moves:
            uuid, move.left = move.server.uuid, {}
            world.trace.note(source.node, f"destroys {uuid}, which was evacuated")
            source.tracker.instances.pop(uuid, None)
            world.placement.remove_from(source.node, uuid)
            world.checkers.drop_claims_of(source.node, uuid)
        return True


class Outage:
    """The nova-compute of a node stops, perhaps with its agent, and servers are evacuated until it starts again."""

    def __init__(self, world: World, node: SimNode, rng: Random, until_s: float) -> None:
        self._world = world
        self._node = node
        self._rng = rng
        self._until_s = until_s
        self._has_struck = False
        self._agent_died = False

    def begin(self) -> None:
        """It stops, unless it has stopped already."""
        self._has_struck = self._node.compute_up
        if self._has_struck:
            self._node.kill_compute()
        self._agent_died = self._node.agent is not None and self._rng.random() < WITH_AGENT
        if self._agent_died:
            self._node.kill_agent()
        for _ in range(self._rng.choice(AT_ONCE)):
            self._world.evacuations.begin(self._rng)
        self._next()

    def _next(self) -> None:
        pause_s = self._rng.expovariate(1 / PAUSE_S)
        if self._world.now + pause_s < self._until_s:
            self._world.agenda.after(pause_s, self._evacuate)

    def _evacuate(self) -> None:
        self._world.evacuations.begin(self._rng)
        self._next()

    def end(self) -> None:
        """It starts again."""
        if self._agent_died and self._node.agent is None:
            self._node.start_agent()
        if self._has_struck:
            self._node.start_compute()
