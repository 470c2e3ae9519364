# SPDX-License-Identifier: Apache-2.0
"""How long an RPC server of oslo.messaging waits between two looks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import oslo_messaging as messaging
import pytest
from oslo_config import cfg
from oslo_messaging.conffixture import ConfFixture

from shared_scheduler.transport.rpc_waiting import listener_of, wait_longer
from shared_scheduler.transport.transport_settings import RPC_WAIT_S


@pytest.fixture
def conf() -> Iterator[cfg.ConfigOpts]:
    conf = cfg.ConfigOpts()
    conf([])
    with ConfFixture(conf):
        yield conf


class Endpoint:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.told = 0

    def tell(self, _context: object) -> int:
        self.told += 1
        return self.told


def started(conf: cfg.ConfigOpts, url: str) -> tuple[Any, Any]:
    """A transport, and an RPC server on it."""
    transport = messaging.get_rpc_transport(conf, url)
    server = messaging.get_rpc_server(transport, messaging.Target(topic="scheduler", server="one"), [Endpoint()])
    server.start()
    return transport, server


def test_each_wait_of_a_server_lasts_as_long_as_it_may(conf: cfg.ConfigOpts) -> None:
    # given an RPC server of oslo.messaging, on kombu's memory transport
    transport, server = started(conf, "kombu+memory:////")
    waits: list[float | None] = []
    connection = listener_of(server).conn
    consume = connection.consume

    def noted(timeout: float | None = None) -> None:
        waits.append(timeout)
        consume(timeout=timeout)

    connection.consume = noted

    # when it may wait longer, and serves calls
    wait_longer(server)
    waits.clear()
    client = messaging.get_rpc_client(transport, messaging.Target(topic="scheduler"), timeout=60)
    assert [client.call({}, "tell") for _ in range(3)] == [1, 2, 3]

    # then no wait was shorter, but perhaps one that had begun before
    server.stop()
    server.wait()
    assert set(waits[1:]) == {RPC_WAIT_S}
    transport.cleanup()


def test_a_driver_that_waits_in_another_way_is_left_alone(conf: cfg.ConfigOpts) -> None:
    transport, server = started(conf, "fake:/")
    assert listener_of(server) is None
    wait_longer(server)
    server.stop()
    server.wait()
    transport.cleanup()
