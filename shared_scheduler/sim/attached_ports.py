# SPDX-License-Identifier: Apache-2.0
"""Ports with QoS that somebody else attaches to a server while it moves, or detaches again.

Their bandwidth is that of a shared provider, which is in no node's tree.  Each change reads the consumer and writes it
with the generation that it read, as nova-compute does, until the move has ended.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from shared_scheduler.core.events import WriteCode
from shared_scheduler.model.resources import Inventory, same_allocations
from shared_scheduler.placement.consumer_conflicts import ConsumerAllocations
from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.sim.placement import Write
from shared_scheduler.sim.workload import Server, ServerState

if TYPE_CHECKING:
    from shared_scheduler.sim.world import World

#: the shared provider, its resource class, what it has, and what one port takes
PORTS = "ports"
BANDWIDTH = "NET_BW_EGR_KILOBIT_PER_SEC"
BANDWIDTH_ALL = 10**9
PORT = 1_000
#: changes of one server during one move, and mean times before each
CHANGES = (1, 1, 2, 4, 8)
PAUSES_S = (0.002, 0.02, 0.5)
#: part of the changes that detach the ports, where the server then still has something
DETACHES = 0.3
#: pause before a change that met another write, or no Placement, is made again
AGAIN_S = 0.1
WRITER = "nova-compute"


def without_ports(allocations: Allocations) -> Allocations:
    """What others than ``AttachedPorts`` have written."""
    return {name: amounts for name, amounts in allocations.items() if name != PORTS}


def only_ports(allocations: Allocations) -> Allocations:
    """What ``AttachedPorts`` has written."""
    return {name: amounts for name, amounts in allocations.items() if name == PORTS}


class AttachedPorts:
    """Attaches and detaches ports, and knows what that alone would have left."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ports: dict[str, Allocations] = {}

    def of(self, consumer: str) -> Allocations:
        """The allocations of the ports that a server has."""
        return self._ports.get(consumer, {})

    def change(self, server: Server, rng: Random) -> None:
        """Plan some changes of a server that begins to move."""
        if PORTS not in self._world.placement.providers:
            self._world.placement.add_provider(PORTS, PORTS, {BANDWIDTH: Inventory(BANDWIDTH_ALL)})
        self._next(server, rng, rng.choice(CHANGES), rng.choice(PAUSES_S))

    def check(self, consumer: str, where: str, part: Allocations | None = None) -> None:
        """Check that a consumer has its ports, and besides them only ``part`` (None: not checked)."""
        stands = self._world.placement.consumers.get(consumer, {})
        kept = same_allocations(only_ports(stands), self.of(consumer))
        once = part is None or same_allocations(without_ports(stands), part)
        self._world.checkers.check(
            "others_kept", kept and once, where, consumer, stands, "not", self.of(consumer), part
        )

    def _next(self, server: Server, rng: Random, left: int, pause_s: float) -> None:
        if left:
            self._world.agenda.work(rng.expovariate(1 / pause_s), self._begin, server, rng, left, pause_s)

    def _begin(self, server: Server, rng: Random, left: int, pause_s: float) -> None:
        world, consumer = self._world, server.uuid
        if server.state is not ServerState.MOVES:
            return
        standing = world.placement.standing(consumer)
        if world.scheduled_moves.is_evacuation(consumer) and not standing.allocations:
            return  # generations begin again, which the write of an evacuation would not notice
        wanted = self._wanted(standing, rng)
        write = world.placement.begin_write(consumer, wanted, standing.generation, WRITER)
        world.agenda.work(world.placement_delay_s() / 2, self._end, write, server, rng, left, pause_s)

    def _wanted(self, standing: ConsumerAllocations, rng: Random) -> Allocations:
        """Placement begins with the first generation again if all is removed, which a late write would not notice."""
        others, ports = without_ports(standing.allocations), only_ports(standing.allocations)
        if others and ports and rng.random() < DETACHES:
            return others
        return {**others, PORTS: {BANDWIDTH: ports.get(PORTS, {}).get(BANDWIDTH, 0) + PORT}}

    def _end(self, write: Write, server: Server, rng: Random, left: int, pause_s: float) -> None:
        world = self._world
        if not world.placement.up:
            world.placement.fail(write)
        elif world.placement.end_write(write)[0] is WriteCode.WRITTEN:
            self._ports[server.uuid] = only_ports(write.allocations)
            world.counters["ports_changed"] += 1
            world.trace.note(WRITER, f"{server.uuid} has the ports {self.of(server.uuid)}")
            self._next(server, rng, left - 1, pause_s)
            return
        world.agenda.work(AGAIN_S * rng.random(), self._begin, server, rng, left, pause_s)
