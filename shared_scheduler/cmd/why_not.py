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

from shared_scheduler.answers import from_records, from_schedulers, host_facts, terms
from shared_scheduler.answers.shapes import WhyNot
from shared_scheduler.answers.times import timed
from shared_scheduler.cmd import record_stores
from shared_scheduler.daemon import admin
from shared_scheduler.records.moments import moment
from shared_scheduler.records.opening import configured_socket_dir
from shared_scheduler.records.plain_text import printable
from shared_scheduler.records.short_names import shortened
from shared_scheduler.records.store import Record, Store

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
        told = from_records.server_and_host(store, args.id, args.host)
        if told is None:
            return record_stores.not_found(store, "why-not", args.id)
        now, unknown = _now(args, told.decision)
        found = [*told.why_not, *now]
        misspelt = _misspelt(args, store, found)
        if args.format == "json":
            print(json.dumps(timed(found)))
            _complain(f"the present state is not known: {unknown}" if unknown else "")
            _complain(misspelt)
        else:
            print("\n".join(_lines(args, told.outcome, found, [_unknown(unknown), misspelt])))
        return 0

    return record_stores.with_store("why-not", args, ask)


def _now(args: argparse.Namespace, decision: Record | None) -> tuple[list[WhyNot], str]:
    """What a running scheduler answers, and why that is not known; nothing if none is asked, or the request is not
    recorded."""
    directory = args.socket_dir or (None if args.records else configured_socket_dir(args.config_file))
    if directory is None or decision is None:
        return [], ""
    try:
        return from_schedulers.why_not_now(directory, decision, args.host), ""
    except admin.AdminError as error:
        return [], str(error)


def _misspelt(args: argparse.Namespace, store: Store, found: Sequence[WhyNot]) -> str:
    """That nothing knows the host; empty if something does."""
    if any(host_facts.is_of_host(one["text"]) for one in found) or from_records.is_named(store, args.host):
        return ""
    return f"no record of any request names a host {args.host}; check its name"


def _complain(text: str) -> None:
    """In JSON there is no place for it."""
    if text:
        print(f"why-not: {printable(text)}", file=sys.stderr)


def _unknown(why: str) -> str:
    return f"now  unknown, because {why.partition(';')[0]}" if why else ""


def _lines(args: argparse.Namespace, outcome: str, found: Sequence[WhyNot], remarks: Sequence[str]) -> Iterator[str]:
    yield printable(f"{args.id} and host {args.host}: {outcome}")
    names = shortened({one.get("instance", "") for one in found})
    for one in found:
        when = "now, " if one["source"] == "table" else ""
        request = one["request_id"] if one["request_id"] != args.id else ""
        about = ", ".join(filter(None, [request, names[one.get("instance", "")]]))
        yield printable(f"{moment(one['at'])}  {about}{': ' * bool(about)}{when}{one['text']}")
    yield from map(printable, filter(None, remarks))
    yield from terms.explained(host_facts.words(one["text"] for one in found), *TERMS)
