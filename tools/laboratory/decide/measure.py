# SPDX-License-Identifier: Apache-2.0
"""The measurements of one workload at one number of hosts."""

import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from random import Random
from statistics import median
from typing import Any

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.pipeline import Decider, OncePerRequestFilters
from shared_scheduler.decision.request import Request
from shared_scheduler.nova.aggregates import AggregateCache
from shared_scheduler.nova.host_state import HostStates
from shared_scheduler.nova.plugins import SiteFilter
from shared_scheduler.table.host_table import HostTable
from tools.laboratory.decide import nova_side, plain_python, workloads
from tools.laboratory.decide.workloads import Workload

US = 1e6
#: hosts that change between two decisions, so that caches are invalidated as in a busy fleet
CHANGES_A_DECISION = 5
#: our decisions are measured in this number of parts, with one decision of the plain loop before each
PARTS = 9
#: decisions before the measured ones, with emptied caches; the first of all is reported
WARM_UP = 10


@dataclass
class Spread:
    """Percentiles of single decisions, in microseconds."""

    p50: float
    p99: float
    least: float
    most: float

    @classmethod
    def of(cls, seconds: list[float]) -> "Spread":
        """From measured seconds."""
        ordered = sorted(one * US for one in seconds)
        last = len(ordered) - 1
        return cls(ordered[last // 2], ordered[int(last * 0.99)], ordered[0], ordered[-1])


@dataclass
class Result:
    """One workload at one number of hosts.

    ``cpu_us`` is CPU time of one decision with its claim assumed, ``wall_us`` its wall time (which other programs on
    the machine affect), ``first_us`` the first decision of this kind, with empty caches.  ``nova_us`` and ``python_us``
    are CPU time of one decision by Nova's classes and by a plain loop in Python; ``parts_us`` are our medians directly
    after each of the latter.
    """

    workload: str
    hosts: int
    survivors: int
    cpu_us: Spread
    wall_us: Spread
    first_us: float
    nova_us: list[float] = field(default_factory=list)
    python_us: list[float] = field(default_factory=list)
    parts_us: list[float] = field(default_factory=list)
    fit_us: float = 0.0
    notes: str = ""

    @property
    def times_nova(self) -> float:
        """Nova's time for one decision divided by ours, medians of both; ours includes Nova's check of the selected
        host."""
        return median(self.nova_us) / (self.cpu_us.p50 + self.fit_us) if self.nova_us else 0.0

    @property
    def times_python(self) -> float:
        """The same for the plain loop: the median of the ratios of measurements that follow one another."""
        pairs = zip(self.python_us, self.parts_us, strict=False)
        return median(loop / ours for loop, ours in pairs) if self.python_us else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"times_nova": self.times_nova, "times_python": self.times_python}


def measure(workload: Workload, hosts: int, decisions: int, nova_hosts_max: int) -> Result:
    """Measure our decisions, and Nova's classes if the workload requires that."""
    rng = Random(hosts)
    rows = [workloads.compute_node_row(n, workload.fleet, rng) for n in range(hosts)]
    table = workloads.make_table(workload, rows)
    request = workloads.make_request(workload, hosts, nova_side.topology(workload, hosts))
    request = with_spec(request, workload, hosts)
    decider = make_decider(table, workload)
    first = timed(lambda: decider.decide(request))
    survivors = decider.decide(request).survivors
    compared = bool(workload.nova) and hosts <= nova_hosts_max
    loop = bare_loop(workload, rows) if compared else None

    def ours(size: int) -> tuple[list[float], list[float]]:
        return run(table, decider, request, size, rng)

    ours(WARM_UP)
    gc.collect()
    gc.freeze()
    cpu, wall, loops, parts = in_turns(ours, loop, decisions)
    gc.unfreeze()
    spreads = Spread.of(cpu), Spread.of(wall)
    result = Result(workload.name, hosts, survivors, *spreads, first * US, [], loops, parts)
    if compared:
        compare(result, workload, rows)
    return result


def in_turns(
    ours: Callable[[int], tuple[list[float], list[float]]],
    loop: Callable[[], Any] | None,
    decisions: int,
) -> tuple[list[float], list[float], list[float], list[float]]:
    """CPU and wall seconds of our decisions; microseconds of the plain loop's, and our medians directly after."""
    cpu, wall, loops, parts = [], [], [], []
    for size in sizes_of_parts(decisions):
        if loop is not None:
            loops.append(timed(loop) * US)
            ours(min(WARM_UP, size))
        part_cpu, part_wall = ours(size)
        parts.append(median(part_cpu) * US)
        cpu += part_cpu
        wall += part_wall
    return cpu, wall, loops, parts


def sizes_of_parts(decisions: int) -> list[int]:
    """The number of decisions of each part: ``PARTS`` parts if there are enough decisions."""
    least, more = divmod(decisions, PARTS)
    return [size for part in range(PARTS) if (size := least + (part < more))]


def with_spec(request: Request, workload: Workload, hosts: int) -> Request:
    """Add Nova's own object, which plug-ins read."""
    return replace(request, spec=nova_side.request_spec(workload, hosts))


def make_decider(table: HostTable, workload: Workload) -> Decider:
    """Nova's default filters and those of the workload."""
    states = HostStates(AggregateCache())
    plugins = {"EvenHostsFilter": SiteFilter(nova_side.EvenHostsFilter(), states)}
    names = (*nova_side.DEFAULT_FILTERS, *workload.filters)
    settings = DecisionSettings(enabled_filters=names, spread_keys=workloads.SPREAD_KEYS)
    return Decider(table, settings, foreign_filters=plugins)


def run(
    table: HostTable, decider: Decider, request: Request, decisions: int, rng: Random
) -> tuple[list[float], list[float]]:
    """CPU and wall seconds of each decision with its claim assumed; the claims are forgotten afterwards.

    A request of many instances counts as one decision.
    """
    cpu, wall = [], []
    for number in range(decisions):
        shake(table, rng)
        claims: list[str] = []
        cpu_before, wall_before = time.thread_time(), time.perf_counter()
        once = OncePerRequestFilters() if len(request.instance_uuids) > 1 else None
        for index in range(len(request.instance_uuids)):
            decision = decider.decide(request, index, (), once)
            node = next(decision.nodes(), None)
            if node is None:
                break
            form = decision.form(node)
            allocations = {node: form.resources} if form else {}
            claim_id = f"claim-{number}-{index}"
            table.assume(node, claim_id, claim_id, allocations, request.usage)
            claims.append(claim_id)
        cpu.append(time.thread_time() - cpu_before)
        wall.append(time.perf_counter() - wall_before)
        for claim_id in claims:
            table.forget(claim_id)
    return cpu, wall


def shake(table: HostTable, rng: Random) -> None:
    """Change the values of some hosts."""
    for _ in range(CHANGES_A_DECISION):
        number = rng.randrange(len(table))
        node = workloads.uuid_of(number)
        version = table.version(node)
        changed = {"cn.free_ram_mb": rng.randrange(100000, 200000), "cn.vcpus_used": rng.randrange(40)}
        table.apply(node, changed, {}, {}, epoch=1, sequence=version.sequence + 1)


def timed(call: Callable[[], Any]) -> float:
    """CPU seconds of one call."""
    before = time.thread_time()
    call()
    return time.thread_time() - before


def compare(result: Result, workload: Workload, rows: list[dict[str, Any]]) -> None:
    """Measure Nova's classes with the same hosts."""
    scheduler = nova_side.Scheduler([*nova_side.DEFAULT_FILTERS, *workload.filters])
    states = nova_side.host_states(workload, rows)
    for _ in range(workload.nova):
        spec = nova_side.request_spec(workload, len(rows))
        result.nova_us.append(timed(partial(scheduler.decide, states, spec)) * US)
    if workload.fleet.get("numa") or workload.fleet.get("pci"):
        result.fit_us = fit_of_one(workload, states)


def bare_loop(workload: Workload, rows: list[dict[str, Any]]) -> Callable[[], Any]:
    """One decision of the plain loop with the same hosts."""
    resources = workload.request["resources"]
    asked = plain_python.Asked(
        amounts=(resources.get("VCPU", 0), resources["MEMORY_MB"], resources["DISK_GB"]),
        trait="OWNER_NOVA",
        architecture="x86_64",
        extra_specs={},
        group=frozenset(),
    )
    hosts = plain_python.hosts_of(rows, workloads.TRAITS)
    return lambda: plain_python.decide(hosts, asked)


def fit_of_one(workload: Workload, states: list[Any]) -> float:
    """Microseconds that Nova's own filters take to check the selected host."""
    scheduler = nova_side.Scheduler([*nova_side.DEFAULT_FILTERS, *workload.filters])
    spec = nova_side.request_spec(workload, len(states))
    few = states[:20]
    return timed(lambda: [scheduler.decide([state], spec) for state in few]) / len(few) * US
