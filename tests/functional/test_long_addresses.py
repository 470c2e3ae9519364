# SPDX-License-Identifier: Apache-2.0
"""A message names a host whose address AMQP cannot carry.  Nothing can be sent there, and everything else still is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared_scheduler.protocol.messages import agent_address
from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url
from tests.unit.transport.mailbox import Mailbox
from tools.laboratory.cloud.rabbitmq import PrivateRabbit


@pytest.fixture(scope="module")
def rabbit() -> Iterator[PrivateRabbit]:
    with PrivateRabbit() as broker:
        yield broker


@pytest.mark.parametrize("host", ["h" * 255, "é" * 128], ids=["ascii", "unicode"])
def test_the_connection_stays(rabbit: PrivateRabbit, host: str) -> None:
    bus = KombuBus(parse_transport_url(rabbit.url), "cell1")
    scheduler, agent = Mailbox(bus.scheduler_endpoint("a")).started(), Mailbox(bus.agent_endpoint("cmp-1")).started()
    try:
        for number in range(20):
            scheduler.endpoint.cast(agent_address(host), b"resync")
            scheduler.endpoint.cast(agent.address, b"claim %d" % number)

        agent.hears(*(b"claim %d" % number for number in range(20)))
        assert scheduler.told == [True]
    finally:
        scheduler.endpoint.close()
        agent.endpoint.close()
