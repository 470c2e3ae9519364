# SPDX-License-Identifier: Apache-2.0
"""One request for many servers on a real Placement: all of them, or nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from shared_scheduler.core.effects import Answer, Fail, FailureCode
from tests.functional.placement_driver import PlacementDriver, vcpus_for
from tests.unit.placement.real_placement import World

NODES = 8
#: 1,404, the largest batch of a large public cloud, is placed by the core alone and in the simulator; a Placement on
#: sqlite may not write so many in the time of a request
COUNT = 100


@pytest.fixture
def driver(world: World) -> Iterator[PlacementDriver]:
    one = PlacementDriver(world.transport)
    yield one
    one.stop()


def nodes_for(world: World, driver: PlacementDriver) -> list[str]:
    """Hosts with so much room that writes need no check afterwards, and go out in batches."""
    vcpus = 20 * COUNT // NODES
    nodes = [world.provider(vcpus=vcpus) for _ in range(NODES)]
    driver.knows(*nodes, vcpus=vcpus)
    return nodes


def test_a_burst_is_written_whole(world: World, driver: PlacementDriver) -> None:
    nodes, servers = nodes_for(world, driver), [str(uuid.uuid4()) for _ in range(COUNT)]

    answer = driver.select(vcpus_for(*servers, vcpus=1))

    assert isinstance(answer, Answer)
    assert sum(map(world.used, nodes)) == COUNT == len(answer.choices)


def test_a_burst_that_fails_in_the_middle_is_taken_back_whole(world: World, driver: PlacementDriver) -> None:
    # given a server in the middle that another writer has placed already
    nodes, theirs = nodes_for(world, driver), world.provider()
    servers = [str(uuid.uuid4()) for _ in range(COUNT)]
    world.take(servers[COUNT // 2], {theirs: {"VCPU": 1}})

    # when the request fails because of it
    fail = driver.select(vcpus_for(*servers, vcpus=1))
    driver.settled()

    # then nothing of the others stays, and what the other writer wrote does
    assert isinstance(fail, Fail) and fail.code is FailureCode.CONSUMER_CONFLICT
    assert [world.used(node) for node in nodes] == [0] * NODES
    assert world.used(theirs) == 1
    assert ("POST", "/allocations") in world.http.calls
