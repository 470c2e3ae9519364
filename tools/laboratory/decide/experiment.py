# SPDX-License-Identifier: Apache-2.0
"""The whole run of `tools/lab decide`: measures, judges the targets, writes figures and plots.

Results are ratios of the same run, because machines differ.  Other programs on the machine affect wall times more than
CPU times.
"""

import argparse
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from tools.laboratory import machine
from tools.laboratory.decide import burst, call, growth, nova_side, streams
from tools.laboratory.decide.measure import Result, measure
from tools.laboratory.decide.workloads import Workload
from tools.laboratory.errors import LabError
from tools.laboratory.plot import svg
from tools.laboratory.report import ProgressLine, Report, Table, save

FORMAT = 1
#: the code that measures, besides the product
MEASURED = "tools/laboratory/decide"

#: (workload, what, at least): targets at 10,000 hosts, as ratios in the same run
TARGETS = (
    ("plain", "times_nova", 5000),
    ("plain", "times_python", 200),
    ("server_group", "times_nova", 1000),
    ("aggregates", "times_nova", 1000),
    ("numa_pinned", "times_nova", 200),
)
TARGET_HOSTS = 10_000
#: (measurement, value, the bound, whether more is better)
TABLE_TARGETS = (
    ("increments", "per_second", 100_000, True),
    ("burst", "slice_max_ms", 5, False),
    ("call", "call_us", 2_500, False),
    ("memory", "mib", 100, False),
)
#: CPU time of a decision by workload, and how much longer the slowest of a hundred may take
CPU_US_MAX = {"plain": 150, "spread_hard": 200, "spread_soft": 200}
P99_TIMES_MAX = 5


@dataclass(frozen=True)
class Target:
    """A figure that was measured, and its bound."""

    name: str
    what: str
    value: float
    bound: float
    more_is_better: bool

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.more_is_better else self.value <= self.bound

    def row(self) -> list[str]:
        limit = "at least" if self.more_is_better else "at most"
        return ["met" if self.met else "MISSED", self.name, self.what, f"{self.value:,.1f}", f"{limit} {self.bound:,}"]


def run(asked: argparse.Namespace, progress: ProgressLine) -> Report:
    """Measure, write figures and plots, and judge the targets."""
    workloads = load(asked.workloads, asked.only)
    nova_side.prepare()
    made_of = machine.commit(MEASURED)  # at the start, because others may commit during the run
    results = measured(asked, workloads, progress)
    table = {} if asked.decisions_only else of_the_table(progress)
    grows = {} if asked.decisions_only else growth.growth(TARGET_HOSTS)
    found = data(made_of, results, table, grows)
    write(asked.results, found, results, grows)
    targets = judged([result for _, result in results], table)
    return Report(
        found | {"targets": [target.row() for target in targets]},
        [*tables(results, table, targets), f"written: {asked.results / 'results.json'} and plots beside it"],
        not all(target.met for target in targets),
    )  # fmt: skip


