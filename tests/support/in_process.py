# SPDX-License-Identifier: Apache-2.0
"""A participant of a bus inside one process; ``local_bus`` and ``memory_bus`` differ in how they deliver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from shared_scheduler.transport.bus import ConnectionChanged, Receive

#: The maximum number of messages inside a bus; the memory bus drops the oldest, the local one refuses more.
FLIGHT_MAX_MESSAGES = 200_000


class InProcessBus(Protocol):
    """The interface of a bus to its endpoints."""

    def join(self, endpoint: InProcessEndpoint) -> None: ...
    def leave(self, endpoint: InProcessEndpoint) -> None: ...
    def hearers(self, sender: InProcessEndpoint) -> list[str]: ...
    def schedulers(self, sender: InProcessEndpoint) -> list[str]: ...
    def has(self, address: str) -> bool: ...
    def send(self, sender: InProcessEndpoint, addresses: Sequence[str], body: bytes) -> bool: ...


class InProcessEndpoint:
    """See ``bus.Endpoint``."""

    has_more = False

    def __init__(self, bus: InProcessBus, address: str, is_agent: bool) -> None:
        self._bus = bus
        self._address = address
        self.is_agent = is_agent
        self.receive: Receive | None = None
        self.changed: ConnectionChanged | None = None

    @property
    def address(self) -> str:
        """The address for casts to this endpoint."""
        return self._address

    def start(self, receive: Receive, changed: ConnectionChanged) -> None:
        """Join the bus; ``changed(True)`` is called before this returns."""
        self.receive, self.changed = receive, changed
        self._bus.join(self)
        changed(True)

    def broadcast(self, body: bytes) -> bool:
        """Send to the other side, and to other schedulers if this is one."""
        return self._bus.send(self, self._bus.hearers(self), body)

    def broadcast_to_schedulers(self, body: bytes) -> bool:
        """Send to all other schedulers."""
        return self._bus.send(self, self._bus.schedulers(self), body)

    def cast(self, address: str, body: bytes, returned: Callable[[], None] | None = None) -> bool:
        """Send to one endpoint."""
        if returned is not None and not self._bus.has(address):
            returned()
        return self._bus.send(self, [address], body)

    def close(self) -> None:
        """Leave the bus.  Messages on their way to this endpoint are dropped."""
        self._bus.leave(self)
        self.receive = None
