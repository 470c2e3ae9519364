# SPDX-License-Identifier: Apache-2.0
"""The command line of `tools/rounds`."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from . import rounds
from .cli import show
from .cloud import Cloud
from .errors import CloudError

DESCRIPTION = """Pinned CPUs, huge pages and PCI devices that just fit, asked for at the same moment, round after
round, on a real cloud: how many builds come back? Under our schedulers and under nova-scheduler, in turns, on one
machine.
Exits with 1 if a round of ours had a reschedule or a failure."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="tools/rounds", description=DESCRIPTION,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    top.add_argument("--data", type=Path, default=None, metavar="DIR", help="of the cloud, as for tools/cloud")
    top.add_argument("--rounds", type=int, default=100, help="under our schedulers (default 100)")
    top.add_argument("--stock", type=int, default=None, help="rounds under nova-scheduler (default: as many)")
    top.add_argument("--block", type=int, default=10, help="of our rounds before it is the other's turn (default 10)")
    top.add_argument("--schedulers", type=int, default=4, help="processes of each kind (default 4)")
    top.add_argument("--computes", type=int, default=3, help="default 3")
    top.add_argument("--save", type=Path, metavar="FILE", help="write all figures there, after each round")
    top.add_argument("--show", type=Path, metavar="FILE", help="only print the figures of a saved run")
    top.add_argument("--format", choices=("text", "json", "rst"), default="text")
    top.add_argument("--keep", action="store_true", help="leave the cloud running")
    return top


def main(argv: list[str] | None = None) -> int:
    """Run, print the table; 1 if ours did not do what it has to."""
    arguments = parser().parse_args(argv)
    if arguments.show:
        print_results(json.loads(arguments.show.read_text()), arguments.format)
        return 0
    cloud = Cloud(arguments.data, say)
    try:
        return run(cloud, arguments)
    except CloudError as error:
        print(f"tools/rounds: {error}", file=sys.stderr)
        return 1
    finally:
        if not arguments.keep:
            cloud.down()


def run(cloud: Cloud, arguments: argparse.Namespace) -> int:
    rounds.begin(cloud, arguments.schedulers, arguments.computes)
    stock = arguments.rounds if arguments.stock is None else arguments.stock

    def keep(played: list[rounds.Round]) -> None:
        say(f"{len(played)} of {arguments.rounds + stock} rounds: {played[-1]}")
        if arguments.save:
            arguments.save.write_text(json.dumps(rounds.results(cloud, played), indent=1) + "\n")

    played = rounds.contest(cloud, arguments.rounds, stock, arguments.block, keep)
    print_results(rounds.results(cloud, played), arguments.format)
    rounds.check(played)
    return 0


def say(line: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {line}", file=sys.stderr, flush=True)


def print_results(found: dict[str, Any], form: str) -> None:
    """The table, or everything as JSON."""
    if form == "json":
        print(json.dumps(found, indent=1))
    elif form == "rst":
        print(rst(found["table"]))
    else:
        show(found["table"])


def rst(rows: list[dict[str, Any]]) -> str:
    """A list-table of reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for values in [list(rows[0]), *(row.values() for row in rows)]:
        for index, value in enumerate(values):
            lines.append(f"   {'* -' if index == 0 else '  -'} {value}")
    return "\n".join(lines)
