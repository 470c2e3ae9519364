# SPDX-License-Identifier: Apache-2.0
"""Intervals and timeouts: the product's, or shorter ones for a short test."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from shared_scheduler.protocol.limits import HEARTBEAT_INTERVAL_S, HEARTBEAT_JITTER
from shared_scheduler.transport import transport_settings


@dataclass(frozen=True)
class Pace:
    """All in seconds; `queue_max` is how many messages the broker keeps for a scheduler."""

    heartbeat_s: float = HEARTBEAT_INTERVAL_S
    amqp_heartbeat_s: int = transport_settings.AMQP_HEARTBEAT_S
    request_s: float = 20.0
    """A scheduler's own time for a request."""
    rpc_s: float = 30.0
    """What the caller waits."""
    queue_max: int = 2_000
    """The product's is a hundred times this, which takes minutes to fill and heals in the same way."""

    @property
    def silent_after_s(self) -> float:
        return 3 * self.heartbeat_s * (1 + HEARTBEAT_JITTER)

    def apply(self) -> None:
        """For this process: the AMQP heartbeat of its connections."""
        transport_settings.AMQP_HEARTBEAT_S = self.amqp_heartbeat_s

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


# on a machine that is short of CPU an AMQP heartbeat of 4 s ended the connection of a scheduler that was only held up
HURRIED = Pace(heartbeat_s=3.0, amqp_heartbeat_s=10, request_s=10.0, rpc_s=15.0, queue_max=100)
"""Heartbeats and AMQP heartbeats of seconds, a queue that is full soon: every fault within seconds."""
