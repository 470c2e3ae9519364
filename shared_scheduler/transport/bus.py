# SPDX-License-Identifier: Apache-2.0
"""The one interface to a state channel: three implementations, one behaviour.

A *bus* is the state channel of one cell.  On it, every scheduler and every agent has one *endpoint*
with an address that is unique on the bus.

=====================  =====================================================
an agent's broadcast   reaches every scheduler endpoint
a scheduler's          reaches every agent endpoint and every *other*
broadcast              scheduler endpoint
what schedulers are    reaches every *other* scheduler endpoint, whoever
told                   says it
a cast                 reaches the one endpoint with that address, or nobody
=====================  =====================================================

Nothing is promised beyond that: messages may be lost, doubled, delayed or reordered, and a
broadcast that nobody hears succeeds.  ``MessageWindow`` makes up for it.  Sending never blocks: each
endpoint has a bounded outbox and drops what does not fit (the receiver sees a gap).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from shared_scheduler.protocol.messages import agent_address

__all__ = ["Bus", "ConnectionChanged", "Endpoint", "Receive", "agent_address"]

#: The state channel of a message queue.  An agent knows its nova.conf and nothing of cell uuids, so all
#: have one name, and broker and virtual host tell them apart (Nova needs a virtual host a cell anyway).
CHANNEL_NAME = "nova"

#: Called with what arrived, oldest first, never empty, by one thread at a time.
Receive = Callable[[Sequence[bytes]], None]

#: Called with True when the endpoint is connected (again) and bound, with False when it lost the
#: broker.  What was sent or should have arrived in between may be lost.
ConnectionChanged = Callable[[bool], None]


class Endpoint(Protocol):
    """One participant of a bus."""

    @property
    def address(self) -> str:
        """Where casts to this endpoint go."""

    def start(self, receive: Receive, changed: ConnectionChanged) -> None:
        """Connect in the background and begin to deliver.  Returns at once."""

    def broadcast(self, body: bytes) -> bool:
        """Send to the other side; False when the outbox is full and the message was dropped."""

    def tell_schedulers(self, body: bytes) -> bool:
        """Send to all (other) schedulers and to no agent; False as for ``broadcast``."""

    def cast(self, address: str, body: bytes) -> bool:
        """Send to one endpoint; False when the outbox is full and the message was dropped."""

    def close(self) -> None:
        """Flush for a bounded time, then stop.  Idempotent; nothing is delivered afterwards."""


class Bus(Protocol):
    """A state channel.  Endpoints are created stopped."""

    def scheduler_endpoint(self, name: str) -> Endpoint:
        """An endpoint whose address is new each time (name, process and a random part)."""

    def agent_endpoint(self, host: str) -> Endpoint:
        """The endpoint of the agent beside the nova-compute service ``host``.

        Its address is ``agent_address(host)``, the same in each life of the agent.
        """
