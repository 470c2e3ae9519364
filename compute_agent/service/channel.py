# SPDX-License-Identifier: Apache-2.0
"""The agent's end of the state channel: messages instead of bytes.

A body that is oversized, malformed or not signed as configured is dropped before anything of it is
used, counted by kind, and logged once per kind and interval.  The scheduler's end
(``shared_scheduler/service/channel.py``) does the same.
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

LOG = logging.getLogger(__name__)

#: One line in the log for each kind of trouble within this time.
LOG_INTERVAL_S = 60.0

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
        self._clock = clock
        self._received: Received = lambda messages: None
        self._logged_at_s: dict[str, float] = {}

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
            self._note(f"unsendable {type(message).__name__}", "unsendable", f"not sent: {error}")
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
            body = self.signer.open(data)
            if self.signer.tolerated > before:
                self._note("tolerated", "tolerated", "not well signed, taken because of signing = warn")
            return decode(body)
        except RemoteProtocolError as error:
            kind = type(error).__name__
            self.counters["rejected"] += 1
            self._note(kind, kind, str(error))
            return None

    def _note(self, about: str, counter: str, what: str) -> None:
        self.counters[counter] += 1
        now = self._clock()
        if now - self._logged_at_s.get(about, float("-inf")) >= LOG_INTERVAL_S:
            self._logged_at_s[about] = now
            LOG.warning("message (%d of this kind so far): %s", self.counters[counter], what)
