# SPDX-License-Identifier: Apache-2.0
"""Meters that are read before and after a measurement: CPU seconds by process, HTTP calls, database statements.

CPU times come from /proc (ticks of 10 ms), for each process with its forked processes; calls from Placement's access
log; statements from MariaDB's user statistics.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tools.laboratory.bench.environment import PLACEMENT_USER, SCHEDULER_USER, World
from tools.laboratory.cloud import access_log
from tools.laboratory.cloud.access_log import Request
from tools.laboratory.cloud.probes import database
from tools.laboratory.fleet.orders import USER_AGENT
from tools.laboratory.processes.usage import cpu_seconds

LOG_SETTLE_S = 0.3
"""A request is logged shortly after its answer."""

STATEMENTS = ("select_commands", "update_commands", "other_commands", "rows_sent", "busy_time")


@dataclass
class Reading:
    """The values of all meters at one time."""

    at_s: float
    log_offset: int
    cpu_s: dict[str, float]
    users: dict[str, dict[str, float]]


@dataclass
class Used:
    """The differences between two readings."""

    wall_s: float
    cpu_s: dict[str, float]
    """By process: scheduler, agents, placement, mariadb, rabbitmq, client."""
    statements: dict[str, dict[str, float]]
    """By sender, scheduler or placement: selects, updates (all writes), others, rows, busy seconds."""
    requests: list[Request] = field(default_factory=list)
    calls_in_any_case: dict[str, float] = field(default_factory=dict)
    """How many of the requests by kind do not count."""

    def without_idle(self, cores: Mapping[str, float], calls: Mapping[str, float], seconds: float) -> "Used":
        """The same without the CPU time that the processes use in any case, and without their calls, in some seconds
        without requests. `calls`: a second, by kind."""
        cpu = {name: max(0.0, used - seconds * cores.get(name, 0.0)) for name, used in self.cpu_s.items()}
        return replace(self, cpu_s=cpu, calls_in_any_case={kind: seconds * rate for kind, rate in calls.items()})

    def calls(self) -> dict[str, int]:
        """Number of HTTP calls to Placement by kind; `conflicts` are among the writes."""
        kinds = Counter(kind_of(request) for request in self.requests)
        kinds["conflicts"] = sum(request.status == 409 for request in self.requests)
        return {kind: max(0, count - round(self.calls_in_any_case.get(kind, 0.0))) for kind, count in kinds.items()}

    def durations_ms(self, kind: str) -> list[float]:
        return sorted(r.duration_us / 1000 for r in self.requests if kind_of(r) == kind)


def kind_of(request: Request) -> str:
    """`agents_reads` are those of the agents; all others are the scheduler's: `candidates`, `writes` of allocations, or
    `other`."""
    if request.agent.startswith(USER_AGENT):
        return "agents_reads"
    if request.path == "/allocation_candidates":
        return "candidates"
    return "writes" if request.writes_allocations() else "other"


class Meters:
    """Reads all meters of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._log = world.layout.access_log("placement")

    def read(self) -> Reading:
        time.sleep(LOG_SETTLE_S)
        size = self._log.stat().st_size if self._log.exists() else 0
        return Reading(time.monotonic(), size, self.cpu(), self._users())

    def cpu(self) -> dict[str, float]:
        """CPU seconds of every running process since its start; the sum over processes of the same kind."""
        total: defaultdict[str, float] = defaultdict(float)
        for name in self._world.processes.names():
            process = self._world.processes.alive(name)
            if process is not None:
                total[name.partition("-")[0]] += cpu_seconds(process)
        return dict(total)

    def _users(self) -> dict[str, dict[str, float]]:
        with database(self._world.layout) as connection, connection.cursor() as cursor:
            cursor.execute(
                f"SELECT user, {', '.join(STATEMENTS)} FROM information_schema.user_statistics WHERE user IN (%s, %s)",
                (SCHEDULER_USER, PLACEMENT_USER),
            )
            return {user: dict(zip(STATEMENTS, map(float, row), strict=True)) for user, *row in cursor.fetchall()}

    def since(self, before: Reading) -> Used:
        now = self.read()
        cpu = {name: value - before.cpu_s.get(name, 0.0) for name, value in now.cpu_s.items()}
        statements = {}
        for user, counts in now.users.items():
            earlier = before.users.get(user, {})
            own = {name: value - earlier.get(name, 0.0) for name, value in counts.items()}
            statements[user.removeprefix("bench_")] = own
        requests = access_log.read(self._log, before.log_offset)
        return Used(now.at_s - before.at_s - LOG_SETTLE_S, cpu, statements, requests)
