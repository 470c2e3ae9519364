# SPDX-License-Identifier: Apache-2.0
"""Shows why a server is not on a host, from the records: one line for each decision and build.

The exit code is 0 if there is a record of the server, 1 if there is none, and 2 if the records cannot be
read.  ``why-now --host HOST`` tells what a running scheduler thinks of the host now.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence

from shared_scheduler.answers import from_records
from shared_scheduler.answers.shapes import WhyNot
from shared_scheduler.cmd import record_stores, terms
from shared_scheduler.cmd.record_stores import moment
from shared_scheduler.records.plain_text import printable
from shared_scheduler.records.store import Store

#: groups of terms that ``--help`` defines
TERMS = (terms.BUILDS, terms.NOT_CHOOSABLE, terms.REASONS, terms.ATTEMPTS)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("id", metavar="INSTANCE", help="uuid of a server, or id of a request")
    parser.add_argument("host", metavar="HOST")
    record_stores.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read the records and print the answers.  Returns the exit code."""

    def ask(store: Store) -> int:
        found = from_records.why_not(store, args.id, args.host)
        if found is None:
            return record_stores.not_found("why-not", args.id)
        print(json.dumps(found) if args.format == "json" else "\n".join(_lines(found)))
        return 0

    return record_stores.with_store("why-not", args, ask)


def _lines(found: Sequence[WhyNot]) -> Iterator[str]:
    for one in found:
        yield printable(f"{moment(one['at'])}  {one['request_id'] or '-'}  {one['text']}")
