# SPDX-License-Identifier: Apache-2.0
"""`tools/lab chaos`: random operations and faults in a real cloud."""

import argparse
import time
from pathlib import Path

from tools.laboratory.chaos import run as chaos
from tools.laboratory.cloud.cloud import add_cloud, passing_cloud
from tools.laboratory.errors import LabError
from tools.laboratory.manual import Manual
from tools.laboratory.report import ProgressLine, Report, Table, add_format, save

MANUAL = Manual(
    does="Servers are booted, resized, migrated, evacuated, shelved, rebuilt, put into groups and deleted at "
    "random, by several users at once, in a real cloud of 8 computes in 2 cells with 3 schedulers, while "
    "schedulers are killed, hosts disabled and computes lost. At the end Nova, Placement, agents and tables "
    "must agree, and every failed request must have reported the correct reason.",
    needs="What `tools/lab cloud` needs; 5 GB of memory.",
    lasts="The value of --minutes, and four more to start, to compare and to stop.",
    examples=(
        ("tools/lab chaos --minutes 2", "a short run with a new seed, which is printed"),
        ("tools/lab chaos --minutes 10 --seed 1 --save FILE", "a run whose choices can be repeated"),
    ),
    wrong="records that do not agree, or a failure with a wrong reason",
)


def parser() -> argparse.ArgumentParser:
    """The options."""
    top = MANUAL.parser("tools/lab chaos")
    add_cloud(top)
    top.add_argument("--minutes", type=float, default=10, help="duration of the operations (default 10)")
    top.add_argument("--seed", type=int, default=None, help="seed of all random choices (default: random, printed)")
    top.add_argument("--users", type=int, default=chaos.USERS,
                     help=f"number of users at the same time (default {chaos.USERS})")  # fmt: skip
    top.add_argument("--save", type=Path, metavar="FILE", help="also write the report to FILE (JSON)")
    add_format(top)
    return top


def run(asked: argparse.Namespace, progress: ProgressLine) -> Report:
    """One run."""
    seed = asked.seed if asked.seed is not None else int(time.time())
    with passing_cloud(asked, progress.say) as cloud:
        try:
            found = chaos.run(cloud, seed, asked.minutes, progress, asked.users)
        except LabError as error:
            raise LabError(f"seed {seed}: {error}") from None
    save(asked.save, chaos.as_dict(found))
    return report_of(found)


def report_of(found: chaos.Report) -> Report:
    """Tables of the operations, the reasons of failed requests and the faults, then the failed checks."""
    operations = [[name, str(count["ok"]), str(count["failed"])] for name, count in found.operations.items()]
    return Report(chaos.as_dict(found), [
        f"seed {found.seed}, {found.minutes} minutes",
        Table(["operation", "ok", "failed"], operations),
        Table(["reason of failures", "count"], [[why, str(count)] for why, count in found.failures.items()]),
        Table(["fault", "count"], [[name, str(count)] for name, count in found.faults.items()]),
        "failed checks:" if found.wrong else "no check failed", *found.wrong, *found.traces,
    ], bool(found.wrong))  # fmt: skip
