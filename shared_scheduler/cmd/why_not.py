# SPDX-License-Identifier: Apache-2.0
"""Shows why a server is not on a host: one line for each fact that the records show, and the present state.

A record names the hosts that were tried, the best ones and, if no host was found, some of each reason.
What a running scheduler of this machine would answer now follows for every host: the same request is
checked against its table, and nothing is claimed.  The exit code is 0 if there is a record of the server,
1 if there is none, and 2 if the records cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from shared_scheduler.answers import from_records, from_schedulers, host_facts
from shared_scheduler.answers.shapes import WhyNot
from shared_scheduler.answers.times import timed
from shared_scheduler.cmd import record_stores, terms
from shared_scheduler.records.moments import moment
from shared_scheduler.records.opening import configured_socket_dir
from shared_scheduler.records.plain_text import printable
from shared_scheduler.records.store import Store
from shared_scheduler.service import admin

#: groups of terms that ``--help`` defines
TERMS = (terms.STORIES, terms.BUILDS, terms.NOT_CHOOSABLE, terms.REASONS, terms.ATTEMPTS)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("id", metavar="INSTANCE", help="uuid of a server, or id of a request")
    parser.add_argument("host", metavar="HOST")
    parser.add_argument(
        "--socket-dir", type=Path, metavar="DIR",
        help="admin_socket_dir of the schedulers (default: that of --config-file; with --records, none)",
    )  # fmt: skip
    record_stores.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read the records and print the answers.  Returns the exit code."""

    def ask(store: Store) -> int:
        found = from_records.why_not(store, args.id, args.host)
        if found is None:
            return record_stores.not_found("why-not", args.id)
        now, unknown = _now(args, store)
        found += now
        if args.format == "json":
            print(json.dumps(timed(found)))
            _complain(unknown)
        else:
            print("\n".join(_lines(args, found, unknown)))
        return 0

    return record_stores.with_store("why-not", args, ask)


def _now(args: argparse.Namespace, store: Store) -> tuple[list[WhyNot], str]:
    """What a running scheduler answers, and why it cannot be told; nothing if none is asked, or the request is not
    recorded."""
    directory = args.socket_dir or (None if args.records else configured_socket_dir(args.config_file))
    decision = from_records.last_decision(store, args.id)
    if directory is None or decision is None:
        return [], ""
    try:
        return from_schedulers.why_not_now(directory, decision, args.host), ""
    except admin.AdminError as error:
        return [], str(error)


def _complain(unknown: str) -> None:
    """In JSON there is no place for it."""
    if unknown:
        print(f"why-not: the present state is not known: {printable(unknown)}", file=sys.stderr)


def _lines(args: argparse.Namespace, found: Sequence[WhyNot], unknown: str) -> Iterator[str]:
    yield printable(f"{args.id} and host {args.host}:")
    for one in found:
        when = "now, " if one["source"] == "table" else ""
        request = f"{one['request_id']}: " if one["request_id"] and one["request_id"] != args.id else ""
        yield printable(f"{moment(one['at'])}  {request}{when}{one['text']}")
    if unknown:
        yield printable(f"now  unknown, because {unknown.partition(';')[0]}")
    yield from terms.explained(host_facts.words(one["text"] for one in found), *TERMS)
