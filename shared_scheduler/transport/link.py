# SPDX-License-Identifier: Apache-2.0
"""A link to the broker: one thread that receives and one that sends, each with its own connection.

A link carries one endpoint, or all endpoints of simulated agents.  It uses threads of the standard library only, so
that the same code runs under eventlet.  Nothing is started before the first subscription is added, which is after any
fork.
"""

from __future__ import annotations

import random
import threading
import time

from shared_scheduler.transport import transport_settings
from shared_scheduler.transport.gathering import Gathering
from shared_scheduler.transport.outbox import Outbox
from shared_scheduler.transport.receiver import Receiver
from shared_scheduler.transport.reconnect import Reconnector
from shared_scheduler.transport.sender import Sender
from shared_scheduler.transport.subscription import Subscription
from shared_scheduler.transport.urls import BrokerUrl


class Link:
    """Two threads and two connections to one broker; it closes with its last subscription."""

    def __init__(
        self, url: BrokerUrl, name: str, rng: random.Random, rebind_s: float, gathering: Gathering | None = None
    ) -> None:
        """``rebind_s``: the mean interval at which bindings are declared again."""
        self.outbox = Outbox()
        self._name = name
        self._stopping = threading.Event()
        receives, sends = (Reconnector(url, name, what, self._stopping, rng) for what in ("receives", "sends"))
        self._receiver = Receiver(receives, self._stopping, rng, rebind_s, gathering)
        self._sender = Sender(self.outbox, sends, self._stopping)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def add(self, subscription: Subscription) -> None:
        """Begin to deliver to this subscription; the first one starts the threads."""
        with self._lock:
            if self._stopping.is_set():
                raise RuntimeError(f"the link of {self._name} was closed")
            for exchange in subscription.sends_to:
                self._sender.publishes_to(exchange)
            self._receiver.add(subscription)
            if not self._threads:
                self._start()

    def _start(self) -> None:
        for name, work in (("receive", self._receiver.run), ("send", self._sender.run)):
            thread = threading.Thread(target=work, name=f"{name} {self._name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def remove(self, subscription: Subscription) -> None:
        """Stop delivering to this subscription.  The last one closes the link after the outbox is flushed."""
        with self._lock:
            if self._receiver.remove(subscription) == 0 and not self._stopping.is_set():
                self._close()

    def _close(self) -> None:
        self._stopping.set()
        self.outbox.wake()
        self._sender.done.wait(transport_settings.CLOSE_FLUSH_S)
        end_s = time.monotonic() + transport_settings.CLOSE_FLUSH_S
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end_s - time.monotonic()))
