# SPDX-License-Identifier: Apache-2.0
"""The command line of `tools/chaos`."""

import argparse
import json
import sys
import time
from pathlib import Path

from ..cloud import Cloud
from ..errors import CloudError
from . import run

DESCRIPTION = """Servers are booted, resized, migrated, evacuated, shelved, rebuilt, put into groups and deleted
at random, by several users at once, in a real cloud of 8 computes in 2 cells with 3 schedulers, while schedulers are
killed, hosts disabled and computes lost. At the end Nova, Placement, agents and tables have to say the same, and every
failed request has to have told its true reason. Exits with 1 if anything is wrong."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="tools/chaos", description=DESCRIPTION,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    top.add_argument("--data", type=Path, default=None, metavar="DIR", help="of the cloud, as for tools/cloud")
    top.add_argument("--minutes", type=float, default=10, help="default 10")
    top.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    top.add_argument("--users", type=int, default=run.USERS, help=f"at the same time (default {run.USERS})")
    top.add_argument("--format", choices=("text", "json"), default="text")
    top.add_argument("--save", type=Path, metavar="FILE", help="write the report there too, as JSON")
    top.add_argument("--keep", action="store_true", help="leave the cloud running")
    return top


def main(argv: list[str] | None = None) -> int:
    """Run and print the report; 1 if anything is wrong."""
    arguments = parser().parse_args(argv)
    cloud = Cloud(arguments.data, say)
    seed = arguments.seed if arguments.seed is not None else int(time.time())
    try:
        report = run.run(cloud, seed, arguments.minutes, say, arguments.users)
    except CloudError as error:
        print(f"tools/chaos: seed {seed}: {error}", file=sys.stderr)
        return 1
    finally:
        if not arguments.keep:
            cloud.down()
    text = json.dumps(run.as_dict(report), indent=1)
    if arguments.save:
        arguments.save.write_text(text + "\n")
    print(text if arguments.format == "json" else told(report))
    return 1 if report.wrong else 0


def say(line: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {line}", file=sys.stderr, flush=True)


def told(report: run.Report) -> str:
    """The report for people."""
    deeds = [f"  {name:16} {count['ok']:5} ok {count['failed']:5} failed" for name, count in report.deeds.items()]
    failures = [f"  {count:5} {why}" for why, count in report.failures.items()]
    blows = [f"  {count:5} {name}" for name, count in report.blows.items()]
    wrong = [f"  {line}" for line in report.wrong]
    return "\n".join([
        f"seed {report.seed}, {report.minutes} minutes", *deeds,
        "failures:", *(failures or ["  none"]), "blows:", *(blows or ["  none"]),
        "wrong:" if wrong else "nothing is wrong", *wrong, *report.lives,
    ])  # fmt: skip
