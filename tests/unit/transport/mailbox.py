# SPDX-License-Identifier: Apache-2.0
"""An endpoint's owner that stores the messages and notifications it gets, for tests of the transports."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from shared_scheduler.transport.bus import Endpoint

PATIENCE_S = 180.0


def eventually(check: Callable[[], bool], what: str) -> None:
    """Wait until this holds; how long it takes is not judged, only that it happens."""
    end_s = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < end_s, f"never: {what}"
        time.sleep(0.02)


class Mailbox:
    """Receives for one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.bodies: list[bytes] = []
        self.batches: list[int] = []
        #: of each batch, whether further messages waited
        self.more: list[bool] = []
        self.told: list[bool] = []
        #: while cleared, the owner is stuck in ``receive``
        self.awake = threading.Event()
        self.awake.set()

    @property
    def address(self) -> str:
        return self.endpoint.address

    def start(self) -> Mailbox:
        self.endpoint.start(self._receive, self.told.append)
        return self

    def started(self) -> Mailbox:
        self.start()
        eventually(self.is_connected, f"{self.address} connects")
        return self

    def is_connected(self) -> bool:
        return bool(self.told) and self.told[-1]

    def _receive(self, bodies: Sequence[bytes]) -> None:
        self.awake.wait(PATIENCE_S)
        self.bodies.extend(bodies)
        self.batches.append(len(bodies))
        self.more.append(self.endpoint.has_more)

    def hears(self, *bodies: bytes) -> None:
        """All of these come, in this order, whatever comes between."""
        eventually(lambda: [b for b in self.bodies if b in bodies] == list(bodies), f"{bodies!r:.80}")
