# SPDX-License-Identifier: Apache-2.0
"""A compute node that goes for good: its service is disabled, its servers are deleted, and then nothing of it is left.

Its agent says no farewell.  Messages that it has sent may still be on their way when the schedulers learn from the
database that the node is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared_scheduler.core import events as ev
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.sim.nodes import SimNode
from shared_scheduler.sim.workload import ServerState

if TYPE_CHECKING:
    from shared_scheduler.sim.world import World

#: nodes that a world keeps
NODES_MIN = 2
#: interval at which the operator checks whether the node is empty
CHECK_S = 0.5
#: reads of the database after that: the first shows that it is gone, the later ones what late messages have added
READS_S = (1.0, 10.0, 20.0)
#: where a server holds something of its node
PRESENT = (ServerState.BUILDING, ServerState.LIVES, ServerState.MOVES)


class Retirement:
    """Removes one node from the world."""

    def __init__(self, world: World, node: SimNode) -> None:
        self._world = world
        self._node = node

    def begin(self) -> None:
        """Disable the service, unless too few nodes would be left; then wait until the node is empty."""
        world, node = self._world, self._node
        if node.host in world.leaving or len(world.nodes) - len(world.leaving) <= NODES_MIN:
            return
        world.leaving.add(node.host)
        self._deliver(ev.ServicesRead(node.cell, (ServiceFacts(node.host, disabled=True),), False))
        self._check()

    def _check(self) -> None:
        world, node = self._world, self._node
        if not world.is_open:  # it stays, so that the world comes to rest
            world.leaving.discard(node.host)
            self._deliver(ev.ServicesRead(node.cell, (ServiceFacts(node.host),), False))
            return
        for server in [one for one in world.living.values() if one.node == node.node]:
            world.delete(server)
        if self._is_empty():
            self._remove()
        else:
            world.agenda.work(CHECK_S, self._check)

    def _is_empty(self) -> bool:
        world, node = self._world, self._node
        pending = node.agent is not None and node.agent.ledger.pending
        servers = any(one.node == node.node and one.state in PRESENT for one in world.owners().values())
        held = world.placement.consumers_of(node.node) or node.tracker.instances
        return not (pending or servers or held or node.has_work)

    def _remove(self) -> None:
        world, node = self._world, self._node
        world.trace.note("operator", f"removes {node.node}")
        world.counters["nodes_removed"] += 1
        node.kill_agent()
        node.gone = True
        del world.nodes[node.node], world.placement.providers[node.node]
        world.gone.add(node.node)
        for after_s in READS_S:
            world.agenda.after(after_s, self._read)

    def _read(self) -> None:
        """Each scheduler reads the compute nodes of the cell."""
        cell = self._node.cell
        hosts = {node.node: node.host for node in self._world.nodes.values() if node.cell == cell}
        for scheduler in [*self._world.schedulers.values()]:
            known = {one.node for one in scheduler.core.nodes if one.cell == cell}
            if gone := known & self._world.gone:
                scheduler.feed(ev.NodesGone(cell, frozenset(gone)))
            scheduler.feed(ev.NodesListed(cell, hosts, frozenset(), scheduler.clock.now))

    def _deliver(self, event: ev.Event) -> None:
        for scheduler in [*self._world.schedulers.values()]:
            scheduler.feed(event)
