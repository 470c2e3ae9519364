# SPDX-License-Identifier: Apache-2.0
"""The tables of the results."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tools.laboratory.bench.claim_counters import in_a_hundred
from tools.laboratory.bench.message_counters import (
    DIRECTIONS,
    HEARTBEAT_MEAN_S,
    OF_A_SERVER,
    OTHERS,
    count_of,
    expected,
)
from tools.laboratory.bench.results import Figure, Measurement, Messages, Results, Round, Spread, across, ratio, spread
from tools.laboratory.report import Report, Table, rst

STOCK = "stock"
ALONE = "write alone"
SYSTEM = ("scheduler", "placement", "mariadb", "rabbitmq", "agents")
"""The processes of a request's total cost: all except the caller."""

IDLE = ("scheduler", "agents", "rabbitmq", "placement", "mariadb")


def cpu(*names: str) -> Figure:
    """CPU milliseconds for each request, summed over these processes."""
    return lambda one: 1000 * sum(one.cpu_s_each.get(name, 0.0) for name in names)


def without_background(one: Measurement) -> float:
    """CPU milliseconds of all processes for each request, without what they would have used anyway."""
    return 1000 * sum(one.cpu_s_each.get(name, 0.0) - one.background_s_each.get(name, 0.0) for name in SYSTEM)


def calls(kind: str) -> Figure:
    return lambda one: one.calls_each.get(kind, 0.0)


def statements(who: str, *kinds: str) -> Figure:
    return lambda one: sum(one.statements_each.get(who, {}).get(kind, 0.0) for kind in kinds)


def messages(direction: str, *kinds: str) -> Figure:
    """Messages of these kinds for each request."""
    return lambda one: count_of(one.messages.counts, direction, *kinds) / max(1, one.answered)


def per_second(one: Measurement) -> float:
    return one.per_second


@dataclass(frozen=True)
class Row:
    """A figure of every contestant; `compared`: whether the ratio of ours to nova-scheduler's is shown."""

    title: str
    figure: Figure
    compared: bool = True


ROWS = (
    Row("requests a second", per_second),
    Row("latency median, ms", lambda one: one.median_ms),
    Row("latency p95, ms", lambda one: one.p95_ms),
    Row("latency min, ms", lambda one: one.min_ms),
    Row("CPU ms a request: scheduler", cpu("scheduler")),
    Row("... Placement", cpu("placement")),
    Row("... MariaDB", cpu("mariadb")),
    Row("... RabbitMQ", cpu("rabbitmq")),
    Row("... agents", cpu("agents"), compared=False),
    Row("... all of these", cpu(*SYSTEM)),
    Row("... all without background", without_background),
    Row("... (the caller)", cpu("client")),
    Row("calls to Placement: candidates", calls("candidates"), compared=False),
    Row("... writes of allocations", calls("writes"), compared=False),
    Row("... other", calls("other"), compared=False),
    Row("... agents' reads", calls("agents_reads"), compared=False),
    Row("... answered 409", calls("conflicts"), compared=False),
    Row("Placement's time for a write, ms", lambda one: one.write_ms),
    Row("scheduler's statements: reads", statements("scheduler", "select_commands"), compared=False),
    Row("... writes", statements("scheduler", "update_commands"), compared=False),
    Row("... rows it was sent", statements("scheduler", "rows_sent"), compared=False),
    Row("Placement's statements: reads", statements("placement", "select_commands"), compared=False),
    Row("... writes", statements("placement", "update_commands"), compared=False),
    Row("... rows it was sent", statements("placement", "rows_sent"), compared=False),
    Row("claims refused or overtaken, of 100", lambda one: in_a_hundred(one.claims), compared=False),
    Row(
        "claims whose agent was late or away",
        lambda one: one.claims.get("late", 0) + one.claims.get("returned", 0),
        compared=False,
    ),
    Row("messages a request: published", messages("published", *OF_A_SERVER), compared=False),
    Row("... delivered", messages("delivered", *OF_A_SERVER), compared=False),
    Row("requests answered", lambda one: one.answered, compared=False),
    Row("distinct hosts chosen", lambda one: one.distinct_hosts, compared=False),
    Row("servers on the busiest host", lambda one: one.busiest_host, compared=False),
    Row("alternates a request", lambda one: one.alternates_each, compared=False),
)


MAIN: tuple[Figure, ...] = (per_second, lambda one: one.median_ms, cpu("scheduler"), cpu(*SYSTEM), without_background)
RATIOS: tuple[Figure, ...] = (per_second, cpu("scheduler"), cpu(*SYSTEM))


