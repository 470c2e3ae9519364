# SPDX-License-Identifier: Apache-2.0
"""A request for many servers, while a real Placement is slow and nobody knows it yet."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from shared_scheduler.core.effects import Answer, Fail, FailureCode
from shared_scheduler.placement.connection import Reply, Transport
from tests.functional.placement_driver import WAIT_S, PlacementDriver, vcpus_for
from tests.functional.private_placement import PrivatePlacement
from tests.support.keystone_transport import transport_to

#: time of a call for each consumer that it writes
SLOW_S = 1.0
#: four writers need more than the time of a request for so many
TOO_MANY = int(5 * WAIT_S / SLOW_S)
NODES = 8


class Slow:
    """A way to Placement on which each write takes some time for each consumer."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None,
        request_id: str = "", timeout_s: float | None = 10.0,
    ) -> Reply:  # fmt: skip
        """See ``Transport``."""
        reply = self._transport.call(method, path, body, request_id, timeout_s)
        if method != "GET":
            time.sleep(SLOW_S * (len(body or ()) if method == "POST" else 1))
        return reply


@pytest.fixture(scope="module")
def placement() -> Iterator[PrivatePlacement]:
    with PrivatePlacement.running() as one:
        yield one


@pytest.fixture
def driver(placement: PrivatePlacement) -> Iterator[PlacementDriver]:
    one = PlacementDriver(Slow(transport_to(placement.layout.url("placement"))))
    yield one
    one.stop()


def nodes_for(placement: PrivatePlacement, driver: PlacementDriver) -> list[str]:
    """Hosts with so much room that writes need no check afterwards, and go out in batches."""
    vcpus = 20 * TOO_MANY // NODES
    nodes = [placement.provider(vcpus=vcpus) for _ in range(NODES)]
    driver.knows(*nodes, vcpus=vcpus)
    return nodes


def servers(count: int) -> list[str]:
    return [str(uuid.uuid4()) for _ in range(count)]


def test_a_burst_that_a_slow_placement_cannot_write_leaves_nothing_there(
    placement: PrivatePlacement, driver: PlacementDriver
) -> None:
    # given a Placement that takes a second for each server, and a scheduler that has written nothing yet
    nodes = nodes_for(placement, driver)

    # when more servers are asked for than it writes in the time of the request
    fail = driver.select(vcpus_for(*servers(TOO_MANY), vcpus=1))

    # then the request fails for this reason, and nothing of it stands when the caller is told
    assert isinstance(fail, Fail)
    assert fail.code is FailureCode.NO_TIME
    assert [placement.used(node) for node in nodes] == [0] * NODES

    # and few were written in vain
    assert driver.core.claims.begun < TOO_MANY / 5


def test_a_request_for_some_servers_is_written_by_a_slow_placement(
    placement: PrivatePlacement, driver: PlacementDriver
) -> None:
    nodes, count = nodes_for(placement, driver), 16
    answer = driver.select(vcpus_for(*servers(count), vcpus=1))
    assert isinstance(answer, Answer)
    assert sum(map(placement.used, nodes)) == count
