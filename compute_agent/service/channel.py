# SPDX-License-Identifier: Apache-2.0
"""The agent's end of the state channel: messages instead of bytes.

A body that is oversized, malformed or not signed as configured is dropped before anything of it is
used, counted by kind, and logged once per kind and interval; what is taken although it is not well
signed is logged once per sender.  The scheduler's end (``shared_scheduler/service/channel.py``) does
the same.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence

from shared_scheduler.protocol.codec import decode, encode
from shared_scheduler.protocol.errors import RemoteProtocolError, UnsendableMessage
from shared_scheduler.protocol.messages import Message
from shared_scheduler.protocol.signing import Signer
from shared_scheduler.transport.bus import ConnectionChanged, Endpoint
from shared_scheduler.transport.complaints import Complaints, sender_of

LOG = logging.getLogger(__name__)

#: Called with what arrived, oldest first, never empty, by one thread at a time.
Received = Callable[[Sequence[Message]], None]


class Channel:
    """Owns the endpoint; sends from one thread, receives in the endpoint's.

    ``counters``: ``rejected`` in all, one for each kind of rejected body (names of the errors of
    ``protocol/errors.py``), ``tolerated`` (taken although not well signed), ``unsendable``,
    ``outbox_full``.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        signer: Signer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.signer = signer or Signer()
        self.counters: Counter[str] = Counter()
        self._endpoint = endpoint
        self._complaints = Complaints(LOG, clock=clock)
        self._received: Received = lambda messages: None

    @property
    def address(self) -> str:
        """Where schedulers send what is for this agent."""
        return self._endpoint.address

    def start(self, received: Received, changed: ConnectionChanged) -> None:
        """Connect in the background."""
        self._received = received
        self._endpoint.start(self._receive, changed)

    def broadcast(self, message: Message) -> None:
        """Send to all schedulers.  Never blocks; what does not fit is dropped (a gap is seen)."""
        self._send(message, self._endpoint.broadcast)

    def cast(self, address: str, message: Message) -> None:
        """Send to one scheduler, in the same way."""
        self._send(message, lambda body: self._endpoint.cast(address, body))

    def close(self) -> None:
        """Flush and stop."""
        self._endpoint.close()

    def _send(self, message: Message, put: Callable[[bytes], bool]) -> None:
        try:
            body = self.signer.seal(encode(message))
        except UnsendableMessage as error:
            self._note(f"unsendable {type(message).__name__}", "unsendable", "", f"not sent: {error}")
            return
        if not put(body):
            self.counters["outbox_full"] += 1

    def _receive(self, bodies: Sequence[bytes]) -> None:
        messages = [message for body in bodies if (message := self._decoded(body)) is not None]
        if messages:
            self._received(messages)

    def _decoded(self, data: bytes) -> Message | None:
        before = self.signer.tolerated
        try:
            message = decode(self.signer.open(data))
        except RemoteProtocolError as error:
            self.counters["rejected"] += 1
            self._note(type(error).__name__, type(error).__name__, "", str(error))
            return None
        if self.signer.tolerated > before:
            what = "not well signed, taken because of signing = warn"
            self._note("tolerated", "tolerated", sender_of(message), what)
        return message

    def _note(self, about: str, counter: str, sender: str, what: str) -> None:
        self.counters[counter] += 1
        self._complaints.say(about, sender, self.counters[counter], what)
