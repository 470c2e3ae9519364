# SPDX-License-Identifier: Apache-2.0
"""The queues of all agents of a process on one connection.

Real agents have a connection each; ten thousand of those from one machine are not feasible. The queues, their
arguments and bindings are those of `shared_scheduler.transport.kombu_bus`, one for each host, so that the broker does
the same for a message; what is sent goes through one `KombuBus` endpoint.
"""

import queue
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import amqp

from shared_scheduler.protocol.addresses import agent_address
from shared_scheduler.transport import settings
from shared_scheduler.transport.bus import CHANNEL_NAME
from shared_scheduler.transport.kombu_bus import KombuBus, exchange_of
from shared_scheduler.transport.urls import parse_transport_url

OUTBOX_FULL_WAIT_S = 0.01
SEND_TIMEOUT_S = 30.0
"""How long a message may wait for room in the outbox: a fleet introduces itself in a burst no real agent makes."""

Inbox = queue.Queue[tuple[str, bytes]]


class Mailboxes:
    """Receives for every host into `inbox`, as (host, body); drops what does not fit there."""

    def __init__(self, url: str, hosts: Sequence[str], inbox: Inbox) -> None:
        self._url = parse_transport_url(url)
        self._hosts = hosts
        self._inbox = inbox
        self._sender = KombuBus(self._url, CHANNEL_NAME).agent_endpoint(f"of-{hosts[0]}-and-more")
        self._sender_is_up = threading.Event()

    def start(self) -> None:
        """Returns when every queue is there and the sender is connected."""
        channel = self._channel()
        for host in self._hosts:
            self._open(channel, host)
        channel.queue_declare(agent_address(self._hosts[-1]), passive=True)  # answered after all that came before
        threading.Thread(target=self._receive_for_ever, args=(channel.connection,), daemon=True).start()
        self._sender.start(lambda bodies: None, self._note_sender)
        if not self._sender_is_up.wait(SEND_TIMEOUT_S):
            raise RuntimeError(f"no connection to {self._url} within {SEND_TIMEOUT_S:.0f} s")

    def _note_sender(self, connected: bool) -> None:
        if connected:
            self._sender_is_up.set()

    def _channel(self) -> Any:
        broker = self._url.hosts[0]
        connection = amqp.Connection(
            host=f"{broker.name}:{broker.port}", userid=broker.user, password=broker.password,
            virtual_host=self._url.virtual_host, heartbeat=0,
        )  # fmt: skip
        connection.connect()
        channel = connection.channel()
        heard = exchange_of("agents", CHANNEL_NAME)
        channel.exchange_declare(heard.name, heard.type, durable=True, auto_delete=False)
        return channel

    def _open(self, channel: Any, host: str) -> None:
        """Declare, bind and consume one queue, without waiting for the broker's answers."""
        name = agent_address(host)
        arguments = {
            "x-max-length": settings.AGENT_QUEUE_MAX_MESSAGES, "x-max-length-bytes": settings.AGENT_QUEUE_MAX_BYTES,
            "x-overflow": "drop-head",
        }  # fmt: skip
        channel.queue_declare(name, exclusive=True, auto_delete=True, nowait=True, arguments=arguments)
        channel.queue_bind(name, exchange_of("agents", CHANNEL_NAME).name, nowait=True)
        channel.basic_consume(name, consumer_tag=name, no_ack=True, nowait=True, callback=partial(self._arrived, host))

    def _arrived(self, host: str, message: Any) -> None:
        try:
            self._inbox.put_nowait((host, bytes(message.body)))
        except queue.Full:
            pass  # the sender sees a lost message, as with a full queue on the broker

    def _receive_for_ever(self, connection: Any) -> None:
        while True:
            connection.drain_events()

    def broadcast(self, body: bytes) -> bool:
        """To every scheduler; waits for room in the outbox, False if none comes."""
        return self._send(partial(self._sender.broadcast, body))

    def cast(self, address: str, body: bytes) -> bool:
        """To one scheduler; as `broadcast`."""
        return self._send(partial(self._sender.cast, address, body))

    def _send(self, send: Any) -> bool:
        deadline = time.monotonic() + SEND_TIMEOUT_S
        while not send():
            if time.monotonic() > deadline:
                return False
            time.sleep(OUTBOX_FULL_WAIT_S)
        return True
