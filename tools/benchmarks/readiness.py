# SPDX-License-Identifier: Apache-2.0
"""Has a scheduler learned what it can know? Each contestant gets the time it needs before anybody calls."""

import time

from shared_scheduler.service import admin

from ..realcloud.errors import CloudError
from ..realcloud.processes import cpu_seconds
from .callers import Client
from .fleet import hosts
from .world import World

WARM_TIMEOUT_S = 300.0
WINDOW_S = 2.0
POLL_S = 0.2
QUIET_SHARE = 0.05
"""Cores that an idle stock scheduler uses at most."""
SYNC_ROUNDS = 2
"""Reports of a host until nova-scheduler trusts its cache of that host's instances."""


def warm_stock(world: World, caller: Client, count: int) -> None:
    """Play what nova-computes report in four minutes of life, and wait until it is digested."""
    caller.sync([host.name for host in hosts(count)], SYNC_ROUNDS)
    wait_quiet(world)


def wait_quiet(world: World) -> None:
    """Wait until the scheduler has nothing to do."""
    deadline = time.monotonic() + WARM_TIMEOUT_S
    while time.monotonic() < deadline:
        before = scheduler_cpu_s(world)
        time.sleep(WINDOW_S)
        if scheduler_cpu_s(world) - before < QUIET_SHARE * WINDOW_S:
            return
    raise CloudError(f"the scheduler is busy after {WARM_TIMEOUT_S:.0f} s; see {world.layout.log_of('scheduler')}")


def scheduler_cpu_s(world: World) -> float:
    process = world.processes.alive("scheduler")
    if process is None:
        raise CloudError(f"the scheduler has ended; see {world.layout.log_of('scheduler')}")
    return cpu_seconds(process)


def wait_fresh(world: World, count: int, agents: bool) -> None:
    """Wait until ours has a row for each node, heard of from its agent if there are agents."""
    deadline = time.monotonic() + WARM_TIMEOUT_S
    while time.monotonic() < deadline:
        scheduler_cpu_s(world)  # tells if it has ended
        freshness = freshness_of_nodes(world)
        if (freshness.get("fresh", 0) if agents else sum(freshness.values())) >= count:
            return
        time.sleep(POLL_S)
    raise CloudError(f"after {WARM_TIMEOUT_S:.0f} s the scheduler knows {freshness_of_nodes(world)} of {count} nodes; "
                     f"see {world.layout.log_of('scheduler')}")  # fmt: skip


def freshness_of_nodes(world: World) -> dict[str, int]:
    """How fresh the rows of our scheduler's table are; nothing while it does not answer."""
    for path in admin.sockets(world.admin_sockets):
        try:
            found: dict[str, int] = admin.ask(path, "status")["freshness"]
            return found
        except admin.AdminError:
            continue
    return {}
