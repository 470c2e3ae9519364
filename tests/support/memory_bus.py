# SPDX-License-Identifier: Apache-2.0
"""A state channel inside one process, with faults on demand.

It is deterministic: messages move only when ``deliver(now)`` is called, and one seed decides
which are lost, duplicated, delayed and reordered.  With ``start_thread``, it delivers by itself, on the
clock, from its own thread.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from random import Random

from shared_scheduler.transport import transport_settings
from shared_scheduler.transport.bus import agent_address
from tests.support.in_process import FLIGHT_MAX_MESSAGES, InProcessEndpoint

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of each message.  Probabilities are 0..1; delays are drawn uniformly.

    Without reordering, messages from one endpoint to another keep their order whatever their delay.
    A reordered message takes up to ``reorder_s`` longer and may be overtaken.
    """

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    delay_min_s: float = 0.0
    delay_max_s: float = 0.0
    reorder_s: float = 0.2


@dataclass(slots=True)
class BusCounters:
    """The outcomes of all messages, one count for each receiver of a broadcast."""

    sent: int = 0
    delivered: int = 0
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    undeliverable: int = 0
    overflowed: int = 0


@dataclass(order=True, slots=True)
class _Flight:
    due_s: float
    number: int
    receiver: str = field(compare=False)
    body: bytes = field(compare=False)


