# SPDX-License-Identifier: Apache-2.0
"""Which of the messages published on a channel the broker has confirmed.

Many are on their way at once: waiting for each before the next would send one message a round trip.
"""

from __future__ import annotations

import time
from typing import Any

from kombu import Connection

from shared_scheduler.transport import settings


class Confirms:
    """One channel's.  A transport that confirms nothing (kombu's memory) has nothing to wait for."""

    def __init__(self, connection: Connection, channel: Any) -> None:
        self._connection = connection
        self._confirming = connection.transport.driver_type == "amqp"
        self._published = 0
        self._unconfirmed: set[int] = set()
        if self._confirming:
            channel.confirm_select()
            # one that was not taken is lost like any other: its receiver sees a gap
            channel.events["basic_ack"].add(self._ended)
            channel.events["basic_nack"].add(self._ended)

    def __len__(self) -> int:
        return len(self._unconfirmed)

    def published(self) -> None:
        """One more message is on its way."""
        if self._confirming:
            self._published += 1
            self._unconfirmed.add(self._published)

    def _ended(self, tag: int, multiple: bool) -> None:
        if multiple:
            self._unconfirmed = {each for each in self._unconfirmed if each > tag}
        else:
            self._unconfirmed.discard(tag)

    def wait(self) -> None:
        """Until all are confirmed.  Raises ``TimeoutError`` if the broker takes too long."""
        end_s = time.monotonic() + settings.CONFIRM_TIMEOUT_S
        while self._unconfirmed:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"{len(self)} messages not confirmed")
            self._connection.drain_events(timeout=left_s)
