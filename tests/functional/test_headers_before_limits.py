# SPDX-License-Identifier: Apache-2.0
"""Headers make the libraries unpack or decode a body before limits and signatures of ours are checked, or fail."""

from __future__ import annotations

import bz2
from collections.abc import Iterator, Mapping
from struct import pack
from typing import Any

import amqp
import kombu
import pytest
from amqp import spec

from shared_scheduler.transport.kombu_bus import KombuBus, exchange_of
from shared_scheduler.transport.urls import parse_transport_url
from tests.unit.transport.mailbox import Mailbox
from tools.laboratory.cloud.rabbitmq import PrivateRabbit

#: 50 bytes of 4 MB
BOMB = bz2.compress(bytes(4_000_000))
#: a lone surrogate, which no text can be encoded with
SURROGATE = b"+2AA-"
LAST = b"last"
#: levels of tables in tables, more than Python calls functions within one another
DEEP = 3000


def table(entry: bytes) -> bytes:
    """A table of AMQP with one entry, whose value is of this type and has these bytes."""
    return pack(">IB", 2 + len(entry), 1) + b"x" + entry


def deep_table() -> bytes:
    found = table(b"V")
    for _ in range(DEEP):
        found = table(b"F" + found)
    return found


#: flags and values of properties, as they are sent; the broker passes all of them on
PROPERTIES: Mapping[str, bytes] = {
    "a type that is no text": pack(">HB", 0x8000, 1) + b"\xff",
    "an encoding that is no text": pack(">HB", 0x4000, 1) + b"\xff",
    "a sender that is no text": pack(">HB", 0x0008, 1) + b"\xff",
    "a time after all years": pack(">H", 0x2000) + table(b"T" + b"\xff" * 8),
    "tables in tables": pack(">H", 0x2000) + deep_table(),
}


class Raw(amqp.Message):  # type: ignore[misc]
    """A message with the bytes of its properties."""

    def __init__(self, body: bytes, properties: bytes) -> None:
        super().__init__(body)
        self._raw = properties

    def _serialize_properties(self) -> bytes:
        return self._raw


@pytest.fixture
def agent(shared_rabbit: PrivateRabbit) -> Iterator[Mailbox]:
    box = Mailbox(KombuBus(parse_transport_url(shared_rabbit.url), "cell1").agent_endpoint("compute-1")).started()
    yield box
    box.endpoint.close()


def send(shared_rabbit: PrivateRabbit, address: str, body: bytes, **properties: Any) -> None:
    """As any user of the broker can."""
    given = {"content_type": "application/data", "content_encoding": "binary", **properties}
    with kombu.Connection(shared_rabbit.url.replace("rabbit://", "amqp://")) as connection:
        connection.Producer().publish(body, exchange="", routing_key=address, **given)


def test_bodies_arrive_as_they_were_sent_on_one_connection(shared_rabbit: PrivateRabbit, agent: Mailbox) -> None:
    send(shared_rabbit, agent.address, BOMB, headers={"compression": "application/x-bz2"})
    send(shared_rabbit, agent.address, b"unknown", headers={"compression": "application/x-no-such"})
    send(shared_rabbit, agent.address, SURROGATE, content_encoding="utf-7")
    send(shared_rabbit, agent.address, LAST)

    agent.hears(BOMB, b"unknown", SURROGATE, LAST)
    assert agent.told == [True]


@pytest.mark.parametrize("kind", PROPERTIES)
def test_properties_that_cannot_be_read_end_no_connection(
    shared_rabbit: PrivateRabbit, agent: Mailbox, kind: str
) -> None:
    with kombu.Connection(shared_rabbit.url.replace("rabbit://", "amqp://")) as connection:
        connection.channel().basic_publish(Raw(b"odd", PROPERTIES[kind]), exchange="", routing_key=agent.address)
        send(shared_rabbit, agent.address, LAST)

        agent.hears(b"odd", LAST)
    assert agent.told == [True]


def test_a_routing_key_that_is_no_text_ends_no_connection(shared_rabbit: PrivateRabbit, agent: Mailbox) -> None:
    """A message to an exchange may have any; it reaches all agents of the cell."""
    exchange = str(exchange_of("agents", "cell1").name).encode()
    arguments = pack(">HB", 0, len(exchange)) + exchange + pack(">B", 1) + b"\xff" + b"\0"
    with kombu.Connection(shared_rabbit.url.replace("rabbit://", "amqp://")) as connection:
        channel = connection.channel()
        channel.connection.frame_writer(1, channel.channel_id, spec.Basic.Publish, arguments, amqp.Message(b"odd"))
        send(shared_rabbit, agent.address, LAST)

        agent.hears(b"odd", LAST)
    assert agent.told == [True]
