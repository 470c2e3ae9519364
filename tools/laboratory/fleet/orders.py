# SPDX-License-Identifier: Apache-2.0
"""The arguments of a process of the fleet.

It is a separate module because a command does not need the imports of the process.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared_scheduler.protocol.limits import HEARTBEAT_INTERVAL_S
from shared_scheduler.transport import transport_settings as transport

SPAWN_S = 1.0
USER_AGENT = "compute-agent"
"""The program that the agents' calls of Placement name."""


@dataclass(frozen=True)
class Orders:
    """`first` to `last`: numbers of the hosts. `nova_conf`: the file that names the real Placement, where hosts have
    no servers yet; without it, `placement` is the socket of the stand-in. `builds_after_s`: build accepted servers
    after this time; without it, builds are ordered. `spread_polls`: the agents poll as those that have run for long.
    `spawn_s`: the time from nova-compute's count of a server to the end of its build. `master`: the line of the master
    of host keys, which the agents require then.
    """

    url: str
    first: int
    last: int
    control: str
    hardware: str = "large"
    placement: str = ""
    nova_conf: str = ""
    spread_polls: bool = False
    builds_after_s: float | None = None
    spawn_s: float = SPAWN_S
    heartbeat_s: float = HEARTBEAT_INTERVAL_S
    amqp_heartbeat_s: int = transport.AMQP_HEARTBEAT_S
    master: str = ""
