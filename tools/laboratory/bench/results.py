# SPDX-License-Identifier: Apache-2.0
"""The figures of one measurement, and their spread over repeats."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tools.laboratory.bench.checks import Check
from tools.laboratory.bench.meters import Used

FORMAT = 1
"""Version of the results file."""


@dataclass
class Messages:
    """Messages of the state channel that all schedulers and agents have sent and received in some seconds."""

    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    """By the names of the counters (`transport.channel`); empty without agents, and in older results."""


@dataclass
class Measurement:
    """A number of callers for some time. `*_each` is per answered request."""

    callers: int
    answered: int
    failures: int
    errors: list[str]
    wall_s: float
    per_second: float
    min_ms: float
    median_ms: float
    p95_ms: float
    cpu_s_each: dict[str, float]
    """By process."""
    calls_each: dict[str, float]
    """HTTP calls to Placement: candidates, writes, other, agents_reads; conflicts are 409 answers to any of them."""
    write_ms: float
    """The median time that Placement took for a write of allocations."""
    statements_each: dict[str, dict[str, float]]
    """By sender, scheduler or placement."""
    distinct_hosts: int
    busiest_host: int
    """The largest number of servers on one host."""
    alternates_each: float
    load_before: float
    load_after: float
    claims: dict[str, int] = field(default_factory=dict)
    """What became of the claims of all schedulers (`claims.COUNTERS`); empty for nova-scheduler."""
    messages: Messages = field(default_factory=Messages)
    """Until the builds had ended."""
    background_s_each: dict[str, float] = field(default_factory=dict)
    """What is in `cpu_s_each` and would have been used without requests; empty in older results."""


@dataclass
class Burst:
    """Servers that were asked for at the same moment, in one request or in one request each."""

    servers: int
    requests: int
    placed: int
    failures: int
    """Requests that were not answered with hosts."""
    errors: list[str]
    wall_s: float
    """From the first call to the last answer."""
    median_s: float
    p95_s: float
    """Of the requests."""
    placement_s: float
    """CPU time of Placement and MariaDB, for everything that was asked of them."""
    writes: int
    """Calls of Placement that write allocations."""
    distinct_hosts: int
    load_before: float
    not_asked: int = 0
    """Requests that had not begun when the time of the burst was over (`--limit`)."""


@dataclass
class Round:
    """One start of one contestant."""

    contestant: str
    hosts: int
    repeat: int
    ready_s: float = 0.0
    """From its start until it listened."""
    warm_s: float = 0.0
    """From then until it had all data."""
    idle_cpu_share: dict[str, float] = field(default_factory=dict)
    """Cores that each process used without requests."""
    idle_calls: dict[str, float] = field(default_factory=dict)
    """HTTP calls to Placement a second without requests, by kind."""
    idle_messages: Messages = field(default_factory=Messages)
    """In the seconds without requests."""
    schedulers: int = 1
    """Scheduler processes."""
    memory_mb: dict[str, int] = field(default_factory=dict)
    agents: dict[str, int] = field(default_factory=dict)
    """Counters of all agents together in this round; see `contest.AGENT_COUNTS`."""
    hosts_of_schedulers: list[int] = field(default_factory=list)
    """How many hosts each scheduler has claimed something of, with agents."""
    measurements: list[Measurement] = field(default_factory=list)
    bursts: list[Burst] = field(default_factory=list)
    check: Check = field(default_factory=Check)

    def failures(self) -> int:
        """Requests that were not answered with a host."""
        return sum(one.failures for one in self.measurements) + sum(one.failures for one in self.bursts)


@dataclass
class Results:
    """All results of one run of the benchmark."""

    machine: dict[str, Any]
    plan: dict[str, Any]
    rounds: list[Round] = field(default_factory=list)
    format: int = FORMAT

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def measured(
    tally: dict[str, Any],
    used: Used,
    callers: int,
    loads: tuple[float, float],
    claims: dict[str, int],
    messages: Messages,
    idle_cores: Mapping[str, float],
) -> Measurement:
    """One measurement from the client's counters and the meters. `idle_cores`: what processes use without requests."""
    latencies_ms = sorted(1000 * latency for latency in tally["latencies_s"])
    each = max(1, len(latencies_ms))
    per_host = [list(tally["hosts"].values()).count(host) for host in set(tally["hosts"].values())]
    return Measurement(
        callers=callers, answered=len(latencies_ms), failures=tally["failures"], errors=tally["errors"],
        wall_s=round(tally["wall_s"], 3), per_second=round(len(latencies_ms) / tally["wall_s"], 3),
        min_ms=round(quantile(latencies_ms, 0.0), 2), median_ms=round(quantile(latencies_ms, 0.5), 2),
        p95_ms=round(quantile(latencies_ms, 0.95), 2),
        cpu_s_each={name: round(value / each, 5) for name, value in used.cpu_s.items()},
        calls_each={name: round(number / each, 3) for name, number in used.calls().items()},
        write_ms=round(quantile(used.durations_ms("writes"), 0.5), 2),
        statements_each={
            who: {name: round(number / each, 3) for name, number in own.items()}
            for who, own in used.statements.items()
        },
        distinct_hosts=len(per_host), busiest_host=max(per_host, default=0),
        alternates_each=round(tally["alternates"] / each, 2),
        load_before=round(loads[0], 1), load_after=round(loads[1], 1),
        claims=claims, messages=messages,
        background_s_each={name: round(cores * tally["wall_s"] / each, 5) for name, cores in idle_cores.items()},
    )  # fmt: skip


