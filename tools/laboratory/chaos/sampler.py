# SPDX-License-Identifier: Apache-2.0
"""Samples of the hosts: how much Placement has allocated on each, and which may be selected."""

import bisect
import contextlib
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import pymysql

from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.layout import cell_database
from tools.laboratory.errors import LabError

PERIOD_S = 0.4
USED = (
    "SELECT p.name, CAST(coalesce(sum(a.used), 0) AS SIGNED) FROM resource_providers p"
    " LEFT JOIN allocations a ON a.resource_provider_id = p.id AND a.resource_class_id ="
    " (SELECT id FROM resource_classes WHERE name = 'MEMORY_MB') GROUP BY 1"
)
OPEN = (
    "SELECT host FROM services WHERE topic = 'compute' AND deleted = 0 AND disabled = 0 AND forced_down = 0"
    " AND last_seen_up > utc_timestamp() - INTERVAL %s SECOND"
)


@dataclass(frozen=True)
class Sample:
    """One sample. `open` hosts are enabled and have reported within half of `service_down_time`."""

    at: float
    used_mb: dict[str, int]
    open: frozenset[str]


@dataclass
class Samples:
    """All samples of a run, and the memory of each host."""

    memory_mb: dict[str, int]
    taken: list[Sample] = field(default_factory=list)

    def between(self, began_at: float, ended_at: float) -> list[Sample]:
        """The samples of this time, with the last one before and the first one after it."""
        first = bisect.bisect_left(self.taken, began_at, key=lambda sample: sample.at)
        last = bisect.bisect_right(self.taken, ended_at, key=lambda sample: sample.at)
        return self.taken[max(0, first - 1) : last + 1]

    def had_room(self, hosts: Iterable[str], began_at: float, ended_at: float, wanted_mb: int) -> list[str]:
        """The hosts that were open and had this much room in every sample of this time."""
        taken = self.between(began_at, ended_at)
        return sorted(
            host
            for host in hosts
            if taken and all(
                host in sample.open and sample.used_mb.get(host, 0) + wanted_mb <= self.memory_mb[host]
                for sample in taken
            )
        )  # fmt: skip


class Sampler:
    """Takes samples until it is stopped."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._stopped = threading.Event()
        capacities = cloud.capacities()
        self.samples = Samples({host: capacities.get(host, {}).get("MEMORY_MB", 0) for host in cloud.hosts()})

    def run(self) -> None:
        """The thread's body. A sample that fails (the database restarts) is omitted."""
        while not self._stopped.wait(PERIOD_S):
            with contextlib.suppress(pymysql.MySQLError, LabError):
                self.samples.taken.append(self._sample())

    def stop(self) -> None:
        self._stopped.set()

    def _sample(self) -> Sample:
        at = time.monotonic()
        used = {host: int(amount) for host, amount in self._cloud.sql("placement", USED)}
        within_s = self._cloud.settings.service_down_time_s // 2
        rows = [
            row
            for cell in range(1, self._cloud.settings.cells + 1)
            for row in self._cloud.sql(cell_database(cell), OPEN, [within_s])
        ]
        return Sample(at, used, frozenset(host for (host,) in rows))
