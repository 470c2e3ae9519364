# SPDX-License-Identifier: Apache-2.0
"""One end of a state channel, for agents and schedulers: sends and receives messages instead of bytes.

A body that is malformed, oversized or not signed as configured is dropped before any part of it is used, counted by
kind, and logged once for each kind within an interval.  A message that is accepted without a valid signature is counted
too, and logged once for each sender.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from shared_scheduler.protocol import codec
from shared_scheduler.protocol.errors import RemoteProtocolError, UnsendableMessage
from shared_scheduler.protocol.messages import (
    BuildResult,
    Claim,
    Heartbeat,
    Hello,
    Increment,
    Leave,
    Message,
    Release,
    Resync,
    Snapshot,
    Verdict,
    is_for_agents,
)
from shared_scheduler.protocol.signing import Signer
from shared_scheduler.transport.bus import ConnectionChanged, Endpoint
from shared_scheduler.transport.rate_limited_log import RateLimitedLog

LOG = logging.getLogger(__name__)

#: names of the counters of received messages
RECEIVED: Mapping[type[Message], str] = {
    kind: f"received_{kind.__name__.lower()}"
    for kind in (BuildResult, Heartbeat, Claim, Leave, Hello, Increment, Release, Resync, Snapshot, Verdict)
}

#: Called with the messages that arrived, oldest first, never empty, by one thread at a time.
ReceiveMessages = Callable[[Sequence[Message]], None]


class Channel:
    """Owns the endpoint.  Any thread may send; the endpoint's thread receives.

    ``name`` is for logs.  ``counters``: one for each kind of message that arrived (``RECEIVED``), ``messages_rejected``
    in total and one for each kind of rejected body (names of the errors of ``protocol/errors.py``), ``tolerated``
    (accepted without a valid signature), ``unsendable``, ``outbox_full``.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        signer: Signer | None = None,
        name: str = "State channel",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.counters: Counter[str] = Counter()
        self.connected = False
        self._clock = clock
        self._changed_at_s = clock()
        self._heard_at_s: float | None = None
        self._endpoint = endpoint
        self._signer = signer or Signer()
        self._log = RateLimitedLog(LOG, clock)
        self._received: ReceiveMessages = lambda messages: None
        self._changed: ConnectionChanged = lambda connected: None

    @property
    def address(self) -> str:
        """The destination of messages for this end of the channel."""
        return self._endpoint.address

    @property
    def in_state_s(self) -> float:
        """How long the channel has been connected, or not connected."""
        return self._clock() - self._changed_at_s

    @property
    def heard_ago_s(self) -> float | None:
        """Age of the last message that was accepted; None before the first one."""
        return None if self._heard_at_s is None else self._clock() - self._heard_at_s

    def start(self, received: ReceiveMessages, changed: ConnectionChanged) -> None:
        """Connect in the background, and begin to deliver.  Returns at once."""
        self._received, self._changed = received, changed
        self._endpoint.start(self._receive, self._connection_changed)

    def cast(self, address: str, message: Message) -> None:
        """Send to one endpoint.  Never blocks; a message that does not fit is dropped and counted."""
        self._send(message, lambda body: self._endpoint.cast(address, body))

    def broadcast(self, message: Message) -> None:
        """Send to all other schedulers, and to all agents if the message requires something of them."""
        self._send(message, self._endpoint.broadcast if is_for_agents(message) else self._endpoint.tell_schedulers)

    def close(self) -> None:
        """Flush and stop."""
        self._endpoint.close()

    def _send(self, message: Message, put: Callable[[bytes], bool]) -> None:
        try:
            body = self._signer.seal(codec.encode(message))
        except UnsendableMessage as error:
            self._count_and_log("unsendable", type(message).__name__, f"a message is not sent: {error}")
            return
        if not put(body):
            self.counters["outbox_full"] += 1

    def _receive(self, bodies: Sequence[bytes]) -> None:
        messages = [message for body in bodies if (message := self._decoded(body)) is not None]
        for message in messages:
            self.counters[RECEIVED[type(message)]] += 1
        if messages:
            self._heard_at_s = self._clock()
            self._received(messages)

    def _decoded(self, body: bytes) -> Message | None:
        tolerated = self._signer.tolerated
        try:
            message = codec.decode(self._signer.open(body))
        except RemoteProtocolError as error:
            self.counters["messages_rejected"] += 1
            self._count_and_log(type(error).__name__, "", f"a message is dropped: {error}")
            return None
        if self._signer.tolerated > tolerated:
            sender = sender_of(message)
            what = f"a message from {sender} has no valid signature; it is accepted because of signing = warn"
            self._count_and_log("tolerated", sender, what)
        return message

    def _connection_changed(self, connected: bool) -> None:
        if connected != self.connected:
            self._changed_at_s = self._clock()
        self.connected = connected
        LOG.info("%s is %s", self.name, "up" if connected else "down")
        self._changed(connected)

    def _count_and_log(self, counter: str, about: str, what: str) -> None:
        self.counters[counter] += 1
        number = self.counters[counter]
        line = "%s: %s (%d of this kind so far)"
        self._log.write(logging.WARNING, (counter, about), line, self.name, what, number)


def sender_of(message: Message) -> str:
    """The sender that a message names: an address or a node."""
    match message:
        case Hello(sender=sender):
            return sender
        case Claim(scheduler=scheduler) | Release(scheduler=scheduler) | Resync(scheduler=scheduler):
            return scheduler
        case _:
            return message.node
