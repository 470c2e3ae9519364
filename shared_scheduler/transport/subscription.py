# SPDX-License-Identifier: Apache-2.0
"""One endpoint's place on a link."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kombu import Exchange, Queue

from shared_scheduler.transport.bus import ConnectionChanged


@dataclass(eq=False, slots=True)
class Subscription:
    """Its queue, what it hears, where it publishes and whom it tells; then what the receiving
    thread remembers of it."""

    address: str
    queue: Queue
    hears: tuple[Exchange, ...]
    tells: tuple[Exchange, ...]
    receive: Callable[[list[bytes]], None]
    changed: ConnectionChanged
    #: what arrived in the batch that is being read
    inbox: list[bytes] = field(default_factory=list)
    connected: bool = False
    consumer: Any = None
    #: the broker reports that its queue belongs to another connection; not tried again before ...
    refused: bool = False
    retry_at_s: float = 0.0

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """All that must exist for it."""
        return (*self.hears, *self.tells)
