# SPDX-License-Identifier: Apache-2.0
"""The receiving half of a link: one thread and one connection for all subscriptions."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from amqp.exceptions import ResourceLocked
from kombu import Connection, Consumer, Exchange

from shared_scheduler.transport import transport_settings
from shared_scheduler.transport.gathering import Gathering
from shared_scheduler.transport.reconnect import Reconnector, read_one
from shared_scheduler.transport.subscription import Subscription

LOG = logging.getLogger(__name__)


class Receiver:
    """Declares, binds and reads for all subscriptions; passes on batches, one subscription after the other.

    Everything is declared again after each reconnect, and bound again periodically, so that an exchange or binding that
    an administrator deleted is created again.  Other threads only call ``add`` and ``remove``.
    """

    def __init__(
        self,
        reconnector: Reconnector,
        stopping: threading.Event,
        rng: random.Random,
        rebind_s: float,
        gathering: Gathering | None = None,
    ) -> None:
        """``rebind_s``: the mean interval at which bindings are declared again.  ``gathering``: lets messages gather
        before they are read; None: they are read at once."""
        self._rebind_s = rebind_s
        self._gathering = gathering
        self._reconnector = reconnector
        self._stopping = stopping
        self._rng = rng
        self._lock = threading.Lock()
        self._subscriptions: list[Subscription] = []
        self._waiting: list[Subscription] = []  # whose queue is not declared yet
        self._leaving: list[Subscription] = []
        self._ready: list[Subscription] = []  # with messages in the inbox
        self._declared: set[str] = set()  # on this connection

    def add(self, subscription: Subscription) -> None:
        """Begin to deliver to this subscription."""
        with self._lock:
            self._subscriptions.append(subscription)
            self._waiting.append(subscription)

    def remove(self, subscription: Subscription) -> int:
        """Stop delivering to this subscription; returns how many are left."""
        with self._lock:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
                self._leaving.append(subscription)
            if subscription in self._waiting:
                self._waiting.remove(subscription)
            return len(self._subscriptions)

    def run(self) -> None:
        """The body of the receiving thread; returns when stopping is set."""
        self._reconnector.run(self._serve, self._tell_all_lost)

    def _serve(self, connection: Connection) -> None:
        self._declared.clear()
        channel = connection.channel()
        rebind_at_s = self._next_rebind_s()
        has_more = False
        while not self._stopping.is_set():
            self._let_go()
            self._subscribe_some(connection, channel)
            if self._gathering is not None and not has_more:
                self._gathering.wait()
            has_more = self._read_batch(connection)
            self._hand_over(has_more)
            self._reconnector.keep_alive(connection)
            if time.monotonic() >= rebind_at_s:
                rebind_at_s = self._next_rebind_s()
                self._bind_all_again(connection)

    def _next_rebind_s(self) -> float:
        return time.monotonic() + self._rebind_s * self._rng.uniform(0.5, 1.5)

    # --- reading -----------------------------------------------------------------------------

    def _read_batch(self, connection: Connection) -> bool:
        """Wait for a message, then read the further ones that are there, within bounds of number and time.

        Returns whether more may be there.
        """
        if not read_one(connection, transport_settings.IDLE_S if not self._ready else 0.0):
            return False
        end_s = time.monotonic() + transport_settings.BATCH_MAX_S
        for _ in range(transport_settings.BATCH_MAX_MESSAGES - 1):
            if time.monotonic() >= end_s:
                return True
            if not read_one(connection, 0.0):
                return False
        return True

    def _hand_over(self, has_more: bool) -> None:
        ready, self._ready = self._ready, []
        for subscription in ready:
            bodies, subscription.inbox = subscription.inbox, []
            subscription.has_more = has_more
            try:
                subscription.receive(bodies)
            except Exception:  # an error of the receiver must not end the connection
                LOG.exception("%s failed on %d messages", subscription.address, len(bodies))

    def _reader(self, subscription: Subscription) -> Callable[[Any], None]:
        """Returns a function that collects messages, except those that this subscription has sent itself."""

        def read(message: Any) -> None:
            if message.properties.get("app_id") == subscription.address:
                return
            if not subscription.inbox:
                self._ready.append(subscription)
            body = message.body
            subscription.inbox.append(body.encode() if isinstance(body, str) else bytes(body))

        return read

    # --- subscriptions -------------------------------------------------------------------------------

    def _subscribe_some(self, connection: Connection, channel: Any) -> None:
        """Subscribe a few at a time, so that the others continue to read."""
        now_s = time.monotonic()
        with self._lock:
            due = [subscription for subscription in self._waiting if subscription.retry_at_s <= now_s]
            due = due[: transport_settings.SUBSCRIPTIONS_PER_READ]
        for subscription in due:
            if self._subscribe(connection, channel, subscription):
                with self._lock:
                    if subscription in self._waiting:
                        self._waiting.remove(subscription)

    def _subscribe(self, connection: Connection, channel: Any, subscription: Subscription) -> bool:
        """Declare, bind and consume.  Uses its own channel, because a refusal closes the channel."""
        try:
            with connection.channel() as declaring:
                for exchange in subscription.exchanges:
                    self._declare(declaring, exchange)
                subscription.queue(declaring).queue_declare()
                _bind(declaring, subscription)
        except ResourceLocked:
            self._note_refusal(subscription)
            return False
        subscription.refused = False
        reader = self._reader(subscription)
        subscription.consumer = Consumer(
            channel, [subscription.queue], no_ack=True, auto_declare=False, on_message=reader
        )
        subscription.consumer.consume()
        self._report_connection(subscription, True)
        return True

    def _declare(self, channel: Any, exchange: Exchange) -> None:
        if exchange.name not in self._declared:
            exchange(channel).declare()
            self._declared.add(exchange.name)

    def _note_refusal(self, subscription: Subscription) -> None:
        subscription.retry_at_s = time.monotonic() + transport_settings.REFUSED_BACKOFF.wait_s(self._rng)
        if not subscription.refused:
            subscription.refused = True
            LOG.error(
                "%s is held by another connection to the message queue; waiting until that connection ends. "
                "If two processes serve this host, stop one of them (the broker ends a connection that was cut off "
                "within a minute or two)",
                subscription.address,
            )

    def _let_go(self) -> None:
        with self._lock:
            leaving, self._leaving = self._leaving, []
        for subscription in leaving:
            if subscription.consumer is not None:
                subscription.consumer.cancel()  # the queue is deleted with its last consumer
            subscription.inbox.clear()
        self._ready = [subscription for subscription in self._ready if subscription.inbox]

    def _bind_all_again(self, connection: Connection) -> None:
        self._declared.clear()
        with self._lock:
            connected = [subscription for subscription in self._subscriptions if subscription.consumer is not None]
        with connection.channel() as declaring:
            for subscription in connected:
                for exchange in subscription.exchanges:
                    self._declare(declaring, exchange)
                _bind(declaring, subscription)

    def _tell_all_lost(self) -> None:
        self._hand_over(has_more=False)
        with self._lock:
            subscriptions = list(self._subscriptions)
            self._waiting = list(self._subscriptions)
        for subscription in subscriptions:
            subscription.consumer = None
            if subscription.connected:
                self._report_connection(subscription, False)

    def _report_connection(self, subscription: Subscription, connected: bool) -> None:
        subscription.connected = connected
        try:
            subscription.changed(connected)
        except Exception:  # an error of the receiver must not end the connection
            LOG.exception("%s failed while handling connected=%s", subscription.address, connected)


def _bind(channel: Any, subscription: Subscription) -> None:
    queue = subscription.queue(channel)
    for exchange in subscription.bound_to:
        queue.bind_to(exchange)
