# SPDX-License-Identifier: Apache-2.0
"""``tools/benchmark-decision``: the decision in memory beside Nova's own classes, in one run.

Results are ratios of the same run, because machines differ; they are written as JSON with versions and
commit, and as plots.  Other programs on the machine disturb wall times, CPU times less.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from tools.decisionbench import burst, call, growth, nova_side, streams
from tools.decisionbench.fleet import Workload
from tools.decisionbench.measure import Result, measure
from tools.decisionbench.plot import svg

HERE = Path(__file__).resolve().parent
FORMAT = 1
#: what is measured, and what measures
MEASURED = (":/shared_scheduler", ":/tools/decisionbench")

#: (workload, what, at least): targets at 10,000 hosts, as ratios in the same run
TARGETS = (
    ("plain", "times_nova", 5000),
    ("plain", "times_python", 200),
    ("server_group", "times_nova", 1000),
    ("aggregates", "times_nova", 1000),
    ("numa_pinned", "times_nova", 200),
)
TARGET_HOSTS = 10_000
#: (measurement, value, worst that is good enough, whether more is better)
TABLE_TARGETS = (
    ("increments", "per_second", 100_000, True),
    ("burst", "slice_max_ms", 5, False),
    ("call", "call_us", 2_500, False),
    ("memory", "mib", 100, False),
)
#: CPU time of a plain decision, and how much longer the slowest of a hundred may take
PLAIN_US_MAX, P99_TIMES_MAX = 150, 5


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """See --help."""
    parser = argparse.ArgumentParser(prog="tools/benchmark-decision", description=__doc__)
    parser.add_argument("--workloads", type=Path, default=HERE / "workloads.yaml")
    parser.add_argument("--only", nargs="*", help="names of workloads")
    parser.add_argument("--hosts", type=int, nargs="*", help="instead of those of the workloads")
    parser.add_argument("--decisions", type=int, default=400, help="measured, each (default 400)")
    parser.add_argument("--repeats", type=int, default=1, help="of everything (default 1)")
    parser.add_argument(
        "--nova-hosts-max", type=int, default=10_000, help="no comparison beyond (default 10000)"
    )
    parser.add_argument(
        "--decisions-only", action="store_true", help="no increments, bursts, calls, memory, growth"
    )
    parser.add_argument("--results", type=Path, default=Path("benchmark-decision"))
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """0, or 1 if a target was missed."""
    asked = arguments(argv)
    nova_side.prepare()
    made_of = commit()
    results = []
    for repeat in range(asked.repeats):
        for workload in load(asked.workloads, asked.only):
            for hosts in asked.hosts or workload.hosts:
                most = min(asked.decisions, workload.decisions)
                decisions = max(5, most // workload.instances // max(1, hosts // 20_000))
                result = measure(workload, hosts, decisions, asked.nova_hosts_max)
                results.append((repeat, result))
                print(line(result), flush=True)
    table = {} if asked.decisions_only else of_the_table()
    grows = {} if asked.decisions_only else growth.growth(TARGET_HOSTS)
    write(asked.results, made_of, results, table, grows)
    return verdict([result for _, result in results], table)


def of_the_table() -> dict[str, dict[str, Any]]:
    """What is measured besides decisions, at ``TARGET_HOSTS``."""
    found = {
        "increments": streams.increments(TARGET_HOSTS, 10 * TARGET_HOSTS),
        "burst": burst.burst(TARGET_HOSTS, TARGET_HOSTS),
        "call": call.call(TARGET_HOSTS),
        "memory": streams.memory(TARGET_HOSTS, 0),
        "memory, 20 instances a host": streams.memory(TARGET_HOSTS, 20),
    }
    for name, values in found.items():
        print(f"{name}: " + ", ".join(f"{key} {value:,.2f}" for key, value in values.items()))
    return found


def load(path: Path, only: list[str] | None) -> list[Workload]:
    """The workloads of a file."""
    raw = yaml.safe_load(path.read_text())["workloads"]
    unknown = set(only or ()) - raw.keys()
    if unknown:
        sys.exit(f"{path} has no workload {', '.join(sorted(unknown))}; it has {', '.join(raw)}")
    return [Workload(name, **value) for name, value in raw.items() if not only or name in only]


def line(result: Result) -> str:
    """One result for people."""
    text = (
        f"{result.workload:18} {result.hosts:7,} hosts {result.survivors:7,} pass  "
        f"cpu us p50 {result.cpu_us.p50:8,.0f} p99 {result.cpu_us.p99:8,.0f}  "
        f"first {result.first_us:9,.0f}"
    )
    if result.nova_us:
        text += f"  nova {min(result.nova_us) / 1000:9,.0f} ms = {result.times_nova:8,.0f} x"
        text += f"  loop {result.times_python:6,.0f} x"
    return text


def write(
    where: Path,
    made_of: str,
    results: list[tuple[int, Result]],
    table: dict[str, Any],
    grows: dict[str, growth.Points],
) -> None:
    """JSON and plots beside one another."""
    where.mkdir(parents=True, exist_ok=True)
    data = {
        "format": FORMAT,
        "commit": made_of,
        "versions": {
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "nova": version("nova"),
        },
        "machine": {
            "cpus": os.cpu_count(),
            "processor": platform.processor() or platform.machine(),
            "load_average": os.getloadavg(),
        },
        "results": [{"repeat": repeat, **result.as_dict()} for repeat, result in results],
        "table": table,
        "growth": grows,
    }
    (where / "results.json").write_text(json.dumps(data, indent=2) + "\n")
    plot_hosts(where / "hosts.svg", results)
    for name, points in grows.items():
        title = f"CPU time of one decision at {TARGET_HOSTS:,} hosts"
        (where / f"{name}.svg").write_text(svg(title, name, "microseconds", {"": points}))
    print(f"written: {where / 'results.json'} and plots beside it")


def plot_hosts(path: Path, results: list[tuple[int, Result]]) -> None:
    """How each workload grows with hosts."""
    ours: dict[str, list[tuple[float, float]]] = {}
    for _, result in results:
        ours.setdefault(result.workload, []).append((result.hosts, result.cpu_us.p50))
        if result.nova_us and result.workload == "plain":
            ours.setdefault("Nova's classes, plain", []).append((result.hosts, min(result.nova_us)))
    path.write_text(svg("CPU time of one decision", "hosts", "microseconds", ours))


def commit() -> str:
    """What is measured: the commit of the checkout, with a plus where files differ from it that are part of
    the measurement; empty outside of a checkout.

    Ask at the start: others may commit meanwhile.
    """
    head = _git("rev-parse", "HEAD")
    measured = _git("status", "--porcelain", "--", *MEASURED)
    return f"{head}+" if head and measured else head


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=HERE)
    return done.stdout.strip()


def verdict(results: list[Result], table: dict[str, Any]) -> int:
    """Say which targets were met; 1 if one was missed."""
    missed = 0
    for name, what, least in TARGETS:
        found = [r for r in results if r.workload == name and r.hosts == TARGET_HOSTS and r.nova_us]
        for result in found:
            missed += not told(name, what, getattr(result, what), least, True)
    for result in results:
        if result.hosts == TARGET_HOSTS:
            ratio = result.cpu_us.p99 / result.cpu_us.p50
            missed += not told(result.workload, "p99 / p50", ratio, P99_TIMES_MAX, False)
            if result.workload == "plain":
                missed += not told("plain", "cpu us", result.cpu_us.p50, PLAIN_US_MAX, False)
    for name, what, bound, more in TABLE_TARGETS:
        if name in table:
            missed += not told(name, what, table[name][what], bound, more)
    return 1 if missed else 0


def told(name: str, what: str, value: float, bound: float, more_is_better: bool) -> bool:
    """Whether a target is met; says so."""
    met = value >= bound if more_is_better else value <= bound
    limit = "at least" if more_is_better else "at most"
    print(f"{'met' if met else 'MISSED'}: {name} {what} {value:,.1f}, {limit} {bound:,}")
    return met