def burst_of(tally: dict[str, Any], used: Used, servers: int, requests: int, load: float) -> Burst:
    """One burst from the client's counters and the meters."""
    latencies_s = sorted(tally["latencies_s"])
    return Burst(
        servers=servers, requests=requests, placed=len(tally["hosts"]), failures=tally["failures"],
        errors=tally["errors"], wall_s=round(tally["wall_s"], 3),
        median_s=round(quantile(latencies_s, 0.5), 3), p95_s=round(quantile(latencies_s, 0.95), 3),
        placement_s=round(sum(used.cpu_s.get(name, 0.0) for name in ("placement", "mariadb")), 2),
        writes=used.calls().get("writes", 0), distinct_hosts=len(set(tally["hosts"].values())),
        load_before=round(load, 1), not_asked=requests - len(latencies_s) - tally["failures"],
    )  # fmt: skip


def quantile(values: Sequence[float], part: float) -> float:
    """Nearest rank in sorted values; 0.0 if there are none."""
    return values[min(len(values) - 1, int(part * len(values)))] if values else 0.0


@dataclass(frozen=True)
class Spread:
    """The median of the repeats, and their extremes."""

    median: float
    low: float
    high: float
    count: int


def spread(values: Iterable[float]) -> Spread | None:
    found = list(values)
    return Spread(statistics.median(found), min(found), max(found), len(found)) if found else None


Figure = Callable[[Measurement], float]


def across(results: Results, contestant: str, hosts: int, callers: int, figure: Figure) -> Spread | None:
    """A figure over the repeats of one measurement; None if it was not measured."""
    return spread(
        figure(measurement)
        for one in results.rounds
        if (one.contestant, one.hosts) == (contestant, hosts)
        for measurement in one.measurements
        if measurement.callers == callers and measurement.answered
    )


def ratio(results: Results, hosts: int, callers: int, figure: Figure, ours: str, theirs: str) -> Spread | None:
    """Ours divided by theirs for each repeat, because the two of one repeat ran directly one after the other."""
    values = []
    for repeat in sorted({one.repeat for one in results.rounds}):
        pair = [_of_repeat(results, name, hosts, repeat, callers) for name in (ours, theirs)]
        if pair[0] and pair[1] and figure(pair[1]) > 0:
            values.append(figure(pair[0]) / figure(pair[1]))
    return spread(values)


def _of_repeat(results: Results, contestant: str, hosts: int, repeat: int, callers: int) -> Measurement | None:
    for one in results.rounds:
        if (one.contestant, one.hosts, one.repeat) == (contestant, hosts, repeat):
            for measurement in one.measurements:
                if measurement.callers == callers and measurement.answered:
                    return measurement
    return None


def from_json(raw: dict[str, Any]) -> Results:
    """The results of a file; KeyError or TypeError if it has another format."""
    if raw["format"] != FORMAT:
        raise KeyError(f"format {raw['format']}, wanted {FORMAT}")
    rounds = []
    for one in raw["rounds"]:
        measurements = [_measurement(measurement) for measurement in one["measurements"]]
        bursts = [Burst(**burst) for burst in one.get("bursts", ())]
        parts = {
            "measurements": measurements, "bursts": bursts, "check": Check(**one["check"]),
            "idle_messages": Messages(**one.get("idle_messages", {})),
        }  # fmt: skip
        rounds.append(Round(**{**one, **parts}))
    return Results(raw["machine"], raw["plan"], rounds)


def _measurement(raw: dict[str, Any]) -> Measurement:
    return Measurement(**{**raw, "messages": Messages(**raw.get("messages", {}))})
