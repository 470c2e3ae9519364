# SPDX-License-Identifier: Apache-2.0
"""The sending half of a link: one thread, one connection, one bounded outbox."""

from __future__ import annotations

import threading
import time

from kombu import Connection, Exchange, Producer

from shared_scheduler.transport import settings
from shared_scheduler.transport.confirms import Confirms
from shared_scheduler.transport.outbox import Outbox, Parcel
from shared_scheduler.transport.reconnect import Reconnector


class Sender:
    """Publishes what is in the outbox, some messages at once, all confirmed by the broker.

    What was not confirmed is sent again on the next connection, unless it is too old by then: to be
    told twice is harmless, and the order is kept.
    """

    def __init__(self, outbox: Outbox, reconnector: Reconnector, stopping: threading.Event) -> None:
        #: set when nothing more will be sent
        self.done = threading.Event()
        self._outbox = outbox
        self._reconnector = reconnector
        self._stopping = stopping
        self._exchanges: dict[str, Exchange] = {}
        self._unsent: list[Parcel] = []
        self._flush_until_s = 0.0

    def publishes_to(self, exchange: Exchange) -> None:
        """Parcels may name this exchange: it is declared before it is used."""
        self._exchanges[str(exchange.name)] = exchange

    def run(self) -> None:
        """Until stopping is set and the outbox is flushed; the body of the sending thread."""
        self._reconnector.run(self._serve, lambda: None)
        self.done.set()

    def _serve(self, connection: Connection) -> None:
        channel = connection.channel()
        producer, confirms = Producer(channel, auto_declare=False), Confirms(connection, channel)
        declared: set[str] = set()
        while not self._is_finished():
            if not self._unsent:
                self._unsent = self._outbox.take_some(settings.PUBLISH_MAX_MESSAGES, settings.IDLE_S)
            for parcel in self._unsent:
                if not self._outbox.is_too_old(parcel):
                    self._declare_once(connection, parcel.exchange, declared)
                    _publish(producer, parcel)
                    confirms.published()
            confirms.wait()
            self._unsent = []
            self._reconnector.keep_alive(connection)

    def _is_finished(self) -> bool:
        if not self._stopping.is_set():
            self._flush_until_s = time.monotonic() + settings.CLOSE_FLUSH_S
            return False
        nothing_left = not self._unsent and not len(self._outbox)
        return nothing_left or time.monotonic() >= self._flush_until_s

    def _declare_once(self, connection: Connection, name: str, declared: set[str]) -> None:
        """Publishing to an exchange that is not there would close the channel."""
        if name and name not in declared:
            with connection.channel() as declaring:
                self._exchanges[name](declaring).declare()
            declared.add(name)


def _publish(producer: Producer, parcel: Parcel) -> None:
    """One message.  The sender's address lets a receiver skip its own echo."""
    producer.publish(
        parcel.body,
        exchange=parcel.exchange,
        routing_key=parcel.routing_key,
        content_type="application/data",
        content_encoding="binary",
        delivery_mode=1,
        app_id=parcel.sender,
        retry=False,
        timeout=settings.CONFIRM_TIMEOUT_S,
    )
