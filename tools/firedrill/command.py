# SPDX-License-Identifier: Apache-2.0
"""The command line of the drill."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .drill import Drill, Finding
from .faults import Fault, faults
from .ground import DrillError, Ground, Sizes
from .pace import HURRIED, Pace
from .report import Report, page_of

EPILOG = """
Private processes on loopback only; everything is ended and removed at the end. Ends with 1 if anything was wrong:
a request that hung, room promised twice, a table that stayed wrong, a fault that did not do what it is for.
"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="tools/fire", epilog=EPILOG,
        description="Faults on a real RabbitMQ, with schedulers, simulated agents and a steady stream of requests.",
    )  # fmt: skip
    made.add_argument("--agents", type=int, default=1000, help="simulated agents (default: %(default)s)")
    made.add_argument("--schedulers", type=int, default=4, help="schedulers, a process each (default: %(default)s)")
    made.add_argument("--processes", type=int, default=4, help="processes that share the agents (default: %(default)s)")
    made.add_argument("--rate", type=float, default=10.0, help="requests a second (default: %(default)s)")
    made.add_argument("--faults", default="", help="names, with commas; default all; 'none' only joins")
    made.add_argument("--hurried", action="store_true", help="beats and heartbeats of seconds instead of the product's")
    made.add_argument("--list", action="store_true", help="name the faults and end")
    made.add_argument("--save", type=Path, metavar="JSON", help="write the figures there")
    made.add_argument("--page", type=Path, metavar="RST", help="write the table there, below its marker line")
    made.add_argument("--show", type=Path, metavar="JSON", nargs="+", help="only print the table of earlier runs")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parser().parse_args(arguments)
    pace = HURRIED if asked.hurried else Pace()
    if asked.list:
        print("\n".join(f"{fault.name:24} {fault.story}" for fault in faults(pace)))
        return 0
    try:
        reports = [Report.read(path) for path in asked.show] if asked.show else [_run(asked, pace)]
    except DrillError as error:
        print(f"tools/fire: {error}", file=sys.stderr)
        return 1
    print("\n".join(report.text() for report in reports))
    if asked.page:
        asked.page.write_text(page_of(asked.page.read_text(), reports))
    return 1 if any(report.wrong for report in reports) else 0


def _run(asked: argparse.Namespace, pace: Pace) -> Report:
    sizes = Sizes(asked.agents, asked.schedulers, asked.processes, asked.rate)
    with Ground(sizes, pace, _say) as ground:
        drill = Drill(ground, _say)
        try:
            findings: list[Finding] = []
            for found in carry_out(drill, _chosen(asked.faults, pace)):
                findings.append(found)
                _say(f"  {found.healed_s:.1f} s; {found.requests}; wrong: {found.wrong + found.unseen or 'nothing'}")
                report = Report.of(ground, findings)
                _save(asked.save, report)
            return report
        finally:
            drill.end()


def _chosen(names: str, pace: Pace) -> list[Fault]:
    known = {fault.name: fault for fault in faults(pace)}
    wanted = [name for name in names.split(",") if name and name != "none"] if names else list(known)
    if unknown := set(wanted) - known.keys():
        raise DrillError(f"no such fault: {', '.join(sorted(unknown))}; --list names them")
    return [known[name] for name in wanted]


def carry_out(drill: Drill, chosen: Sequence[Fault]) -> Iterator[Finding]:
    """Join, then one fault after the other."""
    yield drill.join()
    yield from map(drill.suffer, chosen)


def _save(path: Path | None, report: Report) -> None:
    """After each fault: a run takes long, and may be interrupted."""
    if path:
        path.write_text(json.dumps(report.as_dict(), indent=1) + "\n")


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)
