# SPDX-License-Identifier: Apache-2.0
"""`tools/lab decide`: measures the decision in memory and compares it with Nova's own classes in one run."""

import argparse
from pathlib import Path

from tools.laboratory.manual import Manual
from tools.laboratory.report import ProgressLine, Report, add_format

WORKLOADS = Path(__file__).resolve().parent / "workloads.yaml"

MANUAL = Manual(
    does="Measures one decision in memory, and compares it with Nova's own filter and weigher classes on the same "
    "hosts and with a plain loop in Python. Also measures increments per second, a burst of increments, one RPC "
    "call, memory, and the growth of a decision with survivors, aggregates and flavors. Figures and plots are "
    "written to --results.",
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
                      help="file of the workloads (default: workloads.yaml of this tool)")  # fmt: skip
    made.add_argument("--only", nargs="*", metavar="NAME", help="names of the workloads to measure")
    made.add_argument("--hosts", type=int, nargs="*", metavar="N",
                      help="numbers of hosts, instead of those of the workloads")  # fmt: skip
    made.add_argument("--decisions", type=int, default=400, metavar="N",
                      help="number of measured decisions of each kind (default 400)")  # fmt: skip
    made.add_argument("--repeats", type=int, default=1, metavar="N", help="repeats of the whole run (default 1)")
    made.add_argument("--nova-hosts-max", type=int, default=10_000, metavar="N",
                      help="maximum number of hosts for the comparison with Nova (default 10000)")  # fmt: skip
    made.add_argument("--decisions-only", action="store_true",
                      help="do not measure increments, bursts, calls, memory and growth")  # fmt: skip
    made.add_argument("--results", type=Path, default=Path("benchmark-decision"), metavar="DIR",
                      help="directory of results.json and plots (default benchmark-decision)")  # fmt: skip
    add_format(made)
    return made


def run(asked: argparse.Namespace, progress: ProgressLine) -> Report:
    """Measure, write figures and plots, and compare with the targets."""
    from tools.laboratory.decide import experiment  # imports Nova, which takes seconds: not for --help

    return experiment.run(asked, progress)
