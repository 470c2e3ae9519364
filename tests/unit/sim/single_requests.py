# SPDX-License-Identifier: Apache-2.0
"""Requests that a test sends to one scheduler of a world, besides those that the world draws."""

from __future__ import annotations

from shared_scheduler.decision.request import Flavor
from shared_scheduler.sim.workload import FLAVORS, SentRequest, Server, make_request
from shared_scheduler.sim.world import World

#: above the numbers of the requests that a world draws
FIRST_NUMBER = 1_000_000


def ask_for(
    world: World,
    count: int = 1,
    scheduler: int = 0,
    patience_s: float = 20.0,
    flavor: Flavor = FLAVORS[0],
    topology: str = "",
) -> SentRequest:
    """One request for so many servers, which are small unless another flavor is named."""
    request = make_request(FIRST_NUMBER + len(world.users.asked), flavor, count, True, topology, 0)
    servers = tuple(Server(uuid, request.request_id, request.usage, topology) for uuid in request.instance_uuids)
    asked = SentRequest(request, world.schedulers[scheduler].name, world.now, world.now + patience_s, servers)
    world.users.servers.update({server.uuid: server for server in servers})
    world.users.asked[request.request_id] = asked
    world.schedulers[scheduler].ask(request, asked.deadline_s)
    return asked
