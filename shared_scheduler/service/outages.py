# SPDX-License-Identifier: Apache-2.0
"""Says that something does not answer: at once, then now and then, and when it is over."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

#: How often an outage that goes on is said again.
AGAIN_S = 60.0


class Outages:
    """One line an interval for each thing that is away, however often it is asked for."""

    def __init__(
        self, log: logging.Logger, clock: Callable[[], float], again_s: float = AGAIN_S
    ) -> None:
        self._log = log
        self._clock = clock
        self._again_s = again_s
        self._lock = threading.Lock()
        self._said: dict[str, tuple[float, float]] = {}  # since when, last said

    def failed(self, what: str, text: str) -> None:
        """It did not work."""
        now = self._clock()
        with self._lock:
            since, said = self._said.get(what, (now, float("-inf")))
            if now - said < self._again_s:
                return
            self._said[what] = (since, now)
        self._log.warning("%s", text)

    def recovered(self, what: str) -> None:
        """It worked."""
        if what not in self._said:  # as nearly always
            return
        with self._lock:
            said = self._said.pop(what, None)
        if said is not None:  # or another thread was faster
            self._log.info("%s: works again after %.0f s", what, self._clock() - said[0])

    def lasting(self) -> frozenset[str]:
        """What is away."""
        return frozenset(self._said)
