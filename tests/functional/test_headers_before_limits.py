# SPDX-License-Identifier: Apache-2.0
"""Headers make the libraries unpack or decode a body before limits and signatures of ours are checked."""

from __future__ import annotations

import bz2
from collections.abc import Iterator
from typing import Any

import kombu
import pytest

from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url
from tests.unit.transport.mailbox import Mailbox
from tools.laboratory.cloud.rabbitmq import PrivateRabbit

#: 50 bytes of 4 MB
BOMB = bz2.compress(bytes(4_000_000))
#: a lone surrogate, which no text can be encoded with
SURROGATE = b"+2AA-"
LAST = b"last"


@pytest.fixture(scope="module")
def rabbit() -> Iterator[PrivateRabbit]:
    with PrivateRabbit() as broker:
        yield broker


@pytest.fixture
def agent(rabbit: PrivateRabbit) -> Iterator[Mailbox]:
    box = Mailbox(KombuBus(parse_transport_url(rabbit.url), "cell1").agent_endpoint("compute-1")).started()
    yield box
    box.endpoint.close()


def send(rabbit: PrivateRabbit, address: str, body: bytes, **properties: Any) -> None:
    """As any user of the broker can."""
    given = {"content_type": "application/data", "content_encoding": "binary", **properties}
    with kombu.Connection(rabbit.url.replace("rabbit://", "amqp://")) as connection:
        connection.Producer().publish(body, exchange="", routing_key=address, **given)


def test_bodies_arrive_as_they_were_sent_on_one_connection(rabbit: PrivateRabbit, agent: Mailbox) -> None:
    send(rabbit, agent.address, BOMB, headers={"compression": "application/x-bz2"})
    send(rabbit, agent.address, b"unknown", headers={"compression": "application/x-no-such"})
    send(rabbit, agent.address, SURROGATE, content_encoding="utf-7")
    send(rabbit, agent.address, LAST)

    agent.hears(BOMB, b"unknown", SURROGATE, LAST)
    assert agent.told == [True]
