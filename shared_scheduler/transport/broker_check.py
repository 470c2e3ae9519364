# SPDX-License-Identifier: Apache-2.0
"""Checks whether a broker accepts what a state channel does: declare, bind, publish, cast and read.

The check uses an exchange and a queue of its own, whose names match the same permissions (``PERMISSIONS``), so that no
scheduler or agent receives its messages.  Both are deleted at the end of the connection.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Any

from kombu import Connection, Exchange, Producer, Queue

from shared_scheduler.transport import transport_settings
from shared_scheduler.transport.kombu_bus import exchange_of, queue_of
from shared_scheduler.transport.urls import BrokerUrl

#: what a user needs in RabbitMQ, each for configure, write and read
PERMISSIONS = r"^ssched\..*", r"^(ssched\..*|amq\.default)$", r"^ssched\..*"
NAME = "upgrade-check"
QUEUE_MAX_MESSAGES = 10
QUEUE_MAX_BYTES = 4096


def broker_problems(url: BrokerUrl, rng: Random) -> dict[str, str]:
    """Broker -> what it does not accept; empty if all brokers of ``url`` accept everything."""
    found = dict[str, str]()
    for arguments in islice(url.connections(rng), max(1, len(url.hosts))):
        problem = _problem_of(arguments)
        if problem:
            found[f"{arguments.get('hostname')}:{arguments.get('port')}"] = problem
    return found


def _problem_of(arguments: dict[str, Any]) -> str:
    options = {"confirm_publish": True}
    connection = Connection(
        **arguments, connect_timeout=transport_settings.CONNECT_TIMEOUT_S, transport_options=options
    )
    exchange, queue = _own(uuid.uuid4().hex[:8])
    with connection:
        errors = (*connection.connection_errors, *connection.channel_errors, OSError)
        try:
            return next(_missing(connection, exchange, queue), "")
        except errors as error:
            return " ".join(str(error).split()) or type(error).__name__
        finally:
            with contextlib.suppress(*errors):  # an error has closed the first channel
                exchange(connection.channel()).delete()


def _missing(connection: Connection, exchange: Exchange, queue: Queue) -> Iterator[str]:
    """What was sent and did not arrive.

    :raises amqp.AMQPError: when the broker refuses an operation; its text names the permission
    """
    channel = connection.channel()
    exchange(channel).declare()
    own = queue(channel)
    own.declare()
    own.bind_to(exchange)
    producer = Producer(channel, auto_declare=False)
    for name, key in ((exchange.name, ""), ("", queue.name)):
        producer.publish(b"", exchange=name, routing_key=key, retry=False)
        if own.get(no_ack=True) is None:
            yield f"a message to {name or queue.name} was not delivered"


def _own(name: str) -> tuple[Exchange, Queue]:
    exchange = exchange_of("state", f"{NAME}.{name}")
    exchange.durable, exchange.auto_delete = False, True
    return exchange, queue_of(f"ssched.scheduler.{NAME}.{name}", QUEUE_MAX_MESSAGES, QUEUE_MAX_BYTES)
