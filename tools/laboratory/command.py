# SPDX-License-Identifier: Apache-2.0
"""The command `tools/lab`: finds the subcommand, runs it, prints its result and returns its exit code.

A subcommand is a module `command` in its own package with two functions: `parser()` with its manual and options, and
`run(asked, progress)`, which returns a `Report`.  Only the module of the chosen subcommand is imported, because some
of them import Nova, which takes seconds.
"""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from shared_scheduler.daemon.endings import INTERRUPTED
from tools.laboratory.errors import LabError
from tools.laboratory.manual import Manual
from tools.laboratory.report import ProgressLine

SUBCOMMANDS = {
    "cloud": "a real OpenStack cloud on this machine: up, boot, status, logs, down",
    "bench": "requests per second and their cost, compared with nova-scheduler",
    "decide": "the decision in memory, compared with Nova's own filter and weigher classes",
    "fuzz": "mutated messages against everything that receives messages",
    "mutate": "plants mistakes, and reports which of them the tests notice",
    "signing": "the cost of signing and verifying a message",
    "fire": "faults of a real message broker, under load",
    "chaos": "random operations and faults in a real cloud; afterwards all records must agree",
    "rounds": "pinned, huge-page and PCI requests that just fit: counts rescheduled builds",
    "records": "the time that each question takes with a million records, in each store",
    "groups": "members of server groups requested or moved at the same moment: counts violations",
}
LINKS = {
    "benchmark": "bench", "benchmark-decision": "decide", "chaos": "chaos", "cloud": "cloud", "fire": "fire",
    "rounds": "rounds",
}  # fmt: skip
"""Links to `tools/lab` by older names, and the subcommand of each."""

MANUAL = Manual(
    does="Experiments with this scheduler on one machine. All processes are private to a run and listen on loopback "
    "only; an experiment stops at its end all processes that it started.",
    needs="The packages that tools/install installs once: RabbitMQ, MariaDB, and two virtual environments. "
    "SHARED_SCHEDULER_VENVS=DIR names another directory of the environments.",
    lasts="From seconds (cloud status) to an hour (rounds); see `tools/lab SUBCOMMAND --help`.",
    examples=(
        ("tools/lab cloud --help", "the manual of one subcommand"),
        ("tools/lab cloud up --computes 3", "a cloud with three computes"),
        ("tools/lab bench --hosts 100 --repeats 1", "a short benchmark"),
        ("tools/lab decide --only plain --hosts 10000", "one workload of the decision"),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None and (linked := LINKS.get(Path(sys.argv[0]).name)):
        arguments.insert(0, linked)
    if not arguments or arguments[0] not in SUBCOMMANDS:
        return _without_subcommand(arguments)
    return run(arguments[0], arguments[1:])


def _without_subcommand(arguments: Sequence[str]) -> int:
    """Print the manual, or the error in the command line; `argparse` ends the process."""
    parser = MANUAL.parser("tools/lab")
    rooms = parser.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)
    for name, text in SUBCOMMANDS.items():
        rooms.add_parser(name, help=text)
    parser.parse_args(arguments)
    raise AssertionError(f"{arguments} name a subcommand after all")


def run(name: str, arguments: Sequence[str]) -> int:
    """Run the subcommand `name`; returns the exit code."""
    room = importlib.import_module(f"tools.laboratory.{name}.command")
    asked = room.parser().parse_args(arguments)
    try:
        with ProgressLine() as progress:
            report = room.run(asked, progress)
        report.show(asked.format)
        return 1 if report.wrong else 0
    except LabError as error:
        print(f"tools/lab {name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"tools/lab {name}: interrupted", file=sys.stderr)
        return INTERRUPTED