class MemoryBus:
    """The state channel of one cell, in this process.  See the top of this module."""

    def __init__(self, seed: int = 0, faults: Faults | None = None) -> None:
        self.faults = faults if faults is not None else Faults()
        self.counters = BusCounters()
        self._rng = Random(seed)
        self._now_s = 0.0
        self._endpoints: dict[str, InProcessEndpoint] = {}
        self._flights: list[_Flight] = []
        self._sent = 0
        self._made = 0
        self._newest_due_s: dict[tuple[str, str], float] = {}
        self._mute: set[str] = set()
        self._deaf: set[str] = set()
        self._away: set[str] = set()
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._clock: Callable[[], float] | None = None

    # --- endpoints ---------------------------------------------------------------------------

    def scheduler_endpoint(self, name: str) -> InProcessEndpoint:
        """An endpoint with an address of its own."""
        with self._lock:
            self._made += 1
            return InProcessEndpoint(self, f"ssched.scheduler.{name}.{self._made}", is_agent=False)

    def agent_endpoint(self, host: str) -> InProcessEndpoint:
        """The endpoint of the agent of ``host``; the one that started last has the address."""
        return InProcessEndpoint(self, agent_address(host), is_agent=True)

    def join(self, endpoint: InProcessEndpoint) -> None:
        """Begin to deliver to this endpoint."""
        with self._lock:
            self._endpoints[endpoint.address] = endpoint

    def leave(self, endpoint: InProcessEndpoint) -> None:
        """Stop delivering to this endpoint."""
        with self._lock:
            if self._endpoints.get(endpoint.address) is endpoint:
                del self._endpoints[endpoint.address]
                links = [link for link in self._newest_due_s if endpoint.address in link]
                for link in links:
                    del self._newest_due_s[link]

    # --- faults ------------------------------------------------------------------------------

    def cut(self, address: str, outgoing: bool = True, incoming: bool = True) -> None:
        """Silently drop the messages that this endpoint sends, those sent to it, or both."""
        with self._lock:
            if outgoing:
                self._mute.add(address)
            if incoming:
                self._deaf.add(address)

    def heal(self, address: str) -> None:
        """Undo ``cut``."""
        with self._lock:
            self._mute.discard(address)
            self._deaf.discard(address)

    def disconnect(self, address: str) -> None:
        """Simulate that this endpoint lost the broker: it is notified, and receives no messages."""
        with self._lock:
            self._away.add(address)
            endpoint = self._endpoints.get(address)
        if endpoint is not None and endpoint.changed is not None:
            endpoint.changed(False)

    def reconnect(self, address: str) -> None:
        """Undo ``disconnect``; the endpoint is notified."""
        with self._lock:
            self._away.discard(address)
            endpoint = self._endpoints.get(address)
        if endpoint is not None and endpoint.changed is not None:
            endpoint.changed(True)

    # --- sending -----------------------------------------------------------------------------

    def hearers(self, sender: InProcessEndpoint) -> list[str]:
        """The receivers of a broadcast of this endpoint."""
        with self._lock:
            agents = [] if sender.is_agent else [o.address for o in self._endpoints.values() if o.is_agent]
            return self.schedulers(sender) + agents

    def has(self, address: str) -> bool:
        """Whether an endpoint has this address."""
        return address in self._endpoints

    def schedulers(self, sender: InProcessEndpoint) -> list[str]:
        """All schedulers but this endpoint."""
        with self._lock:
            others = (other for other in self._endpoints.values() if other is not sender)
            return [other.address for other in others if not other.is_agent]

    def send(self, sender: InProcessEndpoint, addresses: Sequence[str], body: bytes) -> bool:
        """Send one message to each of these."""
        with self._lock:
            if self._clock is not None:
                self._now_s = self._clock()
            for receiver in addresses:
                self._put(sender.address, receiver, bytes(body))
            self._work.notify()
        return True

    def _put(self, sender: str, receiver: str, body: bytes) -> None:
        self.counters.sent += 1
        cut_off = sender in self._mute or sender in self._away or receiver in self._deaf
        if cut_off or self._chance(self.faults.loss):
            self.counters.lost += 1
            return
        self._fly(sender, receiver, body)
        if self._chance(self.faults.duplication):
            self.counters.doubled += 1
            self._fly(sender, receiver, body)

    def _fly(self, sender: str, receiver: str, body: bytes) -> None:
        if len(self._flights) >= FLIGHT_MAX_MESSAGES:
            heapq.heappop(self._flights)
            self.counters.overflowed += 1
        due_s = self._now_s + self._rng.uniform(self.faults.delay_min_s, self.faults.delay_max_s)
        if self._chance(self.faults.reordering):
            self.counters.reordered += 1
            due_s += self._rng.uniform(0.0, self.faults.reorder_s)
        else:
            due_s = max(due_s, self._newest_due_s.get((sender, receiver), due_s))
            self._newest_due_s[sender, receiver] = due_s
        self._sent += 1
        heapq.heappush(self._flights, _Flight(due_s, self._sent, receiver, body))

    def _chance(self, chance: float) -> bool:
        return chance > 0 and self._rng.random() < chance

    # --- delivering --------------------------------------------------------------------------

    def next_due_s(self) -> float | None:
        """When the next message arrives, None if none is on its way."""
        with self._lock:
            return self._flights[0].due_s if self._flights else None

    def deliver(self, now: float) -> int:
        """Deliver all messages that are due, including the answers to them; returns their number."""
        delivered = 0
        while due := self._take_due(now):
            for receiver, flights in groupby(due, key=lambda flight: flight.receiver):
                delivered += self._hand_over(receiver, [flight.body for flight in flights])
        return delivered

    def _take_due(self, now: float) -> list[_Flight]:
        with self._lock:
            self._now_s = max(self._now_s, now)
            due = []
            while self._flights and self._flights[0].due_s <= now:
                due.append(heapq.heappop(self._flights))
                if len(due) >= transport_settings.BATCH_MAX_MESSAGES:
                    break
            return due

    def _hand_over(self, receiver: str, bodies: list[bytes]) -> int:
        with self._lock:
            endpoint = self._endpoints.get(receiver)
            receive = endpoint.receive if endpoint is not None else None
            if receive is None or receiver in self._away:
                self.counters.undeliverable += len(bodies)
                return len(bodies)
            self.counters.delivered += len(bodies)
        receive(bodies)
        return len(bodies)

    # --- by itself ---------------------------------------------------------------------------

    def start_thread(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Deliver from an own thread from now on, on this clock."""
        with self._lock:
            if self._thread is not None:
                raise RuntimeError("this bus delivers by itself already")
            self._clock, self._stopping = clock, False
            self._now_s = clock()
            self._thread = threading.Thread(target=self._run, name="memory-bus", daemon=True)
            self._thread.start()

    def stop_thread(self) -> None:
        """Stop delivering.  Idempotent."""
        with self._lock:
            thread, self._thread, self._stopping = self._thread, None, True
            self._clock = None
            self._work.notify()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        clock = self._clock
        assert clock is not None
        while True:
            with self._lock:
                if self._stopping:
                    return
                due_s = self._flights[0].due_s if self._flights else None
                wait_s = transport_settings.IDLE_S if due_s is None else due_s - clock()
                if wait_s > 0:
                    self._work.wait(min(wait_s, transport_settings.IDLE_S))
            try:
                self.deliver(clock())
            except Exception:  # a bug of one receiver must not stop the delivery to others
                LOG.exception("A receiver of the memory bus failed; its messages are lost")
