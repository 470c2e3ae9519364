# SPDX-License-Identifier: Apache-2.0
"""Messages that wait to be sent: bounded in number and age; adding one never blocks."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass

from shared_scheduler.transport import transport_settings


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message to send; ``sender`` is the address of the endpoint that sends it.

    ``returned`` is called by the sending thread if the broker has no queue for the message; None: nobody is told."""

    exchange: str
    routing_key: str
    sender: str
    body: bytes
    put_at_s: float
    returned: Callable[[], None] | None = None


class Outbox:
    """A bounded queue of parcels.  Many threads put, one takes."""

    def __init__(
        self,
        messages_max: int = transport_settings.OUTBOX_MAX_MESSAGES,
        age_max_s: float = transport_settings.OUTBOX_MAX_AGE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parcels: queue.Queue[Parcel | None] = queue.Queue(messages_max)
        self._age_max_s = age_max_s
        self._clock = clock
        #: parcels that waited too long
        self.expired = 0

    def __len__(self) -> int:
        return self._parcels.qsize()

    def put(
        self, exchange: str, routing_key: str, sender: str, body: bytes, returned: Callable[[], None] | None = None
    ) -> bool:
        """Add a parcel; never blocks; False if there is no room and the message is dropped."""
        try:
            self._parcels.put_nowait(Parcel(exchange, routing_key, sender, body, self._clock(), returned))
        except queue.Full:
            return False
        return True

    def take(self, timeout_s: float) -> Parcel | None:
        """The next parcel that is not too old; None if there is none within the time."""
        try:
            parcel = self._parcels.get(timeout_s > 0, timeout_s)
            while parcel is not None and self.is_too_old(parcel):
                self.expired += 1
                parcel = self._parcels.get_nowait()
        except queue.Empty:
            return None
        return parcel

    def take_some(self, most: int, timeout_s: float) -> list[Parcel]:
        """Like ``take``, with up to ``most`` of the parcels that wait behind it already."""
        taken: list[Parcel] = []
        while len(taken) < most and (parcel := self.take(0.0 if taken else timeout_s)) is not None:
            taken.append(parcel)
        return taken

    def is_too_old(self, parcel: Parcel) -> bool:
        """Whether it is too old to be useful."""
        return self._clock() - parcel.put_at_s > self._age_max_s

    def wake(self) -> None:
        """End the wait of ``take``."""
        try:
            self._parcels.put_nowait(None)
        except queue.Full:
            return  # it is not waiting