def number(value: float) -> str:
    """A number with three significant digits."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def cell(found: Spread | None) -> str:
    """`median (low-high)`; the extremes only if there are several repeats that differ."""
    if found is None:
        return "-"
    if number(found.low) == number(found.high):
        return number(found.median)
    return f"{number(found.median)} ({number(found.low)}-{number(found.high)})"


def table(results: Results, hosts: int, callers: int) -> Table:
    """All figures of one size and number of callers."""
    names = list(dict.fromkeys(one.contestant for one in results.rounds if one.hosts == hosts))
    ours = [name for name in names if name != STOCK] if STOCK in names else []
    head = ["", *names, *(f"{name} / stock" for name in ours)]
    rows = []
    for row in ROWS:
        cells = [cell(across(results, name, hosts, callers, row.figure)) for name in names]
        against = ours if row.compared else []
        ratios = [times(ratio(results, hosts, callers, row.figure, name, STOCK)) for name in against]
        ratios += [""] * (len(ours) - len(ratios))
        rows.append([row.title, *cells, *ratios])
    return Table(head, rows, f"{hosts:,} hosts, {people(callers)}")


def times(found: Spread | None) -> str:
    """A ratio as text: `33 times`, or `1/30`."""
    if found is None or found.median == 0:
        return "-"
    spoken = sorted((found.low, found.high))
    span = "" if found.count == 1 else f" ({_one_ratio(spoken[0])} to {_one_ratio(spoken[1])})"
    return _one_ratio(found.median) + span


def _one_ratio(value: float) -> str:
    return f"{value:.3g}x" if value >= 1 else f"1/{1 / value:.3g}"


def people(callers: int) -> str:
    return "one caller" if callers == 1 else f"{callers} callers"


def summary(results: Results) -> Table:
    """One line for each size, contestant and number of callers, with the main figures."""
    head = ["", "requests a second", "median ms", "CPU ms: scheduler", "all", "without background", "rate / stock",
            "CPU / stock: scheduler", "all"]  # fmt: skip
    rows = []
    keys = dict.fromkeys((o.hosts, m.callers, o.contestant) for o in results.rounds for m in o.measurements)
    for hosts, callers, name in sorted(keys, key=lambda key: key[:2]):
        own = [cell(across(results, name, hosts, callers, figure)) for figure in MAIN]
        against = [times(ratio(results, hosts, callers, figure, name, STOCK)) for figure in RATIOS]
        against = ["", "", ""] if name == STOCK else against
        rows.append([f"{hosts:,} hosts, {people(callers)}: {name}", *own, *against])
    return Table(head, rows)


def lives(results: Results, hosts: int) -> Table:
    """The figures that do not depend on the callers: start, idle cost, memory, checks."""
    head = ["contestant", "listens after, s", "knows all after, s", "idle cores: scheduler", "agents", "rabbitmq",
            "placement", "mariadb", "idle: agents' reads a second", "memory MB", "requests failed", "claims refused",
            "allocations checked", "beyond capacity", "answered, not held", "held, not answered",
            "hosts of each scheduler"]  # fmt: skip
    rows = []
    for one in results.rounds:
        if one.hosts == hosts:
            idle = [f"{one.idle_cpu_share.get(name, 0.0):.3f}" for name in IDLE]
            idle.append(number(one.idle_calls.get("agents_reads", 0.0)))
            found = one.check
            rows.append([
                f"{one.contestant} #{one.repeat}", f"{one.ready_s:.1f}", f"{one.warm_s:.1f}", *idle,
                str(one.memory_mb.get("scheduler", "-")), str(one.failures()),
                str(one.agents.get("refused", "-")), str(found.consumers), str(len(found.over)), str(found.missing),
                str(found.surplus), ", ".join(map(str, one.hosts_of_schedulers)) or "-",
            ])  # fmt: skip
    return Table(head, rows, f"{hosts:,} hosts, each life")


def messages_of(results: Results, hosts: int) -> Table:
    """Each kind of message: counted, and by the formula of doc/source/admin/large_clouds.rst."""
    head = ["", *(f"{part}{direction}" for direction in DIRECTIONS for part in ("", "formula: "))]
    rows = [row for one in results.rounds if one.hosts == hosts for row in _messages_of_round(one)]
    return Table(head, rows, f"{hosts:,} hosts, messages of the state channel")


def _messages_of_round(one: Round) -> Iterator[list[str]]:
    name = f"{one.contestant} #{one.repeat}"
    if one.idle_messages.counts:
        yield [f"{name}, idle: heartbeats a second", *_rates(one.idle_messages, one, "heartbeat")]
    for measurement in one.measurements:
        if measurement.messages.counts:
            yield from _messages_of_measurement(f"{name}, {people(measurement.callers)}", one, measurement)


def _messages_of_measurement(name: str, one: Round, measurement: Measurement) -> Iterator[list[str]]:
    formula = expected(one.schedulers)
    for title, kinds in (*((kind, (kind,)) for kind in OF_A_SERVER), ("all of these", OF_A_SERVER)):
        cells = list[str]()
        for direction in DIRECTIONS:
            cells.append(number(messages(direction, *kinds)(measurement)))
            cells.append(number(sum(formula[direction][kind] for kind in kinds)))
        yield [f"{name}: {title} a request", *cells]
    yield [f"{name}: heartbeats a second", *_rates(measurement.messages, one, "heartbeat")]
    others = [kind for kind in OTHERS if kind != "heartbeat"]
    counts = [number(count_of(measurement.messages.counts, direction, *others)) for direction in DIRECTIONS]
    yield [f"{name}: all others, in {measurement.messages.seconds:.0f} s", counts[0], "", counts[1], ""]


def _rates(found: Messages, one: Round, kind: str) -> Iterator[str]:
    """Heartbeats; the formula is that of hosts that do not change."""
    for direction, copies in zip(DIRECTIONS, (1, one.schedulers), strict=True):
        yield number(count_of(found.counts, direction, kind) / found.seconds)
        yield number(copies * one.hosts / HEARTBEAT_MEAN_S)


def bursts(results: Results) -> Table:
    """Each burst; `/ write alone`: the time compared with that of the same writes without a scheduler."""
    head = ["", "servers", "requests", "placed", "failed", "not asked", "seconds", "/ write alone", "median s", "p95 s",
            "writes", "CPU s: Placement, MariaDB", "hosts", "load before"]  # fmt: skip
    alone = [one for one in results.rounds if one.contestant == ALONE]
    alone_s = {(one.hosts, burst.servers): burst.wall_s for one in alone for burst in one.bursts}
    rows = []
    for one in results.rounds:
        for burst in one.bursts:
            least_s = alone_s.get((one.hosts, burst.servers))
            rows.append([
                f"{one.hosts:,} hosts: {one.contestant} #{one.repeat}", str(burst.servers), str(burst.requests),
                str(burst.placed), str(burst.failures), str(burst.not_asked), number(burst.wall_s),
                "-" if least_s is None else times(spread([burst.wall_s / least_s])), number(burst.median_s),
                number(burst.p95_s), str(burst.writes), number(burst.placement_s), str(burst.distinct_hosts),
                f"{burst.load_before:.1f}",
            ])  # fmt: skip
    return Table(head, rows, "Bursts")


def introduction(results: Results) -> str:
    machine = results.machine
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    loads = [one.load_before for life in results.rounds for one in life.measurements]
    loads += [one.load_before for life in results.rounds for one in life.bursts]
    loads = loads or machine["load"]
    return (
        f"Commit {machine['commit']}; {machine['cores']} cores of {machine['processor']}, {machine['memory_gb']} GB, "
        f"kernel {machine['kernel']}; Python {machine['python']}{_speed(machine)}, MariaDB {machine['mariadb']}"
        f"{' whose commits wait for the disk' if results.plan.get('durable') else ''}, "
        f"RabbitMQ {machine['rabbitmq']}; {packages}. Medians of the repeats, their extremes in brackets; "
        f"ratios are taken repeat by repeat. Load average before the measurements: {min(loads)} to {max(loads)} "
        f"(the benchmark itself makes about 2 to 3 of it)."
    )


def _speed(machine: Mapping[str, Any]) -> str:
    loop_ms = machine.get("python_loop_ms")  # older results do not have it
    return "" if loop_ms is None else f" (the loop of machine.py takes {loop_ms} ms)"


def page_of(results: Results) -> str:
    """The main figures of a run, for the documentation; `--show` prints all figures of its file."""
    sizes = " and ".join(f"{size:,}" for size in sorted({one.hosts for one in results.rounds}))
    title = f"{sizes} hosts" + (", with placement_app" if results.plan.get("placement_app") else "")
    shown = bursts(results) if _has_bursts(results) else summary(results)
    return "\n".join([f"{title}\n{'-' * len(title)}\n", rst(introduction(results)), rst(shown)])


def report_of(results: Results) -> Report:
    """All tables; wrong if a request failed or Placement's allocations differ from the answers."""
    good = results.rounds and all(one.check.good() and not one.failures() for one in results.rounds)
    tables = [bursts(results)] if _has_bursts(results) else [summary(results), *_details(results)]
    return Report(results.as_json(), [introduction(results), *tables], not good)


def _has_bursts(results: Results) -> bool:
    return any(one.bursts for one in results.rounds)


def _details(results: Results) -> Iterator[Table]:
    for hosts in sorted({one.hosts for one in results.rounds}):
        for callers in sorted({m.callers for one in results.rounds for m in one.measurements}):
            yield table(results, hosts, callers)
        yield lives(results, hosts)
        if (sent := messages_of(results, hosts)).rows:
            yield sent
