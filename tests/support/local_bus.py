# SPDX-License-Identifier: Apache-2.0
"""A state channel inside one process that delivers at once: schedulers and agents side by side.

Messages go through one queue and are delivered by one thread at a time, in order, on the stack
of the sender.  An agent's ``broadcast`` and ``cast`` return when the message has been delivered, so
a thread that waits for the agent also waits for the schedulers.  A scheduler sends from inside its own
decision, and never waits: the thread that is delivering, if there is one, delivers its messages too.
So no thread that a scheduler's decision depends on ever waits for another scheduler.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence

from shared_scheduler.transport.bus import agent_address
from tests.support.in_process import FLIGHT_MAX_MESSAGES, InProcessEndpoint

LOG = logging.getLogger(__name__)


class LocalBus:
    """The state channel of all cells of this process."""

    def __init__(self) -> None:
        self._endpoints: dict[str, InProcessEndpoint] = {}
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._delivering = threading.RLock()
        self._made = 0

    def scheduler_endpoint(self, name: str) -> InProcessEndpoint:
        """An endpoint with an address of its own."""
        self._made += 1
        return InProcessEndpoint(self, f"ssched.scheduler.{name}.{self._made}", is_agent=False)

    def agent_endpoint(self, host: str) -> InProcessEndpoint:
        """The endpoint of the agent of ``host``; the one that started last has the address."""
        return InProcessEndpoint(self, agent_address(host), is_agent=True)

    def join(self, endpoint: InProcessEndpoint) -> None:
        """Begin to deliver to this endpoint."""
        self._endpoints = {**self._endpoints, endpoint.address: endpoint}

    def leave(self, endpoint: InProcessEndpoint) -> None:
        """Stop delivering to this endpoint."""
        self._endpoints = {address: one for address, one in self._endpoints.items() if one is not endpoint}

    def hearers(self, sender: InProcessEndpoint) -> list[str]:
        """The receivers of a broadcast of this endpoint."""
        agents = [] if sender.is_agent else [o.address for o in self._endpoints.values() if o.is_agent]
        return self.schedulers(sender) + agents

    def has(self, address: str) -> bool:
        """Whether an endpoint has this address."""
        return address in self._endpoints

    def schedulers(self, sender: InProcessEndpoint) -> list[str]:
        """All schedulers but this endpoint."""
        others = (other for other in self._endpoints.values() if other is not sender)
        return [other.address for other in others if not other.is_agent]

    def send(self, sender: InProcessEndpoint, addresses: Sequence[str], body: bytes) -> bool:
        """Deliver to each of these; False when too many messages wait."""
        if len(self._waiting) + len(addresses) > FLIGHT_MAX_MESSAGES:
            return False
        self._waiting.extend((address, body) for address in addresses)
        self._deliver(wait=sender.is_agent)
        return True

    def _deliver(self, wait: bool) -> None:
        """The delivering thread checks the queue again at the end, so no message is left in it."""
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
        except Exception:  # a bug of one receiver must not stop the delivery to others
            LOG.exception("A receiver of the local bus failed; its message is lost")
