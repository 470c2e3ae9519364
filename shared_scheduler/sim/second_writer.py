# SPDX-License-Identifier: Apache-2.0
"""Somebody writes allocations beside the schedulers, in a world at rest: an operator with a script.

Some servers are written again with equal amounts, and the allocations of others are removed.  The scheduler that has
placed such a server must tell each change once.  If the broker has delivered a request twice, both schedulers know the
server and tell it, so the operator leaves such servers alone.  After the check, what was removed is there again.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

from compute_agent.agent_settings import AgentSettings
from compute_agent.events import Tick
from shared_scheduler.core.change_kinds import CONFIRMED_AFTER_S, ChangeKind
from shared_scheduler.core.events import WriteCode
from shared_scheduler.sim.found_changes import FOUND
from shared_scheduler.sim.nodes import SimNode
from shared_scheduler.sim.workload import Server, ServerState

if TYPE_CHECKING:
    from shared_scheduler.sim.world import World

OPERATOR = "operator"
#: worlds that have one; it takes a minute of virtual time
PART_OF_WORLDS = 1 / 3
#: servers whose allocations are changed
CHANGED_MAX = 6
#: interval of the agents' reads of Placement from now on, and time after which each has read, published and told
READ_EVERY_S, READ_AFTER_S = 10.0, 25.0


class SecondWriter:
    """Changes the allocations of some servers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng: Random = world.rng("second writer")

    def write_and_check(self) -> None:
        """Let all agents read Placement often, write, and check what is told."""
        world = self._world
        world.placement.tells_generations = True
        for node in world.nodes.values():
            self._read_often(node)
        world.run(READ_AFTER_S)
        removed, rewritten = self._some()
        before, counted = Counter(world.found_changes.counts), world.counters[f"{FOUND}{ChangeKind.REMOVED}"]
        kept = {server.uuid: world.placement.consumers[server.uuid] for server in removed}
        changed = [*removed, *self._write(removed, rewritten)]
        world.run(READ_AFTER_S + CONFIRMED_AFTER_S)
        self._check(changed, before)
        counted = world.counters[f"{FOUND}{ChangeKind.REMOVED}"] - counted
        self._world.checkers.check("change_told", counted == len(kept), OPERATOR, counted, "removals of", *kept)
        for uuid, allocations in kept.items():
            world.placement.end_write(world.placement.begin_write(uuid, allocations, writer=OPERATOR))

    def _read_often(self, node: SimNode) -> None:
        if node.agent is not None:
            heartbeat_s = self._world.sizes.heartbeat_interval_s
            settings = AgentSettings(heartbeat_interval_s=heartbeat_s, placement_poll_s=READ_EVERY_S)
            node.agent.reconfigure(settings, node.clock.now)
            node.feed(Tick())

    def _some(self) -> tuple[list[Server], list[Server]]:
        """The servers to be removed, and those to be written again."""
        found = [server for server in self._world.living.values() if self._is_known(server)]
        some = self._rng.sample(found, min(len(found), CHANGED_MAX))
        return some[::2], some[1::2]

    def _is_known(self, server: Server) -> bool:
        """Whether it stays where one scheduler, which still runs, has placed it."""
        world = self._world
        names = {scheduler.name for scheduler in world.schedulers.values()}
        stands = world.placement.consumers.get(server.uuid, {})
        stays = server.state is ServerState.LIVES and [*stands] == [server.node]
        return stays and not server.twins and world.placement.writers[server.uuid].last in names

    def _write(self, removed: list[Server], rewritten: list[Server]) -> list[Server]:
        """Those that were written: Placement refuses what stands on a node that is overfull."""
        world = self._world
        for server in removed:
            world.found_changes.may_be_removed.add(server.uuid)
            world.placement.delete(server.uuid, OPERATOR)
        return [server for server in rewritten if self._write_again(server)]

    def _write_again(self, server: Server) -> bool:
        placement = self._world.placement
        stands = placement.standing(server.uuid)
        write = placement.begin_write(server.uuid, stands.allocations, stands.generation, OPERATOR)
        return placement.end_write(write)[0] is WriteCode.WRITTEN

    def _check(self, changed: list[Server], before: Counter[tuple[str, str]]) -> None:
        world = self._world
        told = world.found_changes.counts - before
        for server in changed:
            count = sum(number for (_, consumer), number in told.items() if consumer == server.uuid)
            world.checkers.check("change_told", count == 1, OPERATOR, server.uuid, "of", server.node, "told", count)
