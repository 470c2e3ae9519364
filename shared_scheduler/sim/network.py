# SPDX-License-Identifier: Apache-2.0
"""A state channel with random faults from a seeded generator.

Every message is encoded and decoded again with the real codec: once for each receiver, so that no object is shared by
mistake, or once for all receivers of a broadcast, which is faster.  No receiver may change a message, so both ways give
the same trace.  (A Heartbeat or a Hello, which most deliveries are, has only immutable fields and is never decoded
twice.)

Delivery follows the table of ``transport/bus.py``.  A message that exceeds a limit of the protocol is dropped and
counted, and so is a body that the codec rejects, as the product's sender and receiver do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from shared_scheduler.protocol import codec
from shared_scheduler.protocol.errors import RemoteProtocolError, UnsendableMessage
from shared_scheduler.protocol.messages import (
    Heartbeat,
    Hello,
    Leave,
    Message,
    Release,
    Resync,
    is_for_agents,
    must_be_heard,
)
from shared_scheduler.sim.agenda import Agenda, Trace
from shared_scheduler.sim.later_release import as_newer, foreign_body

Receive = Callable[[Message], None]
Returned = Callable[[Message], None]
#: a sender, its message, and why it cannot be sent; empty: it can
Encoded = Callable[[str, Message, str], None]

#: name of the counter of each type of message
SENT = {layout.message: f"sent_{layout.message.__name__.lower()}" for layout in codec.LAYOUTS.values()}

#: the third byte of messages that consist of texts and numbers only
PLAIN = frozenset(
    bytes([number])
    for number, layout in codec.LAYOUTS.items()
    if layout.message in (Hello, Heartbeat, Leave, Release, Resync)
)
#: bodies whose messages are remembered while they are on their way to several receivers
REMEMBERED_MAX = 1_024


@dataclass(slots=True)
class NetworkFaults:
    """The faults of the network.  Parts are from 0 to 1, delays in seconds.

    ``late`` is the part of messages that is delayed by up to ``late_max_s`` more (reordering),
    ``garbled`` the part that arrives cut short.
    """

    loss: float = 0.0
    duplicates: float = 0.0
    garbled: float = 0.0
    late: float = 0.0
    late_max_s: float = 1.0
    delay_s: float = 0.001
    jitter_s: float = 0.002

    @property
    def latest_s(self) -> float:
        """The longest additional delay."""
        return self.late_max_s if self.late else 0.0


@dataclass(slots=True)
class _Endpoint:
    address: str
    receive: Receive
    newer: bool
    returned: Returned | None


class Network:
    """The state channel of one cell.  ``decode_each``: every receiver decodes for itself.  ``encoded`` is called with
    each message."""

    def __init__(
        self,
        agenda: Agenda,
        rng: Random,
        network_faults: NetworkFaults,
        trace: Trace,
        decode_each: bool = False,
        encoded: Encoded = lambda sender, message, problem: None,
    ) -> None:
        self.network_faults = network_faults
        self.up = True
        self.counters: Counter[str] = Counter()
        self._agenda = agenda
        self._rng = rng
        self._trace = trace
        self._tell_encoded = encoded
        self._decode_once = lru_cache(REMEMBERED_MAX)(codec.decode)
        self._decode_each = decode_each
        self._endpoints: dict[str, _Endpoint] = {}
        self._schedulers: dict[str, _Endpoint] = {}  # the schedulers among them, which receive most messages
        self._cut_from: Counter[str] = Counter()  # nothing that they send arrives
        self._cut_to: Counter[str] = Counter()  # nothing arrives at them

    # -- endpoints

    def join(
        self, address: str, scheduler: bool, receive: Receive, newer: bool = False, returned: Returned | None = None
    ) -> None:
        """Add an endpoint; it replaces an older one with the same address.

        ``newer``: it is of a later release and sends fields that others do not know (``later_release.py``).
        ``returned``: is called with its casts that the broker returns, because no endpoint has the address.
        """
        self._endpoints[address] = endpoint = _Endpoint(address, receive, newer, returned)
        if scheduler:
            self._schedulers[address] = endpoint

    def leave(self, address: str) -> None:
        """Remove an endpoint, with the messages that are on their way to it."""
        self._endpoints.pop(address, None)
        self._schedulers.pop(address, None)

    # -- cuts

    def cut(self, address: str, sending: bool = True, receiving: bool = True) -> None:
        """Cut an endpoint off, in one direction or both.  Cuts are counted; each must be healed."""
        self._cut_from[address] += sending
        self._cut_to[address] += receiving

    def heal(self, address: str, sending: bool = True, receiving: bool = True) -> None:
        """Heal one cut of an endpoint."""
        self._cut_from[address] -= sending
        self._cut_to[address] -= receiving

    # -- sending

    def broadcast(self, sender: str, message: Message) -> None:
        """An agent's broadcast reaches all schedulers; a scheduler's reaches the other schedulers, and all agents if it
        requires something of them."""
        if self._trace.detailed:
            self._trace.detail(sender, f"-> all {brief(message)}")
        if (body := self._encoded(sender, message)) is not None:
            self._send_all(sender, body, is_for_agents(message))

    def broadcast_unknown(self, sender: str) -> None:
        """Broadcast a message of a later release that no receiver understands."""
        self._send_all(sender, foreign_body(self._rng), True)

    def _send_all(self, sender: str, body: bytes, for_agents: bool) -> None:
        to_all = for_agents and sender in self._schedulers
        for address in self._endpoints if to_all else self._schedulers:
            if address != sender:
                self._send(sender, address, body)

    def cast(self, sender: str, address: str, message: Message) -> None:
        """Send to one endpoint; the message is lost if there is none with this address."""
        if self._trace.detailed:
            self._trace.detail(sender, f"-> {address} {brief(message)}")
        if (body := self._encoded(sender, message)) is None:
            return
        self._send(sender, address, body)
        if must_be_heard(message) and address not in self._endpoints and self.up and self._cut_from[sender] <= 0:
            self._agenda.after(self.network_faults.delay_s, self._return, sender, message)

    def _return(self, sender: str, message: Message) -> None:
        own = self._endpoints.get(sender)
        if own is None or own.returned is None or not self.up or self._cut_to[sender] > 0:
            return
        self.counters["returned"] += 1
        own.returned(message)

    def _encoded(self, sender: str, message: Message) -> bytes | None:
        """The body; None if the message cannot be sent."""
        try:
            body = codec.encode(message)
        except UnsendableMessage as error:
            self.counters["unsendable"] += 1
            self._tell_encoded(sender, message, str(error))
            return None
        self._tell_encoded(sender, message, "")
        own = self._endpoints.get(sender)
        if own is not None and own.newer:
            body = as_newer(body)
        self.counters[SENT[type(message)]] += 1
        self.counters["sent_bytes"] += len(body)
        return body

    def _send(self, sender: str, address: str, body: bytes) -> None:
        network_faults, rng = self.network_faults, self._rng
        self.counters["deliveries"] += 1
        cut = not self.up or self._cut_from[sender] > 0
        if cut or (network_faults.loss and rng.random() < network_faults.loss):
            self._lose(sender, f"what was sent to {address}")
            return
        if network_faults.garbled and rng.random() < network_faults.garbled:
            self.counters["garbled"] += 1
            body = body[: rng.randrange(len(body))]
        self._deliver_later(address, body)
        if network_faults.duplicates and rng.random() < network_faults.duplicates:
            self.counters["duplicated"] += 1
            self._deliver_later(address, body)

    def _deliver_later(self, address: str, body: bytes) -> None:
        network_faults, rng = self.network_faults, self._rng
        delay_s = network_faults.delay_s + network_faults.jitter_s * rng.random()
        if network_faults.late and rng.random() < network_faults.late:
            self.counters["delayed"] += 1
            delay_s += network_faults.late_max_s * rng.random()
        self._agenda.after(delay_s, self._deliver, address, body)

    def _deliver(self, address: str, body: bytes) -> None:
        endpoint = self._endpoints.get(address)
        if endpoint is None or not self.up or self._cut_to[address] > 0:
            self._lose(address, "what had come for it")
            return
        try:
            message = self._decoded(body)
        except RemoteProtocolError as error:
            self.counters[f"rejected_{type(error).__name__}"] += 1
            return
        if self._trace.detailed:
            self._trace.detail(address, f"<- {brief(message)}")
        endpoint.receive(message)

    def _decoded(self, body: bytes) -> Message:
        if self._decode_each and body[2:3] not in PLAIN:
            return codec.decode(body)
        return self._decode_once(body)

    def _lose(self, who: str, what: str) -> None:
        self.counters["lost"] += 1
        if self._trace.detailed:
            self._trace.detail(who, f"loses {what}")


def brief(message: Message) -> str:
    """A short description of a message for the trace."""
    names = ("node", "claim_id", "consumer", "epoch", "sequence", "after_sequence", "accepted", "want")
    told = (f"{name}={getattr(message, name)}" for name in names if hasattr(message, name))
    return " ".join([type(message).__name__, *told])
