# SPDX-License-Identifier: Apache-2.0
"""Messages of the state channel, counted by the processes that send and receive them, and what they should be.

A message that is broadcast is published once, and delivered to each scheduler that receives it.  One that was lost on
the way is published and not delivered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from shared_scheduler.protocol.limits import HEARTBEAT_INTERVAL_S, QUIET_INTERVALS, QUIET_JITTER
from shared_scheduler.transport.channel import RECEIVED, SENT

OF_A_SERVER = ("claim", "release", "verdict", "increment", "buildresult")
"""The kinds that follow from a request; the others come from time alone, or from what went wrong."""
OTHERS = tuple(sorted({kind.__name__.lower() for kind in SENT} - {*OF_A_SERVER}))
DIRECTIONS = {"published": "sent_", "delivered": "received_"}
HEARTBEAT_MEAN_S = QUIET_INTERVALS * HEARTBEAT_INTERVAL_S * (1 - QUIET_JITTER / 2)
"""Between two heartbeats of a host that does not change."""


@dataclass(frozen=True)
class Counts:
    """The counters of some processes at one time, or their differences in this many seconds."""

    at_s: float
    counters: Counter[str]

    def since(self, before: Counts) -> Counts:
        """The differences."""
        found = Counter(self.counters)
        found.subtract(before.counters)
        return Counts(self.at_s - before.at_s, found)


def only_messages(counters: Mapping[str, int]) -> Counter[str]:
    """The counters of messages among those of a process."""
    names = {*RECEIVED.values(), *SENT.values()}
    return Counter({name: number for name, number in counters.items() if name in names})


def count_of(counters: Mapping[str, int], direction: str, *kinds: str) -> int:
    """Messages of these kinds that were `published`, or `delivered`."""
    return sum(counters.get(DIRECTIONS[direction] + kind, 0) for kind in kinds)


def expected(schedulers: int) -> dict[str, dict[str, int]]:
    """Direction -> kind -> messages for each server, by the formula of doc/source/admin/large_clouds.rst.

    Heartbeats are not in it, nor the audits of nova-compute, because a simulated one has none.
    """
    return {
        "published": {"claim": 1, "release": 0, "verdict": 0, "increment": 2, "buildresult": 1},
        "delivered": {"claim": 1, "release": 0, "verdict": 0, "increment": 2 * schedulers, "buildresult": 1},
    }
