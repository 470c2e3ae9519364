# SPDX-License-Identifier: Apache-2.0
"""A state channel inside one process that delivers at once: schedulers and agents side by side.

What is sent goes through one queue and is handed over by one thread at a time, in order, on the stack
of whoever sends.  An agent's ``broadcast`` and ``cast`` return when what it said has been delivered, so
that whoever waits for the agent knows that schedulers know.  A scheduler sends from inside its own
decision, and never waits: what it says is delivered by the thread that is delivering, if there is one.
So no thread that a scheduler's decision depends on ever waits for another scheduler.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence

from shared_scheduler.transport import settings
from shared_scheduler.transport.bus import ConnectionChanged, Receive, agent_address

LOG = logging.getLogger(__name__)


class LocalEndpoint:
    """One participant of a LocalBus."""

    def __init__(self, bus: LocalBus, address: str, is_agent: bool) -> None:
        self._bus = bus
        self._address = address
        self.is_agent = is_agent
        self.receive: Receive | None = None

    @property
    def address(self) -> str:
        """Where casts to this endpoint go."""
        return self._address

    def start(self, receive: Receive, changed: ConnectionChanged) -> None:
        """Join the bus; ``changed(True)`` is called before this returns."""
        self.receive = receive
        self._bus.join(self)
        changed(True)

    def broadcast(self, body: bytes) -> bool:
        """Send to the other side, and to other schedulers if this is one."""
        return self._bus.send(self, self._bus.hearers(self), body)

    def tell_schedulers(self, body: bytes) -> bool:
        """Send to all other schedulers."""
        return self._bus.send(self, self._bus.schedulers(self), body)

    def cast(self, address: str, body: bytes) -> bool:
        """Send to one endpoint."""
        return self._bus.send(self, [address], body)

    def close(self) -> None:
        """Leave the bus.  What is on its way to here is dropped."""
        self._bus.leave(self)
        self.receive = None


class LocalBus:
    """The state channel of all cells of this process."""

    def __init__(self) -> None:
        self._endpoints: dict[str, LocalEndpoint] = {}
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._delivering = threading.RLock()
        self._made = 0

    def scheduler_endpoint(self, name: str) -> LocalEndpoint:
        """An endpoint with an address of its own."""
        self._made += 1
        return LocalEndpoint(self, f"ssched.scheduler.{name}.{self._made}", is_agent=False)

    def agent_endpoint(self, host: str) -> LocalEndpoint:
        """The endpoint of the agent of ``host``; the newest one that started has the address."""
        return LocalEndpoint(self, agent_address(host), is_agent=True)

    def join(self, endpoint: LocalEndpoint) -> None:
        """Begin to deliver to this endpoint."""
        self._endpoints = {**self._endpoints, endpoint.address: endpoint}

    def leave(self, endpoint: LocalEndpoint) -> None:
        """Stop delivering to this endpoint."""
        self._endpoints = {
            address: one for address, one in self._endpoints.items() if one is not endpoint
        }

    def hearers(self, sender: LocalEndpoint) -> list[str]:
        """Whom a broadcast of this endpoint reaches."""
        agents = [] if sender.is_agent else [o.address for o in self._endpoints.values() if o.is_agent]
        return self.schedulers(sender) + agents

    def schedulers(self, sender: LocalEndpoint) -> list[str]:
        """All schedulers but this endpoint."""
        others = (other for other in self._endpoints.values() if other is not sender)
        return [other.address for other in others if not other.is_agent]

    def send(self, sender: LocalEndpoint, addresses: Sequence[str], body: bytes) -> bool:
        """Deliver to each of these; False when too much waits."""
        if len(self._waiting) + len(addresses) > settings.MEMORY_FLIGHT_MAX_MESSAGES:
            return False
        self._waiting.extend((address, body) for address in addresses)
        self._deliver(wait=sender.is_agent)
        return True

    def _deliver(self, wait: bool) -> None:
        """Whoever delivers looks once more when he is done, so nothing that waits is left behind."""
        while self._waiting and self._delivering.acquire(blocking=wait):
            try:
                while self._waiting:
                    self._hand_over(*self._waiting.popleft())
            finally:
                self._delivering.release()

    def _hand_over(self, address: str, body: bytes) -> None:
        endpoint = self._endpoints.get(address)
        receive = endpoint.receive if endpoint is not None else None
        if receive is None:
            return
        try:
            receive([body])
        except Exception:  # the receiver's bug must not silence everybody else
            LOG.exception("A receiver of the local bus failed; its message is lost")
