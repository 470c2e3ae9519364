# SPDX-License-Identifier: Apache-2.0
"""A message names a host whose address AMQP cannot carry.  Nothing can be sent there, and everything else still is."""

from __future__ import annotations

import pytest

from shared_scheduler.protocol.codec import encode
from shared_scheduler.protocol.messages import Resync, agent_address
from shared_scheduler.transport.channel import Channel
from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url
from tests.unit.transport.mailbox import Mailbox, eventually
from tools.laboratory.cloud.rabbitmq import PrivateRabbit


@pytest.mark.parametrize("host", ["h" * 255, "é" * 128], ids=["ascii", "unicode"])
def test_the_connection_stays(shared_rabbit: PrivateRabbit, host: str) -> None:
    bus = KombuBus(parse_transport_url(shared_rabbit.url), "cell1")
    scheduler, agent = Channel(bus.scheduler_endpoint("a")), Mailbox(bus.agent_endpoint("cmp-1")).started()
    told: list[bool] = []
    scheduler.start(lambda messages: None, told.append)
    eventually(lambda: told == [True], "the scheduler connects")
    asked = [Resync("node-1", scheduler.address, 1, number) for number in range(20)]
    try:
        for each in asked:
            scheduler.cast(agent_address(host), each)
            scheduler.cast(agent.address, each)

        agent.hears(*map(encode, asked))
        assert told == [True]
    finally:
        scheduler.close()
        agent.endpoint.close()
