# SPDX-License-Identifier: Apache-2.0
"""A broker with a high latency: messages must not wait for one round trip each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url
from tests.unit.transport.mailbox import Mailbox, eventually
from tools.laboratory.cloud.rabbitmq import PrivateRabbit
from tools.laboratory.fire.proxy import Mode, Proxy

SENT = 2_000


@pytest.fixture
def distance(shared_rabbit: PrivateRabbit) -> Iterator[Proxy]:
    proxy = Proxy(shared_rabbit.port, delay_s=0.1)
    yield proxy
    proxy.close()


def test_a_burst_to_a_distant_broker_is_not_one_round_trip_for_each_message(
    shared_rabbit: PrivateRabbit, distance: Proxy
) -> None:
    # given: a scheduler beside the broker, and an agent to whom each way takes 0.1 s
    scheduler = Mailbox(KombuBus(parse_transport_url(shared_rabbit.url), "far").scheduler_endpoint("near")).started()
    url = f"rabbit://guest:guest@127.0.0.1:{distance.port}/"
    agent = Mailbox(KombuBus(parse_transport_url(url), "far").agent_endpoint("far-1")).started()
    distance.set(Mode.DELAY)
    # when: it has much to say at once; one after the other that would take 400 s and most would be too old
    sent = [b"%d" % number for number in range(SENT)]
    for body in sent:
        assert agent.endpoint.broadcast(body)
    # then: all of it arrives, in order
    eventually(lambda: len(scheduler.bodies) >= SENT, "all received")
    assert scheduler.bodies == sent
    agent.endpoint.close()
    scheduler.endpoint.close()
