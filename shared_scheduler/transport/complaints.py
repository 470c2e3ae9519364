# SPDX-License-Identifier: Apache-2.0
"""What is wrong with messages, said once for each sender and kind within a while.

Whoever floods us with bad messages, under however many names, gets a bounded number of lines and of our memory.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from shared_scheduler.protocol.messages import Claim, Hello, Message, Release, Resync

#: One line for each kind and sender within this time ...
LOG_INTERVAL_S = 60.0
#: ... of at most so many; the others wait for the next interval.
LINES_PER_INTERVAL_MAX = 100


class Complaints:
    """Writes to ``log``, each line behind ``prefix``."""

    def __init__(
        self, log: logging.Logger, prefix: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._prefix = prefix
        self._clock = clock
        self._begun_s = float("-inf")
        self._said: set[tuple[str, str]] = set()

    def say(self, kind: str, sender: str, count: int, what: str) -> None:
        """``count`` of this kind so far; ``sender`` is empty where the message does not tell."""
        now_s = self._clock()
        if now_s - self._begun_s >= LOG_INTERVAL_S:
            self._begun_s = now_s
            self._said.clear()
        if (kind, sender) in self._said or len(self._said) >= LINES_PER_INTERVAL_MAX:
            return
        self._said.add((kind, sender))
        source = f" from {sender}" if sender else ""
        self._log.warning("%smessage%s (%d of this kind so far): %s", self._prefix, source, count, what)


def sender_of(message: Message) -> str:
    """Whom a message says that it is from: an address or a node."""
    match message:
        case Hello(sender=sender):
            return sender
        case Claim(scheduler=scheduler) | Release(scheduler=scheduler) | Resync(scheduler=scheduler):
            return scheduler
        case _:
            return message.node
