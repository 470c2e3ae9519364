# SPDX-License-Identifier: Apache-2.0
"""The interface to a state channel; all implementations behave alike.

A *bus* is the state channel of one cell.  Each scheduler and each agent has one *endpoint* on it, whose address is
unique on the bus.

=============================  ====================================================================
an agent's broadcast           reaches every scheduler endpoint
a scheduler's broadcast        reaches every agent endpoint and every *other* scheduler endpoint
``broadcast_to_schedulers``            reaches every *other* scheduler endpoint, and no agent endpoint
a cast                         reaches the one endpoint with that address, if it exists; if not, the
|                              sender is told, if it asked for that and the broker notices it
=============================  ====================================================================

There are no other guarantees: messages may be lost, repeated, delayed or reordered, and a broadcast without receivers
succeeds.  ``MessageWindow`` corrects these errors.  Sending never blocks: each endpoint has a bounded outbox and drops
messages that do not fit (the receiver sees a gap).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

from shared_scheduler.protocol.messages import agent_address

__all__ = [
    "Bus",
    "ConnectionChanged",
    "Endpoint",
    "Receive",
    "agent_address",
    "lasting_name",
    "new_scheduler_address",
]

#: The name of the state channel of a message queue.  An agent knows its nova.conf but no cell uuids, so all channels
#: have one name, and broker and virtual host separate them (Nova needs one virtual host for each cell in any case).
CHANNEL_NAME = "nova"

#: The addresses of schedulers begin with this.
SCHEDULERS = "ssched.scheduler."
#: Longest part of a name in an address; the rest of it has some 40 characters.
NAME_MAX_CHARS = 200

#: Called with the messages that arrived, oldest first, never empty, by one thread at a time.
Receive = Callable[[Sequence[bytes]], None]

#: Called with True when the endpoint is connected (again) and bound, with False when it lost the broker.  Messages sent
#: or received in between may be lost.
ConnectionChanged = Callable[[bool], None]


class Endpoint(Protocol):
    """One participant of a bus."""

    @property
    def address(self) -> str:
        """The destination of casts to this endpoint."""

    @property
    def has_more(self) -> bool:
        """Whether further messages waited unread when the last ones were passed to ``receive``."""

    def start(self, receive: Receive, changed: ConnectionChanged) -> None:
        """Connect in the background and begin to deliver.  Returns at once."""

    def broadcast(self, body: bytes) -> bool:
        """Send to the other side; False when the outbox is full and the message was dropped."""

    def broadcast_to_schedulers(self, body: bytes) -> bool:
        """Send to all (other) schedulers and to no agent; False as for ``broadcast``."""

    def cast(self, address: str, body: bytes, returned: Callable[[], None] | None = None) -> bool:
        """Send to one endpoint; False when the outbox is full and the message was dropped.

        ``returned`` is called by another thread if there is no endpoint with this address.
        """

    def close(self) -> None:
        """Flush for a bounded time, then stop.  Idempotent; nothing is delivered afterwards."""


class Bus(Protocol):
    """A state channel.  Endpoints are created stopped."""

    def scheduler_endpoint(self, name: str) -> Endpoint:
        """An endpoint with a new address each time (name, process and a random part)."""

    def agent_endpoint(self, host: str) -> Endpoint:
        """The endpoint of the agent beside the nova-compute service ``host``.

        Its address is ``agent_address(host)``, which is the same after each start of the agent.
        """


def new_scheduler_address(name: str) -> str:
    """An address that no other process has: name, process and a random part."""
    return f"{SCHEDULERS}{name[:NAME_MAX_CHARS]}.{os.getpid()}.{uuid.uuid4().hex[:8]}"


def lasting_name(address: str) -> str:
    """The part of a scheduler's address that is the same after each start; all of it if it is no such address."""
    return address.rsplit(".", 2)[0] if address.startswith(SCHEDULERS) else address
