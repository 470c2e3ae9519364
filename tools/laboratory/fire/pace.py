# SPDX-License-Identifier: Apache-2.0
"""Intervals and timeouts: the product's, or shorter ones for a short test."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from shared_scheduler.protocol.limits import HEARTBEAT_INTERVAL_S, HEARTBEAT_JITTER
from shared_scheduler.transport import transport_settings


@dataclass(frozen=True)
class Pace:
    """All in seconds; `queue_max`: the number of messages that the broker stores for a scheduler."""

    heartbeat_s: float = HEARTBEAT_INTERVAL_S
    amqp_heartbeat_s: int = transport_settings.AMQP_HEARTBEAT_S
    request_s: float = 20.0
    """A scheduler's own time limit for a request."""
    rpc_s: float = 30.0
    """The time limit of the caller."""
    queue_max: int = 2_000
    """The product's is a hundred times this, takes minutes to fill, and recovers in the same way."""

    @property
    def silent_after_s(self) -> float:
        return 3 * self.heartbeat_s * (1 + HEARTBEAT_JITTER)

    def apply(self) -> None:
        """Set the AMQP heartbeat of the connections of this process."""
        transport_settings.AMQP_HEARTBEAT_S = self.amqp_heartbeat_s

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


# on a machine with too little CPU, an AMQP heartbeat of 4 s ended the connection of a scheduler that was only delayed
HURRIED = Pace(heartbeat_s=3.0, amqp_heartbeat_s=10, request_s=10.0, rpc_s=15.0, queue_max=100)
"""Heartbeats and AMQP heartbeats of seconds, a queue that is soon full: every fault within seconds."""
