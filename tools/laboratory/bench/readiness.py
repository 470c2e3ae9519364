# SPDX-License-Identifier: Apache-2.0
"""Waits until a scheduler has all data; each contestant gets the time that it needs."""

import time
from contextlib import suppress

from shared_scheduler.daemon import admin
from tools.laboratory.bench.environment import World
from tools.laboratory.errors import LabError
from tools.laboratory.fleet.hosts import hosts
from tools.laboratory.processes.controlled import Program
from tools.laboratory.processes.usage import cpu_seconds

WARM_TIMEOUT_S = 300.0
WINDOW_S = 2.0
POLL_S = 0.2
QUIET_SHARE = 0.05
"""The maximum number of cores that an idle nova-scheduler uses."""
SYNC_ROUNDS = 2
"""The number of reports after which nova-scheduler uses its cache of a host's instances."""


def warm_stock(world: World, caller: Program, count: int) -> None:
    """Send the reports of nova-computes of four minutes, and wait until the scheduler has processed them."""
    caller.ask("sync", None, hosts=[host.name for host in hosts(count)], rounds=SYNC_ROUNDS)
    wait_quiet(world)


def wait_quiet(world: World) -> None:
    """Wait until the scheduler has nothing to do."""
    deadline = time.monotonic() + WARM_TIMEOUT_S
    while time.monotonic() < deadline:
        before = scheduler_cpu_s(world)
        time.sleep(WINDOW_S)
        if scheduler_cpu_s(world) - before < QUIET_SHARE * WINDOW_S:
            return
    raise LabError(f"the scheduler is busy after {WARM_TIMEOUT_S:.0f} s; see {world.layout.log_of('scheduler')}")


def scheduler_cpu_s(world: World) -> float:
    process = world.processes.alive("scheduler")
    if process is None:
        raise LabError(f"the scheduler has ended; see {world.layout.log_of('scheduler')}")
    return cpu_seconds(process)


def wait_fresh(world: World, count: int, agents: bool, workers: int) -> None:
    """Wait until each worker of our scheduler has a row for each node, fresh if there are agents."""
    deadline = time.monotonic() + WARM_TIMEOUT_S
    while time.monotonic() < deadline:
        scheduler_cpu_s(world)  # raises if it has ended
        tables = freshness_of_nodes(world)
        known = [found.get("fresh", 0) if agents else sum(found.values()) for found in tables]
        if len(known) >= workers and min(known) >= count:
            return
        time.sleep(POLL_S)
    raise LabError(f"after {WARM_TIMEOUT_S:.0f} s the scheduler knows {freshness_of_nodes(world)} of {count} nodes; "
                     f"see {world.layout.log_of('scheduler')}")  # fmt: skip


def freshness_of_nodes(world: World) -> list[dict[str, int]]:
    """The number of rows by freshness, in the table of each worker that answers."""
    found = []
    for path in admin.sockets(world.admin_sockets):
        with suppress(admin.AdminError):
            found.append(admin.ask(path, "status")["freshness"])
    return found
