# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ 4 with the features disabled that RabbitMQ has deprecated."""

from __future__ import annotations

from collections.abc import Iterator

import amqp
import pytest

from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url
from tests.unit.transport.mailbox import Mailbox, eventually
from tools.laboratory.cloud.brokers import Programs, rabbitmq_4
from tools.laboratory.cloud.rabbitmq import PrivateRabbit
from tools.laboratory.errors import LabError

STARTS_MAX = 3
#: The first is refused by RabbitMQ 4.3 where nobody says otherwise.
NOTHING_DEPRECATED = """
deprecated_features.permit.transient_nonexcl_queues = false
deprecated_features.permit.global_qos = false
"""


@pytest.fixture(scope="module")
def rabbit() -> Iterator[PrivateRabbit]:
    with PrivateRabbit(Programs(rabbitmq_4()), NOTHING_DEPRECATED) as broker:
        yield broker


@pytest.fixture
def bus(rabbit: PrivateRabbit) -> KombuBus:
    return KombuBus(parse_transport_url(rabbit.url), "cell1")


@pytest.fixture
def scheduler(bus: KombuBus) -> Iterator[Mailbox]:
    box = Mailbox(bus.scheduler_endpoint("controller")).started()
    yield box
    box.endpoint.close()


@pytest.fixture
def agent(bus: KombuBus) -> Iterator[Mailbox]:
    box = Mailbox(bus.agent_endpoint("compute-1")).started()
    yield box
    box.endpoint.close()


def test_this_broker_is_a_fourth_and_refuses_what_is_deprecated(rabbit: PrivateRabbit) -> None:
    assert rabbit.ctl("version").startswith("4.")
    with (
        amqp.Connection(f"127.0.0.1:{rabbit.port}") as connection,
        pytest.raises(amqp.AMQPError, match="transient_nonexcl_queues"),
    ):
        connection.channel().queue_declare("transient", durable=False, auto_delete=False)


def test_the_broker_accepts_all_our_declarations(rabbit: PrivateRabbit, scheduler: Mailbox, agent: Mailbox) -> None:
    agent.endpoint.broadcast(b"increment")
    scheduler.hears(b"increment")
    scheduler.endpoint.broadcast(b"hello")
    scheduler.endpoint.cast(agent.address, b"claim")
    agent.hears(b"claim")
    agent.endpoint.cast(scheduler.address, b"verdict")
    scheduler.hears(b"verdict")
    assert set(rabbit.queues("exclusive").values()) == {"true"}


def start_as_systemd(rabbit: PrivateRabbit) -> None:
    """Start the broker, again if it ends, as its unit says.  Now and then a RabbitMQ 4 that was killed does not start,
    because it takes a disabled feature to be in use (``failed_to_deny_deprecated_features``)."""
    for left in reversed(range(STARTS_MAX)):
        try:
            return rabbit.start_broker()
        except LabError:
            if not left:
                raise


def test_the_broker_accepts_our_declarations_again_after_a_kill(
    rabbit: PrivateRabbit, scheduler: Mailbox, agent: Mailbox
) -> None:
    rabbit.kill_broker()
    start_as_systemd(rabbit)
    for box in (scheduler, agent):
        eventually(lambda told=box.told: told == [True, False, True], "it is back")  # type: ignore[misc]
    agent.endpoint.broadcast(b"increment")
    scheduler.hears(b"increment")
