# SPDX-License-Identifier: Apache-2.0
"""The state channel of one cell on RabbitMQ, by kombu.

=============================  =============================================================
``ssched.state.<channel>``     durable fanout exchange: agents publish to it, and schedulers publish
|                              messages for each other; schedulers listen
``ssched.agents.<channel>``    durable fanout exchange: schedulers publish, agents and other
                               schedulers listen
``ssched.scheduler.<...>``     a scheduler's queue, a new name after each start
``ssched.agent.<host>``        an agent's queue, always the same name: its address
the default exchange           casts, by queue name
=============================  =============================================================

``<channel>`` is ``CHANNEL_NAME`` in each cell (``bus.py``).

All queues are exclusive, named by this module (RabbitMQ 3.10 and 4.x both accept that), deleted with their connection,
and bounded, the oldest message dropped first: the receiver sees a gap.  The broker refuses a second agent for the same
host; this agent logs that once, and takes over when the first one has ended.

A queue ends with the connection of its owner, so the broker returns a cast to an agent that is not connected at once
(AMQP's ``mandatory``).

Messages are neither acknowledged nor persistent, because the state can be sent again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kombu import Exchange, Queue

from shared_scheduler.transport import transport_settings
from shared_scheduler.transport.bus import (
    NAME_MAX_CHARS,
    ConnectionChanged,
    Receive,
    agent_address,
    new_scheduler_address,
)
from shared_scheduler.transport.gathering import Gathering
from shared_scheduler.transport.link import Link
from shared_scheduler.transport.subscription import Subscription
from shared_scheduler.transport.urls import BrokerUrl


def exchange_of(kind: str, cell: str) -> Exchange:
    """The durable fanout exchange ``ssched.<kind>.<cell>``."""
    name = f"ssched.{kind}.{cell}"[:NAME_MAX_CHARS]
    return Exchange(name, type="fanout", durable=True, auto_delete=False, delivery_mode=1)


def queue_of(name: str, messages_max: int, bytes_max: int) -> Queue:
    """An exclusive, bounded queue; its bindings are created separately."""
    return Queue(
        name,
        exchange=None,
        durable=False,
        exclusive=True,
        auto_delete=True,
        queue_arguments={
            "x-max-length": messages_max,
            "x-max-length-bytes": bytes_max,
            "x-overflow": "drop-head",
        },
    )


@dataclass(slots=True)
class EndpointCounters:
    """Counters of one endpoint; ``dropped``: messages that did not fit into the outbox."""

    sent: int = 0
    dropped: int = 0
    received: int = 0


class KombuEndpoint:
    """One participant of a KombuBus; see ``bus.Endpoint`` for the contract."""

    def __init__(
        self,
        link_of: Callable[[], Link],
        queue: Queue,
        bound_to: tuple[Exchange, ...],
        sends_to: Exchange,
        schedulers: Exchange,
        gathering: Gathering | None = None,
    ) -> None:
        self._gathering = gathering
        self._link_of = link_of
        self._link: Link | None = None
        self._subscription: Subscription | None = None
        self._queue = queue
        self._bound_to = bound_to
        self._sends_to = sends_to
        self._schedulers = schedulers
        self.counters = EndpointCounters()

    @property
    def address(self) -> str:
        """The destination of casts to this endpoint."""
        return str(self._queue.name)

    @property
    def has_more(self) -> bool:
        """Whether further messages waited unread when the last ones were passed on."""
        return self._subscription is not None and self._subscription.has_more

    def start(self, receive: Receive, changed: ConnectionChanged) -> None:
        """Connect in the background; returns at once."""
        if self._link is not None:
            raise RuntimeError(f"endpoint {self.address} was started already")
        self._link = self._link_of()
        count = partial(self._count_and_receive, receive)
        sends_to = (self._sends_to, self._schedulers)
        self._subscription = Subscription(self.address, self._queue, self._bound_to, sends_to, count, changed)
        self._link.add(self._subscription)

    def _count_and_receive(self, receive: Receive, bodies: list[bytes]) -> None:
        self.counters.received += len(bodies)
        receive(bodies)

    def broadcast(self, body: bytes) -> bool:
        """Send to the other side."""
        return self._put(str(self._sends_to.name), "", body)

    def broadcast_to_schedulers(self, body: bytes) -> bool:
        """Send to all other schedulers."""
        return self._put(str(self._schedulers.name), "", body)

    def cast(self, address: str, body: bytes, returned: Callable[[], None] | None = None) -> bool:
        """Send to one endpoint, through the default exchange."""
        if self._gathering is not None:
            self._gathering.hurry()
        return self._put("", address, body, returned)

    def _put(self, exchange: str, routing_key: str, body: bytes, returned: Callable[[], None] | None = None) -> bool:
        if self._link is None:
            raise RuntimeError(f"endpoint {self.address} is not started")
        taken = self._link.outbox.put(exchange, routing_key, self.address, body, returned)
        if taken:
            self.counters.sent += 1
        else:
            self.counters.dropped += 1
        return taken

    def close(self) -> None:
        """Flush for a bounded time, then stop."""
        link, subscription = self._link, self._subscription
        self._subscription = None
        if link is not None and subscription is not None:
            link.remove(subscription)


class KombuBus:
    """The state channel of one cell.

    ``shared``: all endpoints of this bus share one link (two connections, two threads), for simulated agents; otherwise
    each endpoint has its own link.  ``queue_messages_max``: the number of messages that the broker stores for a
    scheduler that does not read.  ``rng`` selects the broker of a cluster that is tried first, and the waits between
    attempts.
    """

    def __init__(
        self,
        url: BrokerUrl,
        cell: str,
        shared: bool = False,
        queue_messages_max: int = transport_settings.SCHEDULER_QUEUE_MAX_MESSAGES,
        rng: random.Random | None = None,
    ) -> None:
        self._url = url
        self._rng = rng or random.Random()
        self._state = exchange_of("state", cell)
        self._agents = exchange_of("agents", cell)
        self._shared = Link(url, f"cell {cell}", self._rng, transport_settings.AGENT_REBIND_S) if shared else None
        self._queue_messages_max = queue_messages_max

    def scheduler_endpoint(self, name: str) -> KombuEndpoint:
        """An endpoint whose address is new each time."""
        address = new_scheduler_address(name)
        queue = queue_of(address, self._queue_messages_max, transport_settings.SCHEDULER_QUEUE_MAX_BYTES)
        bound_to, gathering = (self._state, self._agents), Gathering()
        link = self._link_for(address, transport_settings.SCHEDULER_REBIND_S, gathering)
        return KombuEndpoint(link, queue, bound_to, self._agents, self._state, gathering)

    def agent_endpoint(self, host: str) -> KombuEndpoint:
        """The endpoint of the agent beside the nova-compute service ``host``."""
        address = agent_address(host)
        queue = queue_of(address, transport_settings.AGENT_QUEUE_MAX_MESSAGES, transport_settings.AGENT_QUEUE_MAX_BYTES)
        link = self._link_for(address, transport_settings.AGENT_REBIND_S)
        return KombuEndpoint(link, queue, (self._agents,), self._state, self._state)

    def _link_for(self, address: str, rebind_s: float, gathering: Gathering | None = None) -> Callable[[], Link]:
        if self._shared is not None:
            shared = self._shared
            return lambda: shared
        return partial(Link, self._url, address, self._rng, rebind_s, gathering)