def measured(asked: argparse.Namespace, workloads: list[Workload], progress: ProgressLine) -> list[tuple[int, Result]]:
    """Number of the repeat and result of each workload and size."""
    plan = [
        (repeat, workload, hosts)
        for repeat in range(asked.repeats)
        for workload in workloads
        for hosts in asked.hosts or workload.hosts
    ]
    progress.expect(len(plan), "measurements")
    results = []
    for repeat, workload, hosts in plan:
        most = min(asked.decisions, workload.decisions)
        decisions = max(5, most // workload.instances // max(1, hosts // 20_000))
        result = measure(workload, hosts, decisions, asked.nova_hosts_max)
        results.append((repeat, result))
        progress.say(line(result))
        progress.step()
    return results


def of_the_table(progress: ProgressLine) -> dict[str, dict[str, Any]]:
    """The measurements besides decisions, at ``TARGET_HOSTS``."""
    found = {
        "increments": streams.increments(TARGET_HOSTS, 10 * TARGET_HOSTS),
        "burst": burst.burst(TARGET_HOSTS, TARGET_HOSTS),
        "call": call.call(TARGET_HOSTS),
        "memory": streams.memory(TARGET_HOSTS, 0),
        "memory, 20 instances a host": streams.memory(TARGET_HOSTS, 20),
    }
    for name, values in found.items():
        progress.say(f"{name}: " + ", ".join(f"{key} {value:,.2f}" for key, value in values.items()))
    return found


def load(path: Path, only: list[str] | None) -> list[Workload]:
    """The workloads of a file.

    :raises LabError: when it has no workload with one of the names
    """
    raw = yaml.safe_load(path.read_text())["workloads"]
    unknown = set(only or ()) - raw.keys()
    if unknown:
        raise LabError(f"{path} has no workload {', '.join(sorted(unknown))}; it has {', '.join(raw)}")
    return [Workload(name, **value) for name, value in raw.items() if not only or name in only]


def line(result: Result) -> str:
    """One result as a line of text."""
    return ", ".join(f"{name} {cell}" for name, cell in zip(HEAD, row(result), strict=True) if cell)


HEAD = ("", "hosts", "pass", "cpu us p50", "p99", "first us", "Nova ms", "times Nova", "times a loop")


def row(result: Result) -> list[str]:
    """One row of the table."""
    cells = [result.workload, f"{result.hosts:,}", f"{result.survivors:,}", f"{result.cpu_us.p50:,.0f}",
             f"{result.cpu_us.p99:,.0f}", f"{result.first_us:,.0f}"]  # fmt: skip
    if not result.nova_us:
        return [*cells, "", "", ""]
    return [*cells, f"{min(result.nova_us) / 1000:,.0f}", f"{result.times_nova:,.0f}", f"{result.times_python:,.0f}"]


def tables(results: list[tuple[int, Result]], table: dict[str, dict[str, Any]], targets: list[Target]) -> list[Table]:
    """Decisions, the other measurements, and the targets."""
    others = [[name, key, f"{value:,.2f}"] for name, values in table.items() for key, value in values.items()]
    return [
        Table(HEAD, [row(result) for _, result in results]),
        *([Table(["", "figure", "value"], others, left=(0, 1))] if others else []),
        Table(["target", "of", "figure", "value", "bound"], [target.row() for target in targets], left=(0, 1, 2)),
    ]


def data(made_of: str, results: list[tuple[int, Result]], table: dict[str, Any],
         grows: dict[str, growth.Points]) -> dict[str, Any]:  # fmt: skip
    """Everything, with versions and machine."""
    about = machine.describe()
    return {
        "format": FORMAT,
        "commit": made_of,
        "versions": {"python": about["python"], "numpy": version("numpy"), "nova": version("nova")},
        "machine": {"cpus": about["cores"], "processor": about["processor"], "load_average": about["load"]},
        "results": [{"repeat": repeat, **result.as_dict()} for repeat, result in results],
        "table": table,
        "growth": grows,
    }


def write(where: Path, found: dict[str, Any], results: list[tuple[int, Result]],
          grows: dict[str, growth.Points]) -> None:  # fmt: skip
    """Write JSON, and plots in the same directory."""
    save(where / "results.json", found)
    plot_hosts(where / "hosts.svg", results)
    for name, points in grows.items():
        title = f"CPU time of one decision at {TARGET_HOSTS:,} hosts"
        (where / f"{name}.svg").write_text(svg(title, name, "microseconds", {"": points}))


def plot_hosts(path: Path, results: list[tuple[int, Result]]) -> None:
    """Plot how each workload grows with the number of hosts."""
    ours: dict[str, list[tuple[float, float]]] = {}
    for _, result in results:
        ours.setdefault(result.workload, []).append((result.hosts, result.cpu_us.p50))
        if result.nova_us and result.workload == "plain":
            ours.setdefault("Nova's classes, plain", []).append((result.hosts, min(result.nova_us)))
    path.write_text(svg("CPU time of one decision", "hosts", "microseconds", ours))


def judged(results: list[Result], table: dict[str, Any]) -> list[Target]:
    """Every target that was measured."""
    there = [result for result in results if result.hosts == TARGET_HOSTS]
    found = [
        Target(name, what, getattr(result, what), least, True)
        for name, what, least in TARGETS
        for result in there
        if result.workload == name and result.nova_us
    ]
    for result in there:
        found.append(Target(result.workload, "p99 / p50", result.cpu_us.p99 / result.cpu_us.p50, P99_TIMES_MAX, False))
        if result.workload in CPU_US_MAX:
            bound = CPU_US_MAX[result.workload]
            found.append(Target(result.workload, "cpu us", result.cpu_us.p50, bound, False))
    of_table = [one for one in TABLE_TARGETS if one[0] in table]
    return found + [Target(name, what, table[name][what], bound, more) for name, what, bound, more in of_table]
