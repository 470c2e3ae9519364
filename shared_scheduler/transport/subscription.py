# SPDX-License-Identifier: Apache-2.0
"""One endpoint on a link."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kombu import Exchange, Queue

from shared_scheduler.transport.bus import ConnectionChanged


@dataclass(eq=False, slots=True)
class Subscription:
    """The endpoint's queue, the exchanges that it reads, the exchange that it publishes to and the functions that it
    calls, and the state that the receiving thread keeps for it."""

    address: str
    queue: Queue
    bound_to: tuple[Exchange, ...]
    sends_to: tuple[Exchange, ...]
    receive: Callable[[list[bytes]], None]
    changed: ConnectionChanged
    #: messages of the batch that is being read
    inbox: list[bytes] = field(default_factory=list)
    #: further messages waited unread when the last batch was passed on
    has_more: bool = False
    connected: bool = False
    consumer: Any = None
    #: the broker reports that another connection owns its queue; not tried again before ...
    refused: bool = False
    retry_at_s: float = 0.0

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """All exchanges that must exist for it."""
        return (*self.bound_to, *self.sends_to)
