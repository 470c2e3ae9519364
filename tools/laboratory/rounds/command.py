# SPDX-License-Identifier: Apache-2.0
"""`tools/lab rounds`: requests that just fit, with our schedulers and with nova-scheduler in turns."""

import argparse
import json
from pathlib import Path
from typing import Any

from tools.laboratory.cloud.cloud import Cloud, add_cloud, passing_cloud
from tools.laboratory.errors import LabError
from tools.laboratory.manual import Manual
from tools.laboratory.report import ProgressLine, Report, add_format, rows_report, save
from tools.laboratory.rounds import rounds

MANUAL = Manual(
    does="Requests pinned CPUs, huge pages and PCI devices that just fit, all at the same moment, in repeated "
    "rounds in a real cloud, and counts the builds that are rescheduled, with our schedulers and with nova-scheduler "
    "in turns.",
    needs="The same as `tools/lab cloud`.",
    lasts="One minute to start the cloud, then some 15 seconds a round: 200 rounds take an hour.",
    examples=(
        ("tools/lab rounds --rounds 3 --stock 3", "one round of each kind of request with either scheduler"),
        ("tools/lab rounds --rounds 100 --stock 20 --save FILE", "a long run, saved after each round"),
        ("tools/lab rounds --show FILE --format rst", "the table of a saved run"),
    ),
    wrong="a round of ours with a reschedule or a failure",
)


def parser() -> argparse.ArgumentParser:
    """The options."""
    top = MANUAL.parser("tools/lab rounds")
    add_cloud(top)
    top.add_argument("--rounds", type=int, default=100, help="rounds with our schedulers (default 100)")
    top.add_argument("--stock", type=int, default=None, help="rounds with nova-scheduler (default: the same number)")
    top.add_argument("--block", type=int, default=10,
                     help="rounds with our schedulers between two blocks of nova-scheduler (default 10)")  # fmt: skip
    top.add_argument("--schedulers", type=int, default=4, help="scheduler processes of each kind (default 4)")
    top.add_argument("--computes", type=int, default=3, help="number of nova-computes (default 3)")
    top.add_argument("--save", type=Path, metavar="FILE", help="write all figures to FILE, after each round")
    top.add_argument("--show", type=Path, metavar="FILE", help="only print the figures of a saved run")
    add_format(top)
    return top


def run(asked: argparse.Namespace, progress: ProgressLine) -> Report:
    """Play the requested rounds, or load those of a saved run."""
    if asked.show:
        return report_of(load(asked.show))
    with passing_cloud(asked, progress.say) as cloud:
        return report_of(play(cloud, asked, progress))


def play(cloud: Cloud, asked: argparse.Namespace, progress: ProgressLine) -> dict[str, Any]:
    """Start the cloud and play the rounds; returns all results."""
    rounds.begin(cloud, asked.schedulers, asked.computes)
    stock = asked.rounds if asked.stock is None else asked.stock
    progress.expect(asked.rounds + stock, "rounds")

    def keep(played: list[rounds.Round]) -> None:
        progress.step()
        progress.say(f"{len(played)} of {asked.rounds + stock} rounds: {played[-1]}")
        save(asked.save, rounds.results(cloud, played))

    return rounds.results(cloud, rounds.contest(cloud, asked.rounds, stock, asked.block, keep))


def load(path: Path) -> dict[str, Any]:
    """A saved run.

    :raises LabError: when the file is none
    """
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        return found | {"rounds": [*found["rounds"]], "table": [*found["table"]]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(f"{path}: no saved run of rounds ({error})") from None


def report_of(found: dict[str, Any]) -> Report:
    """The table, everything as data, and whether a round of ours was wrong."""
    wrong = [one for one in map(lambda row: rounds.Round(**row), found["rounds"]) if rounds.is_wrong(one)]
    parts = [*rows_report(found["table"]).parts, *(f"wrong: {one}" for one in wrong)]
    return Report(found, parts, bool(wrong))
