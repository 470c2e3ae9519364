# SPDX-License-Identifier: Apache-2.0
"""Live migrations: forced by an operator, so that no scheduler is asked and no agent gets a claim.

The conductor writes the destination's allocation; the source reports at once when the instance has
left; the destination counts it when the next audit finds it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from shared_scheduler.sim.nodes import SimNode
from shared_scheduler.sim.workload import Server, ServerState, disturb_group

if TYPE_CHECKING:
    from shared_scheduler.sim.world import World

#: mean time of a migration, and time after which one that cannot end yet is checked again
MOVE_S = 3.0
AGAIN_S = 1.0


class Moves:
    """Moves one active instance after the other, about ``per_s`` a second."""

    def __init__(self, world: World, rng: Random, per_s: float) -> None:
        self._world = world
        self._rng = rng
        self._per_s = per_s
        self._count = 0
        if per_s:
            world.agenda.after(rng.expovariate(per_s), self._next)

    def _next(self) -> None:
        if not self._world.is_open:
            return
        self._begin()
        self._world.agenda.after(self._rng.expovariate(self._per_s), self._next)

    def _begin(self) -> None:
        world = self._world
        stays = (server for server in world.living.values() if server.state is ServerState.LIVES)
        movable = [server for server in stays if not server.topology and self._is_in_one_place(server.uuid)]
        if not movable or not world.placement.up or len(world.nodes) < 2:
            return
        server = self._rng.choice(movable)
        source = world.nodes[server.node]
        others = [node for node in world.nodes.values() if node is not source and node.cell == source.cell]
        if not others:
            return
        to = self._rng.choice(others)
        migration = f"migration-{self._count + 1}"
        if not source.compute_up or not world.placement.begin_move(server.uuid, migration, to.node):
            return
        self._count += 1
        world.counters["migrations"] += 1
        world.trace.note("conductor", f"moves {server.uuid} from {source.node} to {to.node}")
        server.state = ServerState.MOVES
        disturb_group(server)
        world.checkers.drop_claims_of(to.node, server.uuid)
        source.move_out(server.uuid, migration)
        world.agenda.work(self._rng.expovariate(1 / MOVE_S), self._end, server, migration, source, to)

    def _is_in_one_place(self, uuid: str) -> bool:
        return not (self._world.ports.of(uuid) or self._world.scheduled_moves.is_evacuation(uuid))

    def _end(self, server: Server, migration: str, source: SimNode, to: SimNode) -> None:
        if not (source.compute_up and to.compute_up):
            self._world.agenda.work(AGAIN_S, self._end, server, migration, source, to)
            return
        to.tracker.arrive(server.uuid, source.moved_out(server.uuid, migration))
        self._world.checkers.drop_claims_of(source.node, server.uuid)
        server.state, server.node = ServerState.LIVES, to.node
        self._world.trace.note(to.node, f"has {server.uuid}, and has not noticed")
