# SPDX-License-Identifier: Apache-2.0
"""`tools/lab decide`: the decision in memory beside Nova's own classes, in one run."""

import argparse
from pathlib import Path

from tools.laboratory.manual import Manual
from tools.laboratory.report import ProgressLine, Report, add_format

WORKLOADS = Path(__file__).resolve().parent / "workloads.yaml"

MANUAL = Manual(
    does="How fast one decision is in memory, beside Nova's own filter and weigher classes over the same hosts, and "
    "beside a bare loop in Python. Also: increments a second, a burst of increments, one RPC call, memory, and "
    "how a decision grows with survivors, aggregates and flavors. Figures and plots are written to --results.",
    needs="tools/install; no service runs. 2 GB of memory for 100,000 hosts.",
    lasts="All workloads: 15 minutes. One workload at one size: seconds; Nova's classes take most of it.",
    examples=(
        ("tools/lab decide --only plain --hosts 10000 --decisions-only", "one workload"),
        ("tools/lab decide --repeats 3 --results DIR", "everything, three times"),
        ("tools/lab decide --only plain --hosts 1000 --format json", "the figures, for a program"),
    ),
    wrong="a target that is missed",
)


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = MANUAL.parser("tools/lab decide")
    made.add_argument("--workloads", type=Path, default=WORKLOADS, metavar="FILE",
                      help="default: workloads.yaml beside the program")  # fmt: skip
    made.add_argument("--only", nargs="*", metavar="NAME", help="names of workloads")
    made.add_argument("--hosts", type=int, nargs="*", metavar="N", help="instead of those of the workloads")
    made.add_argument("--decisions", type=int, default=400, metavar="N", help="measured, each (default 400)")
    made.add_argument("--repeats", type=int, default=1, metavar="N", help="of everything (default 1)")
    made.add_argument("--nova-hosts-max", type=int, default=10_000, metavar="N",
                      help="no comparison beyond (default 10000)")  # fmt: skip
    made.add_argument("--decisions-only", action="store_true", help="no increments, bursts, calls, memory, growth")
    made.add_argument("--results", type=Path, default=Path("benchmark-decision"), metavar="DIR",
                      help="for results.json and plots (default benchmark-decision)")  # fmt: skip
    add_format(made)
    return made


def run(asked: argparse.Namespace, progress: ProgressLine) -> Report:
    """Measure, write figures and plots, and judge the targets."""
    from tools.laboratory.decide import experiment  # imports Nova, which takes seconds: not for --help

    return experiment.run(asked, progress)
