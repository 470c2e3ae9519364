# SPDX-License-Identifier: Apache-2.0
"""What is measured of one workload at one number of hosts."""

import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from random import Random
from statistics import median
from typing import Any

from shared_scheduler.decision.pipeline import Decider, Narrowing
from shared_scheduler.decision.request import Request
from shared_scheduler.decision.settings import DecisionSettings
from shared_scheduler.nova.aggregates import AggregateCache
from shared_scheduler.nova.host_state import HostStates
from shared_scheduler.nova.plugins import SiteFilter
from shared_scheduler.state.numbers import NOVA_DEFAULT_RATIOS
from shared_scheduler.state.table import HostTable
from tools.decisionbench import fleet, nova_side, plain_python
from tools.decisionbench.fleet import Workload

US = 1e6
#: hosts that change between two decisions, so that nothing is kept that a busy fleet would not keep
CHANGES_A_DECISION = 5
#: decisions of the bare loop; ours beside them are measured by the median too
PYTHON_DECISIONS = 9
#: decisions before the measured ones: the first one is reported by itself
WARM_UP = 10


@dataclass
class Spread:
    """Of single decisions, in microseconds."""

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

    ``cpu_us`` is CPU time of one decision with its claim assumed, ``wall_us`` the same by the clock
    (other programs on the machine show there), ``first_us`` the first decision of this kind, when
    nothing is known of it yet.  ``nova_us`` and ``python_us`` are CPU time of one decision by Nova's
    classes and by a bare loop in Python.
    """

    workload: str
    hosts: int
    survivors: int
    cpu_us: Spread
    wall_us: Spread
    first_us: float
    nova_us: list[float] = field(default_factory=list)
    python_us: list[float] = field(default_factory=list)
    fit_us: float = 0.0
    notes: str = ""

    @property
    def times_nova(self) -> float:
        """How many of our decisions Nova's one takes, medians both; Nova's fit of the chosen host is
        in ours."""
        return median(self.nova_us) / (self.cpu_us.p50 + self.fit_us) if self.nova_us else 0.0

    @property
    def times_python(self) -> float:
        """The same of the bare loop."""
        return median(self.python_us) / self.cpu_us.p50 if self.python_us else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"times_nova": self.times_nova, "times_python": self.times_python}


def measure(workload: Workload, hosts: int, decisions: int, nova_hosts_max: int) -> Result:
    """Ours, and beside it Nova's classes where the workload asks for them."""
    rng = Random(hosts)
    rows = [fleet.compute_node_row(n, workload.fleet, rng) for n in range(hosts)]
    table = fleet.make_table(workload, rows)
    request = fleet.make_request(workload, hosts, nova_side.topology(workload, hosts))
    request = with_spec(request, workload, hosts)
    decider = make_decider(table, workload)
    first = timed(lambda: decider.decide(request))
    survivors = decider.decide(request).survivors
    run(table, decider, request, WARM_UP, rng)
    gc.collect()
    gc.freeze()
    cpu, wall = run(table, decider, request, decisions, rng)
    gc.unfreeze()
    result = Result(
        workload.name, hosts, survivors, Spread.of(cpu), Spread.of(wall), first * US
    )
    if workload.nova and hosts <= nova_hosts_max:
        compare(result, workload, rows)
    return result


def with_spec(request: Request, workload: Workload, hosts: int) -> Request:
    """Plug-ins look at Nova's own object."""
    return replace(request, spec=nova_side.request_spec(workload, hosts))


def make_decider(table: HostTable, workload: Workload) -> Decider:
    """Nova's default filters and those of the workload."""
    states = HostStates(AggregateCache(), NOVA_DEFAULT_RATIOS)
    plugins = {"EvenHostsFilter": SiteFilter(nova_side.EvenHostsFilter(), states)}
    names = (*nova_side.DEFAULT_FILTERS, *workload.filters)
    return Decider(table, DecisionSettings(enabled_filters=names), foreign_filters=plugins)


def run(
    table: HostTable, decider: Decider, request: Request, decisions: int, rng: Random
) -> tuple[list[float], list[float]]:
    """CPU and wall seconds of each decision, its claim assumed; what it claimed is given back.

    A request of many instances counts as one decision.
    """
    cpu, wall = [], []
    for number in range(decisions):
        shake(table, rng)
        claims: list[str] = []
        cpu_before, wall_before = time.thread_time(), time.perf_counter()
        narrowing = Narrowing() if len(request.instance_uuids) > 1 else None
        for index in range(len(request.instance_uuids)):
            decision = decider.decide(request, index, (), narrowing)
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
    """Some hosts say something new."""
    for _ in range(CHANGES_A_DECISION):
        number = rng.randrange(len(table))
        node = fleet.uuid_of(number)
        version = table.version(node)
        changed = {"cn.free_ram_mb": rng.randrange(100000, 200000), "cn.vcpus_used": rng.randrange(40)}
        table.apply(node, changed, {}, {}, epoch=1, sequence=version.sequence + 1)


def timed(call: Callable[[], Any]) -> float:
    """CPU seconds of one call."""
    before = time.thread_time()
    call()
    return time.thread_time() - before


def compare(result: Result, workload: Workload, rows: list[dict[str, Any]]) -> None:
    """Nova's classes, and the bare loop, over the same hosts."""
    scheduler = nova_side.Scheduler(workload.filters)
    states = nova_side.host_states(workload, rows)
    for _ in range(workload.nova):
        spec = nova_side.request_spec(workload, len(rows))
        result.nova_us.append(timed(lambda spec=spec: scheduler.decide(states, spec)) * US)
    if workload.fleet.get("numa") or workload.fleet.get("pci"):
        result.fit_us = fit_of_one(workload, states)
    resources = workload.request["resources"]
    asked = plain_python.Asked(
        amounts=(resources.get("VCPU", 0), resources["MEMORY_MB"], resources["DISK_GB"]),
        trait="OWNER_NOVA",
        architecture="x86_64",
        extra_specs={},
        group=frozenset(),
    )
    loop = plain_python.hosts_of(rows, fleet.TRAITS)
    for _ in range(PYTHON_DECISIONS):
        result.python_us.append(timed(lambda: plain_python.decide(loop, asked)) * US)


def fit_of_one(workload: Workload, states: list[Any]) -> float:
    """Microseconds that Nova's own filters take to verify the chosen host."""
    scheduler = nova_side.Scheduler(workload.filters)
    spec = nova_side.request_spec(workload, len(states))
    few = states[:20]
    return timed(lambda: [scheduler.decide([state], spec) for state in few]) / len(few) * US
