# SPDX-License-Identifier: Apache-2.0
"""Shows how often this scheduler and nova-scheduler chose the same hosts in mode shadow, from the records.

One table has all requests by result, with the reasons of the differences.  Under it are the times of both schedulers,
and the rank of nova-scheduler's host in the order of this scheduler, 1 for the best.  The times of nova-scheduler
include its writes to Placement and the way to it.  The last differences follow one by one.  The exit code is 0 if there
is a comparison, 1 if there is none, and 2 if the records cannot be read.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from shared_scheduler.answers import terms
from shared_scheduler.answers.times import timed
from shared_scheduler.cmd import printed_tables, record_stores
from shared_scheduler.cmd.arguments import WHEN_HELP, when, whole
from shared_scheduler.records.agreement import Agreement, AgreementSum, comparisons
from shared_scheduler.records.moments import moment
from shared_scheduler.records.plain_text import printable
from shared_scheduler.records.store import Record, Store

#: groups of terms that ``--help`` defines
TERMS = (terms.AGREEMENT, terms.REASONS)
SHOWN, SHOWN_MAX = 10, 1000
DIFFERENCE_COLUMNS = ("at", "request", "ours", "nova-scheduler", "rank", "weights", "reason")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--since", type=when, default="7d", metavar="TIME", help=f"{WHEN_HELP} (default 7d)")
    parser.add_argument(
        "--differences", type=whole(0, SHOWN_MAX), default=SHOWN, metavar="N",
        help=f"how many of the last differences are shown (default {SHOWN})",
    )  # fmt: skip
    record_stores.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read the records and print the table.  Returns the exit code."""

    def ask(store: Store) -> int:
        total = AgreementSum.of(comparisons(store, args.since, time.time()), args.differences).as_dict()
        if not total["requests"]:
            text = f"no comparison in the last {_span(time.time() - args.since)}; comparisons are made in mode shadow"
            print(f"agreement: {text}; --since reaches further back", file=sys.stderr)
            return record_stores.NOT_FOUND
        print(json.dumps(timed(total)) if args.format == "json" else "\n".join(_lines(total)))
        return 0

    return record_stores.with_store("agreement", args, ask)


def _span(span_s: float) -> str:
    """In the largest unit that is not coarse: ``7 days``, ``36 hours``, ``30 minutes``."""
    for name, unit_s in (("days", 86_400), ("hours", 3_600)):
        if span_s >= 2 * unit_s - 1:
            return f"{round(span_s / unit_s)} {name}"
    return f"{math.ceil(round(span_s) / 60)} minutes"


def _lines(total: Mapping[str, Any]) -> Iterator[str]:
    yield f"{total['requests']} requests from {moment(total['first_at'])} to {moment(total['last_at'])}"
    yield ""
    yield from printed_tables.lines(("result", "requests", "part"), _rows(total), numbers=(1, 2))
    yield ""
    yield from printed_tables.lines(("", "p50", "p99", "max"), _quantiles(total), numbers=(1, 2, 3))
    if total["differences"]:
        yield ""
        yield from printed_tables.lines(DIFFERENCE_COLUMNS, map(_difference, total["differences"]), numbers=(4,))


def _rows(total: Mapping[str, Any]) -> Iterator[list[str]]:
    requests = total["requests"]
    for result in Agreement:
        count = total["results"][result.value]
        yield [result.value, str(count), f"{100 * count / requests:.2f} %"]
        for one in total["reasons"]:
            if one["result"] == result.value:
                yield [f"  {one['reason']}", str(one["requests"]), f"{100 * one['requests'] / requests:.2f} %"]


def _quantiles(total: Mapping[str, Any]) -> Iterator[list[str]]:
    latency = total["latency_ms"]
    for name, values in (("ours, ms", latency["ours"]), ("nova-scheduler, ms", latency["stock"]),
                         ("rank of its host", total["rank_of_stocks_host"])):  # fmt: skip
        yield [name, *(f"{value:g}" for value in values.values())]


def _difference(record: Record) -> list[str]:
    weights = "" if record["weights"] is None else "{:.4g} and {:.4g}".format(*record["weights"])
    rank = "" if record["rank"] is None else str(record["rank"])
    ours, stock = (",".join(record[side]["hosts"]) or record[side]["error"] for side in ("ours", "stock"))
    return [moment(record["at"]), record["request_id"], ours, stock, rank, weights,
            printable(f"{record['result']} {record['reason']}")]  # fmt: skip
