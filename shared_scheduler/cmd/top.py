# SPDX-License-Identifier: Apache-2.0
"""Shows what the running schedulers of this machine do, live: rates, windows, lags and queues.

A terminal is drawn again after each --interval until Control-C.  Without a terminal, a block of lines is
printed after each --interval.  --once prints one block and ends; its rates are those of one interval.
--format json prints a line instead of a block: a list with one object for each scheduler.  The exit
code is 0, or 2 with one line for each scheduler that did not answer or was killed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shared_scheduler.answers import from_schedulers, terms
from shared_scheduler.answers.from_schedulers import COUNTED, Rates
from shared_scheduler.answers.host_facts import lag
from shared_scheduler.answers.shapes import LaggingHost, Load
from shared_scheduler.answers.times import timed
from shared_scheduler.cmd import printed_tables, running_schedulers
from shared_scheduler.cmd.arguments import number
from shared_scheduler.cmd.screen import line, screen_on
from shared_scheduler.daemon import admin
from shared_scheduler.daemon.admin import AdminError
from shared_scheduler.records.plain_text import printable

if TYPE_CHECKING:  # importing rich takes longer than printing a help text
    from rich.console import RenderableType

#: groups of terms that ``--help`` defines
TERMS = (terms.TOP,)
INTERVAL_S, INTERVAL_MIN_S, INTERVAL_MAX_S = 2.0, 0.1, 3600.0
LAGGING_COLUMNS = ("host", "lag", "window", "heard_ago_s")
NO_RATE = "-"
#: class of nodes by their lag -> its name, of those that are not a number
LAG_NAMES = {"0": "in step", "more": "behind by more", "silent": "silent", "without_agent": "without agent"}
#: count -> what is shown for it, if its name says too little
SHOWN = {"failures": "without host"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    running_schedulers.add_arguments(parser)
    parser.add_argument("--scheduler", default="", metavar="NAME", help="show only this one, by name or process id")
    parser.add_argument(
        "--interval", type=number(INTERVAL_MIN_S, INTERVAL_MAX_S), default=INTERVAL_S, metavar="SECONDS",
        help=f"time between two views (default {INTERVAL_S:g})",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="print one view and end")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Ask the schedulers at intervals and show the answers.  Returns the exit code."""
    try:
        directory, rates = running_schedulers.directory_of(args), Rates()
        rates.add(from_schedulers.loads(directory, args.scheduler)[0])
        if args.once:
            return _show_next(args, directory, rates)
        return _live(args, directory, rates)
    except AdminError as error:
        return running_schedulers.print_errors("top", [error])


def _show_next(args: argparse.Namespace, directory: Path, rates: Rates) -> int:
    time.sleep(args.interval)
    loads, silent = _asked(args, directory)
    found = rates.add(loads)
    text = json.dumps(timed(found)) if args.format == "json" else "\n\n".join("\n".join(lines(one)) for one in found)
    words = terms.explained(_words(found), *TERMS, terms.COUNTERS) if args.once and args.format != "json" else []
    print("\n".join([text, *words]), flush=True)
    return running_schedulers.print_errors("top", silent) if silent else 0


def _asked(args: argparse.Namespace, directory: Path) -> tuple[list[Load], list[AdminError]]:
    """What each scheduler does, and an error for each that does not answer or was killed."""
    loads, silent = from_schedulers.loads(directory, args.scheduler)
    return loads, silent + admin.killed(directory, args.scheduler)


def _words(loads: Sequence[Load]) -> Iterator[str]:
    """The words of the views that a reader may not know."""
    yield from ("decisions", "without host", "refusals", "conflicts")
    yield from ("requests", "placement_writes", "records", "windows")
    for load in loads:
        yield from _there(load["windows"])
    yield "lag"
    for load in loads:
        yield from (LAG_NAMES[name] for name in ("0", "silent", "without_agent") if load["lags"].get(name))


def _live(args: argparse.Namespace, directory: Path, rates: Rates) -> int:
    screen = None if args.format == "json" else screen_on(sys.stdout)
    if screen is None:
        while True:
            _show_next(args, directory, rates)
    try:
        while True:
            time.sleep(args.interval)
            loads, silent = _asked(args, directory)
            screen.draw(list(_blocks(rates.add(loads), silent)))
    finally:
        screen.close()


def _blocks(loads: Sequence[Load], silent: Sequence[AdminError]) -> Iterator[RenderableType]:
    from rich.console import Group

    for one in loads:
        head, *others = lines(one)
        yield Group(line((head, "bold")), *map(line, others))
    yield from (line((printable(str(error)), "red")) for error in silent)


def lines(load: Load) -> list[str]:
    """What one scheduler does, as lines without control characters."""
    return [printable(line) for line in _lines(load)]


def _lines(load: Load) -> Iterator[str]:
    yield f"{load['scheduler']} (process {load['pid']}), {load['nodes']} nodes"
    per_s = load.get("per_s")
    rows = [
        [SHOWN.get(name, name), NO_RATE if per_s is None else f"{per_s[name]:.1f}/s", f"{load[name]:,}"]  # type: ignore[literal-required]
        for name in COUNTED
    ]  # fmt: skip
    yield from _indented(printed_tables.lines(("", "now", "since start"), rows, numbers=(1, 2)))
    yield f"  queues   {_counts(load['queues'])}"
    yield f"  windows  nodes: {_counts(_there(load['windows']))}"
    yield f"  lag      nodes: {_counts({_lag_name(name): count for name, count in _there(load['lags']).items()})}"
    if load["lagging"]:
        behind = [[one["host"], _lag(one), one["state"], _age(one["heard_ago_s"])] for one in load["lagging"]]
        yield from _indented(printed_tables.lines(LAGGING_COLUMNS, behind, numbers=(1, 3)))


def _indented(found: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in found]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"


def _there(counts: dict[str, int]) -> dict[str, int]:
    """Those that are not 0, because most classes of nodes are empty."""
    return {name: count for name, count in counts.items() if count}


def _lag_name(most: str) -> str:
    return LAG_NAMES.get(most, f"behind by up to {most}")


def _lag(node: LaggingHost) -> str:
    behind = lag(node)
    return NO_RATE if behind is None else str(behind)


def _age(age_s: float | None) -> str:
    return "never" if age_s is None else f"{age_s:.1f}"
