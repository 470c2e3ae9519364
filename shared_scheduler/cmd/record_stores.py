# SPDX-License-Identifier: Apache-2.0
"""The records that a command reads: its arguments, and how a record is printed in one line."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from shared_scheduler.records.errors import RecordsError
from shared_scheduler.records.opening import open_configured, open_named
from shared_scheduler.records.plain_text import printable
from shared_scheduler.records.store import RecordConditions, Store

#: exit codes: nothing was found; the records cannot be read
NOT_FOUND, UNREADABLE = 1, 2


def add_arguments(parser: argparse.ArgumentParser, formats: Sequence[str] = ("text", "json")) -> None:
    """Add the arguments that name the records, and the format of the output if there are several."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--config-file", type=Path, action="append", default=[], metavar="PATH",
        help="nova.conf of the schedulers (default: where Nova looks for it)",
    )  # fmt: skip
    where.add_argument("--records", default="", metavar="PLACE", help="a file of records, or the URL of their database")
    if formats:
        parser.add_argument("--format", choices=formats, default=formats[0])


def named(args: argparse.Namespace) -> str:
    """The arguments that name the records, for a command that reads the same ones; a URL may have a password."""
    places = [("--records", "URL" if "://" in args.records else shlex.quote(args.records))] if args.records else []
    files = [("--config-file", shlex.quote(str(path))) for path in args.config_file]
    return "".join(f" {option} {place}" for option, place in (*places, *files))


def with_store(command: str, args: argparse.Namespace, ask: Callable[[Store], int]) -> int:
    """Open the records and ask.  Returns the exit code of ``ask``, or ``UNREADABLE`` after a line with the error."""
    try:
        store = open_named(args.records) if args.records else open_configured(args.config_file)
        try:
            return ask(store)
        finally:
            store.close()
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        what = f"a record has not the fields of its kind ({type(error).__name__}: {error}): another release wrote it"
        print(f"{command}: {printable(what)}, or it was changed", file=sys.stderr)
        return UNREADABLE
    except RecordsError as error:
        print(f"{command}: {' '.join(str(error).split())}", file=sys.stderr)
        return UNREADABLE


#: why a record may be missing
ONLY_NEWEST = "schedulers keep only the newest records"
#: the names by which a request or a server is found
IDS = "ids of requests, global ids of requests and uuids of servers"


#: said of a place without any record
NO_RECORDS = "no records of shared_scheduler are there; check that --records or --config-file names them"


def not_found(store: Store, command: str, name: str, searched: str = IDS) -> int:
    """Say that there is no record, and which names were searched; returns the exit code."""
    text = (
        f"there is no record of it; {searched} were searched; check the name, and that --records or --config-file "
        f"names the records of the scheduler that decided; {ONLY_NEWEST}"
    )
    print(f"{command}: {name}: {NO_RECORDS if is_empty(store) else text}", file=sys.stderr)
    return NOT_FOUND


def is_empty(store: Store) -> bool:
    """Whether there is no record at all, as in a file of something else."""
    return not store.last(1, RecordConditions())
