# SPDX-License-Identifier: Apache-2.0
"""Moves that a scheduler places, while somebody else changes the ports of the server (``attached_ports.py``).

The conductor gives the source's allocations to the migration, and asks a scheduler, which writes those of the target as
for a new consumer.  With an answer, the target builds the server, and the source frees the migration's allocations.
Without one the conductor puts them back, beside the ports; Nova's conductor would overwrite those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING

from shared_scheduler.core.effects import Answer
from shared_scheduler.sim.attached_ports import only_ports, without_ports
from shared_scheduler.sim.nodes import SimNode
from shared_scheduler.sim.workload import RACES, Server, ServerState, placed

if TYPE_CHECKING:
    from shared_scheduler.sim.world import World

#: types of Nova's migration records, as the product's option ``merged_moves`` names them
MOVES = ("live-migration", "migration")
#: time after which a step that cannot be made yet is tried again
AGAIN_S = 1.0
#: a caller gives up this long after its request's deadline (``CALLER_GRACE_S``, and a moment)
GIVES_UP_AFTER_S = 1.001


@dataclass(slots=True, eq=False)
class ScheduledMove:
    """One move.  ``is_over``: the conductor has heard an answer, or has given up.  ``has_target``: with a host.
    ``failed_s``: when the source had its server again."""

    server: Server
    move_type: str
    migration: str
    source: SimNode
    is_over: bool = False
    has_target: bool = False
    failed_s: float = inf


class ScheduledMoves:
    """Moves servers that have no label and no topology, each once.  Members of groups keep their policy.

    ``amounts``: what each of them has on its host.  ``unnoticed``: nodes and servers whose allocations the conductor
    took back there although they stood, as after the death of a scheduler; no event tells the agent of the node.
    """

    def __init__(self, world: World) -> None:
        self.amounts: dict[str, Mapping[str, int]] = {}
        self.unnoticed: set[tuple[str, str]] = set()
        self._world = world
        self._moves: dict[str, ScheduledMove] = {}
        self._count = 0

    def type_of(self, consumer: str) -> str:
        """The type of the move of a server that is being scheduled; empty: there is none."""
        move = self._moves.get(consumer)
        return "" if move is None or move.is_over else move.move_type

    def is_over(self, consumer: str) -> bool:
        """Whether the conductor does not wait for a host for this server."""
        return not self.type_of(consumer)

    def is_undecided(self, consumer: str) -> bool:
        """Whether the move of a server has no answer with a host, and may never have one."""
        move = self._moves.get(consumer)
        return move is not None and not move.has_target

    def was_undecided(self, consumer: str, since_s: float) -> bool:
        """Whether a server was about to leave its host at some time since then, by a move that has got no host."""
        move = self._moves.get(consumer)
        return move is not None and not move.has_target and move.failed_s >= since_s

    def begin(self, rng: Random) -> bool:
        """Begin to move some server, and half of the time another member of its group as well; False if there is none
        that can be moved now."""
        world = self._world
        movable = [server for server in world.living.values() if self._can_move(server)]
        if not (world.is_open and movable and world.placement.up and world.schedulers):
            return False
        server = rng.choice(movable)
        self._move(server, rng)
        others = [
            one for one in movable if one is not server and server.group is not None and one.group is server.group
        ]
        if others and rng.random() < RACES:
            self._move(rng.choice(others), rng)
        return True

    def _move(self, server: Server, rng: Random) -> None:
        world = self._world
        self._count += 1
        source, move_type = world.nodes[server.node], rng.choice(MOVES)
        move = ScheduledMove(server, move_type, f"scheduled-{self._count}", source)
        self._moves[server.uuid] = move
        self.amounts[server.uuid] = world.placement.consumers[server.uuid][server.node]
        world.counters["scheduled_moves"] += 1
        server.state = ServerState.MOVES
        world.placement.begin_scheduled_move(server.uuid, move.migration)
        source.move_out(server.uuid, move.migration)
        world.ports.change(server, rng)
        self._ask(move, rng)

    def _can_move(self, server: Server) -> bool:
        world = self._world
        labelled = server.group is not None and server.group.label  # whose moves would change the skew
        stays = server.state is ServerState.LIVES and not server.topology and not labelled
        return stays and world.nodes[server.node].compute_up and self._came_directly(server)

    def _came_directly(self, server: Server) -> bool:
        """Whether the server was claimed for one node only, and is there.

        Another node may still count it, because a build has failed there, or may accept an earlier claim that arrives
        late.  If it comes there by a move, its claim ends after ``SETTLED_AFTER_S``, which is longer than a world lasts
        (``compute_agent/agent_settings.py``).
        """
        asked = self._world.users.asked[server.request_id]
        if server.tries > 1 or not isinstance(asked.outcome, Answer):
            return False
        chosen = placed(asked.outcome)[asked.servers.index(server)].node
        return chosen == server.node and len(asked.outcome.record.attempts) <= len(asked.servers)

    def _ask(self, move: ScheduledMove, rng: Random) -> None:
        world, source = self._world, move.source
        scheduler = world.schedulers[rng.choice(sorted(world.schedulers))]
        heard = partial(self._answered, move)
        asked = world.users.ask_to_move(
            move.server, source.host, source.cell, scheduler.name, world.now, heard, world.host_of
        )
        request_id = asked.request.request_id
        world.trace.note("conductor", f"asks {scheduler.name} for {request_id}, a {move.move_type} from {source.node}")
        world.counters["requests"] += 1
        world.agenda.work(0.0, scheduler.ask, asked.request, asked.deadline_s)
        world.agenda.work(asked.deadline_s - world.now + GIVES_UP_AFTER_S, self._give_up, move, request_id)

    def _give_up(self, move: ScheduledMove, request_id: str) -> None:
        if self._world.users.asked[request_id].outcome is None:
            self._answered(move, None)

    def _answered(self, move: ScheduledMove, answer: Answer | None) -> None:
        if move.is_over:
            return
        move.is_over = True
        if answer is None:
            self._take_back(move)
            return
        move.has_target = True
        (choice,) = placed(answer)
        target, server = self._world.nodes[choice.node], move.server
        self._world.ports.check(server.uuid, choice.node, {choice.node: self.amounts[server.uuid]})
        target.build(server.uuid, server.usage, "", False, lambda built: self._end(move, target))

    def _end(self, move: ScheduledMove, target: SimNode) -> None:
        """The target has built the server."""
        world, server = self._world, move.server
        if not move.source.compute_up:
            world.agenda.work(AGAIN_S, self._end, move, target)
            return
        move.source.moved_out(server.uuid, move.migration)
        world.checkers.drop_claims_of(move.source.node, server.uuid)
        server.state, server.node = ServerState.LIVES, target.node
        world.counters["scheduled_moves_ended"] += 1
        world.trace.note(target.node, f"has {server.uuid}")

    def _take_back(self, move: ScheduledMove) -> None:
        """The conductor puts the source's allocations back."""
        world, server = self._world, move.server
        stands = world.placement.consumers.get(server.uuid, {})
        up = world.placement.up
        if not (up and world.placement.take_move_back(server.uuid, move.migration, only_ports(stands))):
            world.agenda.work(AGAIN_S, self._take_back, move)
            return
        self.unnoticed |= {(node, server.uuid) for node in without_ports(stands)}
        world.trace.note("conductor", f"takes the move of {server.uuid} back")
        self._stay(move)

    def _stay(self, move: ScheduledMove) -> None:
        if not move.source.compute_up:
            self._world.agenda.work(AGAIN_S, self._stay, move)
            return
        move.source.stay(move.server.uuid)
        move.server.state, move.failed_s = ServerState.LIVES, self._world.now
