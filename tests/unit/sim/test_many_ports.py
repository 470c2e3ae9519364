# SPDX-License-Identifier: Apache-2.0
"""A server with dozens of SR-IOV ports is claimed as any other one, and the checks see it if it is not."""

from __future__ import annotations

import pytest

from shared_scheduler.core.effects import Answer
from shared_scheduler.protocol import limits
from shared_scheduler.sim.computes import Size
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.topology import Board, ports_text
from shared_scheduler.sim.workload import FLAVORS, SentRequest, Workload
from shared_scheduler.sim.world import Sizes, World
from tests.unit.sim import planted
from tests.unit.sim.single_requests import ask_for

#: on one board of two cells
PORTS = 32
MANY = ports_text([(1, 2_048, 0)] * 2, PORTS)


def world_with_ports() -> World:
    size = Size(board=Board(devices_per_cell=PORTS // 2))
    sizes, nobody = Sizes(nodes=2, schedulers=1, size=size), Workload(rate_per_s=1e-9, lifetime_s=1e9)
    world = World(1, sizes, nobody, NetworkFaults())
    world.run(2.0)
    return world


def ask_for_ports(world: World) -> SentRequest:
    asked = ask_for(world, flavor=FLAVORS[1], topology=MANY)
    world.run(5.0)
    return asked


def broken(world: World) -> set[str]:
    return {violation.name for violation in world.checkers.violations}


def test_the_text_is_longer_than_a_leaf() -> None:
    assert limits.LEAF_TEXT_MAX_CHARS < len(MANY) < limits.TOPOLOGY_MAX_CHARS


def test_a_server_with_many_ports_takes_all_of_a_host() -> None:
    # given two hosts
    world = world_with_ports()
    # when two servers are asked for that need all ports of one, and then a third one
    first, second, third = (ask_for_ports(world) for _ in range(3))
    # then there is room for two
    assert isinstance(first.outcome, Answer) and isinstance(second.outcome, Answer)
    assert {first.servers[0].node, second.servers[0].node} == world.nodes.keys()
    assert not isinstance(third.outcome, Answer)
    assert broken(world) == set()


def test_a_claim_that_is_dropped_by_its_sender_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    # given the limit of before
    world = world_with_ports()
    planted.let_a_claim_hold_few_devices.patch(monkeypatch)
    # when
    ask_for_ports(world)
    # then no agent has heard of it
    assert world.network.counters["unsendable"] > 0
    assert world.network.counters["sent_claim"] == 0
    assert broken(world) == {"sendable"}


def test_a_request_that_fails_because_of_its_size_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with_ports()
    planted.refuse_servers_with_many_devices.patch(monkeypatch)
    ask_for_ports(world)
    assert broken(world) == {"well_asked"}
