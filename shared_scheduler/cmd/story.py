# SPDX-License-Identifier: Apache-2.0
"""Shows what the records say of a host, oldest first: snapshots and gaps of its state, claims
and their verdicts, answers, and ends of builds.

The exit code is 0 if there is a record of the host, 1 if there is none, and 2 if the records cannot be read.
"""

from __future__ import annotations

import argparse
import json

from shared_scheduler.answers import from_records, host_facts
from shared_scheduler.answers.times import timed
from shared_scheduler.cmd import printed_tables, record_stores, terms
from shared_scheduler.cmd.arguments import whole
from shared_scheduler.records.moments import moment
from shared_scheduler.records.store import FOUND_MAX, Store

#: groups of terms that ``--help`` defines
TERMS = (terms.STORIES, terms.BUILDS, terms.REASONS, terms.ATTEMPTS)
COLUMNS = ("at", "request", "servers", "what")
COUNT = 50


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("host", metavar="HOST")
    parser.add_argument(
        "--last", type=whole(1, FOUND_MAX), default=COUNT, metavar="N", help=f"newest records (default {COUNT})"
    )
    record_stores.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read the records and print them.  Returns the exit code."""

    def ask(store: Store) -> int:
        found = from_records.story(store, args.host, args.last)
        if not found:
            return record_stores.not_found("story", args.host, "names of hosts")
        if args.format == "json":
            print(json.dumps(timed(found)))
        else:
            rows = [[moment(one["at"]), one["request_id"], ",".join(one["instances"]), one["text"]] for one in found]
            words = terms.explained(host_facts.words(one["text"] for one in found), *TERMS)
            print("\n".join([*printed_tables.lines(COLUMNS, rows), *words]))
        return 0

    return record_stores.with_store("story", args, ask)
