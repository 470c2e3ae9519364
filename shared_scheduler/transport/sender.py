# SPDX-License-Identifier: Apache-2.0
"""The sending half of a link: one thread, one connection, one bounded outbox."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from kombu import Connection, Exchange

from shared_scheduler.transport import transport_settings
from shared_scheduler.transport.outbox import Outbox, Parcel
from shared_scheduler.transport.reconnect import Reconnector, read_one

LOG = logging.getLogger(__name__)


class Sender:
    """Publishes the messages of the outbox, several at once, all confirmed by the broker.

    Unconfirmed messages are sent again on the next connection, unless they are too old by then: a repeated message is
    harmless, and the order is kept.
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
        """Parcels may use this exchange: it is declared before it is used."""
        self._exchanges[str(exchange.name)] = exchange

    def run(self) -> None:
        """The body of the sending thread; returns when stopping is set and the outbox is flushed."""
        self._reconnector.run(self._serve, lambda: None)
        self.done.set()

    def _serve(self, connection: Connection) -> None:
        _read_in_waits_only(connection)
        channel = connection.channel()
        confirms, returns = Confirms(connection, channel), Returns(connection, channel)
        declared: set[str] = set()
        while not self._is_finished():
            if not self._unsent:
                most = transport_settings.PUBLISH_MAX_MESSAGES
                self._unsent = self._outbox.take_some(most, transport_settings.IDLE_S)
            for parcel in self._unsent:
                if not self._outbox.is_too_old(parcel):
                    self._declare_once(connection, parcel.exchange, declared)
                    _publish(channel, parcel, returns.expect(parcel))
                    confirms.published()
            confirms.wait()
            returns.none_follows()
            if not self._unsent:
                read_one(connection, 0.0)  # a heartbeat of the broker that nobody reads counts as missed
            self._unsent = []
            self._reconnector.keep_alive(connection)

    def _is_finished(self) -> bool:
        if not self._stopping.is_set():
            self._flush_until_s = time.monotonic() + transport_settings.CLOSE_FLUSH_S
            return False
        nothing_left = not self._unsent and not len(self._outbox)
        return nothing_left or time.monotonic() >= self._flush_until_s

    def _declare_once(self, connection: Connection, name: str, declared: set[str]) -> None:
        """Declare an exchange, because publishing to a missing exchange would close the channel."""
        if name and name not in declared:
            with connection.channel() as declaring:
                self._exchanges[name](declaring).declare()
            declared.add(name)


class Returns:
    """The mandatory messages that the broker has not confirmed yet.

    A message that no queue takes comes back before its confirmation, so none follows when all are confirmed.
    """

    def __init__(self, connection: Connection, channel: Any) -> None:
        self._number = 0
        self._expected: dict[str, Parcel] = {}  # by message id; at most ``PUBLISH_MAX_MESSAGES``
        if connection.transport.driver_type == "amqp":  # kombu's memory transport returns nothing
            channel.events["basic_return"].add(self._came_back)

    def expect(self, parcel: Parcel) -> str | None:
        """The message id of a mandatory message, None for one that need not be received."""
        if parcel.returned is None:
            return None
        self._number += 1
        self._expected[str(self._number)] = parcel
        return str(self._number)

    def none_follows(self) -> None:
        """All messages are confirmed."""
        self._expected.clear()

    def _came_back(self, _error: Exception, _exchange: str, _routing_key: str, message: Any) -> None:
        parcel = self._expected.pop(message.properties.get("message_id", ""), None)
        if parcel is None or parcel.returned is None:
            return
        try:
            parcel.returned()
        except Exception:  # an error of the endpoint's owner must not end the connection
            LOG.exception("%s failed while handling a message that came back", parcel.sender)


class Confirms:
    """The messages published on a channel that the broker has not confirmed yet.

    Many are under way at once, because a wait for each confirmation would send one message for each round trip.  A
    transport without confirmations (kombu's memory) has nothing to wait for.
    """

    def __init__(self, connection: Connection, channel: Any) -> None:
        self._connection = connection
        self._confirming = connection.transport.driver_type == "amqp"
        self._published = 0
        self._unconfirmed: set[int] = set()
        if self._confirming:
            channel.confirm_select()
            # a rejected message is lost like any other: its receiver sees a gap
            channel.events["basic_ack"].add(self._ended)
            channel.events["basic_nack"].add(self._ended)

    def __len__(self) -> int:
        return len(self._unconfirmed)

    def published(self) -> None:
        """Count one more unconfirmed message."""
        if self._confirming:
            self._published += 1
            self._unconfirmed.add(self._published)

    def _ended(self, tag: int, multiple: bool) -> None:
        if multiple:
            self._unconfirmed = {each for each in self._unconfirmed if each > tag}
        else:
            self._unconfirmed.discard(tag)

    def wait(self) -> None:
        """Wait until all are confirmed.

        :raises TimeoutError: when the broker takes longer than ``CONFIRM_TIMEOUT_S``
        """
        end_s = time.monotonic() + transport_settings.CONFIRM_TIMEOUT_S
        while self._unconfirmed:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"{len(self)} messages not confirmed")
            self._connection.drain_events(timeout=left_s)


def _read_in_waits_only(connection: Connection) -> None:
    """Do not let py-amqp look before each message whether the broker has blocked the connection.

    Nobody asks for that here, and ``Confirms.wait`` reads whatever the broker sends.
    """
    if connection.transport.driver_type == "amqp":
        capabilities = connection.connection.client_properties.get("capabilities", {})
        capabilities["connection.blocked"] = False


def _publish(channel: Any, parcel: Parcel, message_id: str | None) -> None:
    """Publish one message.  With the sender's address, a receiver can skip its own messages.

    ``kombu.Producer`` would do the same with declarations, encodings and retries around it, which take as long again.
    """
    returned = {} if message_id is None else {"message_id": message_id}
    properties = {"delivery_mode": 1, "app_id": parcel.sender} | returned
    message = channel.prepare_message(parcel.body, 0, "application/data", "binary", {}, properties)
    channel.basic_publish(
        message,
        exchange=parcel.exchange,
        routing_key=parcel.routing_key,
        mandatory=message_id is not None,
        timeout=transport_settings.CONFIRM_TIMEOUT_S,
    )
