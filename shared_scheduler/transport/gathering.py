# SPDX-License-Identifier: Apache-2.0
"""Lets messages gather for a moment before a scheduler that expects no answer reads them.

Most of the CPU time of a single heartbeat is spent on waking a thread, asking the socket twice and passing one message
on.  Ten messages that are read together cost half of it.  As long as a scheduler casts claims, it reads each message at
once, because a request waits for its verdict.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from shared_scheduler.transport import transport_settings


class Gathering:
    """Any thread calls ``hurry``, the receiving thread calls ``wait``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, hurried: threading.Event | None = None) -> None:
        self._clock = clock
        self._hurried = hurried or threading.Event()
        self._hurried_at_s = float("-inf")

    def hurry(self) -> None:
        """An answer is expected: nothing gathers for a while."""
        self._hurried_at_s = self._clock()
        self._hurried.set()

    def wait(self) -> None:
        """Wait for a moment, or until ``hurry`` is called; not at all if it was called lately."""
        self._hurried.clear()
        if self._clock() - self._hurried_at_s >= transport_settings.EAGER_S:
            self._hurried.wait(transport_settings.GATHER_S)
