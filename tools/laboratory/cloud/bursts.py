# SPDX-License-Identifier: Apache-2.0
"""Boots many servers at about the same time and counts conflicts, reschedules and over-commit.

The measurement is the same for any scheduler, so that ours and nova-scheduler can be compared.
"""

import statistics
import threading
import time
from collections import Counter
from dataclasses import dataclass

from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.errors import LabError

BUILD_TIMEOUT_S = 240.0
POLL_S = 0.05
SETTLE_S = 0.5
"""The delay of access logs and events after a server is ACTIVE."""


@dataclass(frozen=True)
class BurstReport:
    """The results of one burst. Times in seconds from the POST (or from the thaw of the conductor)."""

    count: int
    states: dict[str, int]
    """ACTIVE, ERROR, or `HTTP nnn` of a refused POST -> number of servers."""
    per_host: dict[str, int]
    capacity: dict[str, int]
    """The capacity of each host in servers of this flavor."""
    over: int
    """Servers beyond capacity in Nova, summed over the hosts."""
    placement_over: dict[str, dict[str, int]]
    """Amounts beyond capacity in Placement."""
    reschedules: int
    """Builds that nova-compute gave back: attempts after the first one, from Nova's events."""
    no_valid_host: int
    candidates: int
    """GET /allocation_candidates."""
    puts_204: int
    puts_409: int
    """PUT or POST /allocations that claim: written, refused."""
    placement_calls: int
    post_median_s: float
    active_median_s: float
    active_max_s: float


@dataclass
class _Server:
    posted_at: float
    post_s: float
    state: str = ""
    ended_at: float = 0.0
    host: str | None = None


def burst(cloud: Cloud, count: int, group: int, interval_s: float = 0.5, *, flavor: str = "m400",
          freeze_conductor: bool = False, keep: bool = False) -> BurstReport:  # fmt: skip
    """POST `count` servers, `group` at once every `interval_s`; wait for them, count, and delete them.

    With `freeze_conductor` the conductors are stopped while the requests arrive, then all builds start together.
    """
    placement_at = cloud.requests_size("placement")
    servers: dict[str, _Server] = {}
    refused: list[str] = []
    cloud.flavor_id(flavor), cloud.image_id()
    conductors = cloud.names("conductor") if freeze_conductor else []
    for name in conductors:
        cloud.freeze(name)
    try:
        _post_all(cloud, count, group, interval_s, flavor, servers, refused)
    finally:
        for name in conductors:
            cloud.thaw(name)
    thawed_at = time.time()
    _wait_built(cloud, servers)
    time.sleep(SETTLE_S)
    report = _report(cloud, flavor, servers, refused, placement_at, thawed_at if freeze_conductor else None)
    if not keep:
        cloud.delete(servers)
    return report


def _post_all(cloud: Cloud, count: int, group: int, interval_s: float, flavor: str,
              servers: dict[str, _Server], refused: list[str]) -> None:  # fmt: skip
    def post(index: int) -> None:
        began = time.time()
        try:
            uuid = cloud.boot(1, flavor, name=f"burst{index}-")[0]
        except LabError as error:
            refused.append(str(error)[:40])
            return
        servers[uuid] = _Server(began, time.time() - began)

    threads = []
    for first in range(0, count, group):
        if first:
            time.sleep(interval_s)
        batch = [threading.Thread(target=post, args=(i,)) for i in range(first, min(first + group, count))]
        for thread in batch:
            thread.start()
        threads += batch
    for thread in threads:
        thread.join()


def _cell_databases(cloud: Cloud) -> list[str]:
    return [f"nova_cell{cell}" for cell in range(cloud.settings.cells + 1)]


def _wait_built(cloud: Cloud, servers: dict[str, _Server]) -> None:
    """Read Nova's databases, without load on the API, until every server is ACTIVE or in ERROR."""
    deadline = time.monotonic() + BUILD_TIMEOUT_S
    while any(not server.state for server in servers.values()):
        if time.monotonic() > deadline:
            late = sum(not server.state for server in servers.values())
            raise LabError(f"{late} of {len(servers)} servers not built after {BUILD_TIMEOUT_S:.0f} s")
        for name in _cell_databases(cloud):
            for uuid, state, host in cloud.sql(name, "SELECT uuid, vm_state, host FROM instances WHERE deleted = 0"):
                server = servers.get(uuid)
                if server is not None and not server.state and state in ("active", "error"):
                    server.state, server.host, server.ended_at = state.upper(), host, time.time()
        time.sleep(POLL_S)


def _report(cloud: Cloud, flavor: str, servers: dict[str, _Server], refused: list[str], placement_at: int,
            thawed_at: float | None) -> BurstReport:  # fmt: skip
    requests = cloud.requests("placement", placement_at)
    capacity = capacity_for(cloud, flavor)
    claims = [r for r in requests if r.writes_allocations()]
    per_host = Counter(str(s.host) for s in servers.values() if s.state == "ACTIVE")
    times = [s.ended_at - (thawed_at or s.posted_at) for s in servers.values() if s.state == "ACTIVE"]
    return BurstReport(
        count=len(servers) + len(refused),
        states=dict(Counter([s.state for s in servers.values()] + refused)),
        per_host=dict(sorted(per_host.items())), capacity=capacity,
        over=sum(max(0, n - capacity.get(host, 0)) for host, n in per_host.items()),
        placement_over=cloud.overcommit(),
        reschedules=reschedules(cloud, set(servers)), no_valid_host=_no_valid_host(cloud, set(servers)),
        candidates=sum(r.path == "/allocation_candidates" for r in requests),
        puts_204=sum(r.status == 204 for r in claims), puts_409=sum(r.status == 409 for r in claims),
        placement_calls=len(requests),
        post_median_s=_median([s.post_s for s in servers.values()]),
        active_median_s=_median(times), active_max_s=round(max(times, default=0.0), 2),
    )  # fmt: skip


def capacity_for(cloud: Cloud, flavor: str) -> dict[str, int]:
    """The number of servers of a flavor that fit into the inventories of each empty host."""
    spec = cloud.compute("GET", f"/flavors/{cloud.flavor_id(flavor)}").expect(200)["flavor"]
    cpus = "PCPU" if spec["extra_specs"].get("hw:cpu_policy") == "dedicated" else "VCPU"
    one = {cpus: spec["vcpus"], "MEMORY_MB": spec["ram"], "DISK_GB": spec["disk"]}
    found = cloud.capacities()
    return {
        host: min(found.get(host, {}).get(name, 0) // amount for name, amount in one.items() if amount)
        for host in cloud.hosts()
    }


def _median(values: list[float]) -> float:
    return round(statistics.median(values), 2) if values else 0.0


def reschedules(cloud: Cloud, servers: set[str]) -> int:
    """Every attempt of a build has an event in its cell; more than one means that the build was given back."""
    query = (
        "SELECT a.instance_uuid, count(*) FROM instance_actions a JOIN instance_actions_events e ON e.action_id = a.id"
        " WHERE e.event = 'compute__do_build_and_run_instance' GROUP BY 1"
    )
    rows = [row for name in _cell_databases(cloud) for row in cloud.sql(name, query)]
    return sum(int(attempts) - 1 for uuid, attempts in rows if uuid in servers)


def _no_valid_host(cloud: Cloud, servers: set[str]) -> int:
    query = "SELECT instance_uuid FROM instance_faults WHERE message LIKE '%%No valid host%%'"
    return sum(uuid in servers for name in _cell_databases(cloud) for (uuid,) in cloud.sql(name, query))
