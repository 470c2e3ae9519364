# SPDX-License-Identifier: Apache-2.0
"""Moves that a scheduler places, while somebody else changes the ports of the server (``attached_ports.py``).

The conductor gives the source's allocations to the migration, and asks a scheduler, which writes those of the target as
for a new consumer.  With an answer, the target builds the server, and the source frees the migration's allocations.
Without one the conductor puts them back, beside the ports; Nova's conductor would overwrite those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING

from shared_scheduler.core.effects import Answer, Choice
from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.sim.attached_ports import only_ports, without_ports
from shared_scheduler.sim.nodes import SimNode
from shared_scheduler.sim.workload import RACES, Server, ServerState, placed

if TYPE_CHECKING:
    from shared_scheduler.sim.world import World

#: types of Nova's migration records, as the product's option ``merged_moves`` names them
MOVES = ("live-migration", "migration")
EVACUATION = "evacuation"
#: time after which a step that cannot be made yet is tried again
AGAIN_S = 1.0
#: a caller gives up this long after its request's deadline (``CALLER_GRACE_S``, and a moment)
GIVES_UP_AFTER_S = 1.001


@dataclass(slots=True, eq=False)
class ScheduledMove:
    """One move.  ``is_over``: the conductor has heard an answer, or has given up, at ``over_s``.  ``has_target``: with
    a host.  ``failed_s``: when the source had its server again.  ``left``: what an evacuation leaves on the source,
    until its nova-compute is back."""

    server: Server
    move_type: str
    source: SimNode
    migration: str = ""
    is_over: bool = False
    over_s: float = inf
    has_target: bool = False
    failed_s: float = inf
    left: Allocations = field(default_factory=dict)


class ScheduledMoves:
    """Moves servers that have no topology, each once.  Groups keep their policy, and labels their skew.

    Evacuations are among them (``evacuations.py``).  ``amounts``: what each server has on its host.  ``unnoticed``:
    nodes and servers whose allocations the conductor took back there although they stood, as after the death of a
    scheduler; no event tells the agent of the node.
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

    def is_evacuation(self, consumer: str) -> bool:
        """Whether a server was evacuated, or is being evacuated, or could not be."""
        move = self._moves.get(consumer)
        return move is not None and move.move_type == EVACUATION

    def evacuated_from(self, source: SimNode) -> Iterator[ScheduledMove]:
        """The evacuations from a node that have not failed."""
        moves = (move for move in self._moves.values() if move.source is source and move.failed_s == inf)
        return (move for move in moves if move.move_type == EVACUATION)

    def have_changed(self, consumers: Iterable[str], since_s: float) -> bool:
        """Whether any of these servers has no host for its move yet, or had none at some time since then."""
        moves = [self._moves[consumer] for consumer in consumers if consumer in self._moves]
        waits = any(move.server.state is ServerState.MOVES and not move.has_target for move in moves)
        return waits or any(since_s <= end_s < inf for move in moves for end_s in (move.over_s, move.failed_s))

    def source_of(self, consumer: str) -> str:
        """The node that a server has left, by a move with an answer; empty: there is none."""
        move = self._moves.get(consumer)
        return "" if move is None or move.failed_s < inf else move.source.node

    def left(self, consumer: str) -> Allocations:
        """What the evacuation of a server leaves on its source."""
        move = self._moves.get(consumer)
        return {} if move is None else move.left

    def is_kept(self, migration: str) -> bool:
        """Whether the conductor cannot give the allocations of a migration back, because a Placement that was killed
        has left the record of the server.  Placement refuses each write of a new consumer then, and no call deletes
        the record; Nova's own scheduler leaves the same."""
        servers = (move.server.uuid for move in self._moves.values() if move.migration == migration)
        return any(map(self._world.placement.is_orphan, servers))

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
        movable = [server for server in self.movable() if world.nodes[server.node].compute_up]
        if not (world.is_open and movable and world.placement.up and world.schedulers):
            return False
        server = rng.choice(movable)
        self.move(server, rng)
        others = [
            one for one in movable if one is not server and server.group is not None and one.group is server.group
        ]
        if others and rng.random() < RACES:
            self.move(rng.choice(others), rng)
        return True

    def move(self, server: Server, rng: Random) -> None:
        """Begin to move a server."""
        world = self._world
        self._count += 1
        source, move_type = world.nodes[server.node], rng.choice(MOVES)
        move = ScheduledMove(server, move_type, source, f"scheduled-{self._count}")
        self.add(move)
        world.counters["scheduled_moves"] += 1
        world.placement.begin_scheduled_move(server.uuid, move.migration)
        source.move_out(server.uuid, move.migration)
        world.ports.change(server, rng)
        self.ask(move, rng, partial(self._decided, move))

    def add(self, move: ScheduledMove) -> None:
        """Note a move that begins."""
        server = move.server
        self._moves[server.uuid] = move
        self.amounts[server.uuid] = self._world.placement.consumers[server.uuid][server.node]
        server.state = ServerState.MOVES

    def movable(self) -> list[Server]:
        """The servers that may begin to move."""
        return [server for server in self._world.living.values() if self._can_move(server)]

    def _can_move(self, server: Server) -> bool:
        stays = server.state is ServerState.LIVES and not server.topology
        return stays and self._came_directly(server)

    def _came_directly(self, server: Server) -> bool:
        """Whether the server was claimed for one node only, and is there.

        Another node may still count it, because a build has failed there, or may accept an earlier claim that arrives
        late.  If it comes there by a move, its claim ends after ``AUDITED_AFTER_S`` or ``SETTLED_AFTER_S``, which are
        longer than a world lasts (``compute_agent/agent_settings.py``).
        """
        asked = self._world.users.asked[server.request_id]
        if server.tries > 1 or not isinstance(asked.outcome, Answer):
            return False
        chosen = placed(asked.outcome)[asked.servers.index(server)].node
        return chosen == server.node and len(asked.outcome.record.attempts) <= len(asked.servers)

    def ask(self, move: ScheduledMove, rng: Random, decided: Callable[[Choice | None], None]) -> None:
        """Ask a scheduler for a host; ``decided`` is called with it, or with None if there is none."""
        world, source = self._world, move.source
        scheduler = world.schedulers[rng.choice(sorted(world.schedulers))]
        heard = partial(self._heard, move, decided)
        asked = world.users.ask_to_move(
            move.server,
            source.host,
            source.cell,
            scheduler.name,
            world.now,
            heard,
            world.host_of,
            move.move_type == EVACUATION,
        )
        request_id = asked.request.request_id
        world.trace.note("conductor", f"asks {scheduler.name} for {request_id}, a {move.move_type} from {source.node}")
        world.counters["requests"] += 1
        world.agenda.work(0.0, scheduler.ask, asked.request, asked.deadline_s)
        world.agenda.work(asked.deadline_s - world.now + GIVES_UP_AFTER_S, self._give_up, heard, request_id)

    def _give_up(self, heard: Callable[[Answer | None], None], request_id: str) -> None:
        if self._world.users.asked[request_id].outcome is None:
            heard(None)

    def _heard(self, move: ScheduledMove, decided: Callable[[Choice | None], None], answer: Answer | None) -> None:
        if not move.is_over:
            move.is_over, move.over_s = True, self._world.now
            decided(None if answer is None else placed(answer)[0])

    def _decided(self, move: ScheduledMove, choice: Choice | None) -> None:
        if choice is None:
            self._take_back(move)
            return
        move.has_target = True
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
