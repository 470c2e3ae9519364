# SPDX-License-Identifier: Apache-2.0
"""Decides recorded requests again, and shows which choices differ, and why.

On the recorded state (the default), the hosts that a record holds are weighed with the multipliers of
--config.  A record does not hold all hosts: if another one may be the best, the result is that this is
not known.  On the current state (--state current), the table of a running scheduler is read, and each
request is decided on it by the filters and weighers of the configuration, as a request of today.  The
servers of one request count for each other; those of other requests do not.  With --config, the choice
with --config-file is compared with the choice with both files; without it, with the recorded choice.

An option of --config that nothing knows has no effect: a warning names it with its section.

The exit code is 0 if all choices are the same, 1 if one differs, and 2 if some requests could not be
decided again and no other one differs, or no option of --config is known.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared_scheduler.answers import terms
from shared_scheduler.answers.times import timed
from shared_scheduler.cmd import printed_tables
from shared_scheduler.daemon import admin
from shared_scheduler.records.errors import RecordsError
from shared_scheduler.records.opening import open_configured, open_named
from shared_scheduler.records.plain_text import printable
from shared_scheduler.records.record_file import RecordFile
from shared_scheduler.records.replay_sum import CONFIG_FILE, RECORDED, ReplaySum
from shared_scheduler.records.reweigh import Replayed, reweighed
from shared_scheduler.records.store import DECISION, Record

if TYPE_CHECKING:
    from shared_scheduler.nova.replaying import Redecider

#: groups of terms that ``--help`` defines
TERMS = (terms.REASONS,)
CURRENT = "current"
EXIT_CODES = {"same": 0, "differs": 1, "cannot": 2}
#: Differences that the text lists.
SHOWN_MAX = 50
#: Time between two lines of progress on a terminal.
PROGRESS_S = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("what", metavar="FILE|REQUEST", help="a file of records, or the name of a request or a server")
    parser.add_argument("--records", default="", metavar="PLACE", help="the records that contain REQUEST")
    parser.add_argument(
        "--config-file", type=Path, action="append", default=[], metavar="PATH",
        help="nova.conf of the schedulers (default: where Nova looks for it)",
    )  # fmt: skip
    parser.add_argument("--config", type=Path, metavar="PATH", help="options that replace those of --config-file")
    parser.add_argument("--state", choices=(RECORDED, CURRENT), default=RECORDED)
    parser.add_argument("--socket-dir", type=Path, metavar="DIR", help="admin_socket_dir of the schedulers")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Decide the requests again and print the differences.  Returns the exit code."""
    from shared_scheduler.novalib import threading_backend

    threading_backend.choose_threads()
    from shared_scheduler.nova.replaying import UNUSABLE

    began_s = time.monotonic()
    try:
        found = ReplaySum(args.state, CONFIG_FILE if args.state == CURRENT and args.config else RECORDED)
        again = _on_current_state if args.state == CURRENT else _on_recorded_state
        records = _records(args)
        for replayed in again(args, records):
            found.add(replayed)
    except (RecordsError, admin.AdminError, *UNUSABLE) as error:
        print(f"replay: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_CODES["cannot"]
    answer = found.as_dict(time.monotonic() - began_s)
    print(
        json.dumps(timed(answer))
        if args.format == "json"
        else "\n".join([*lines(answer), *same_result(answer, records)])
    )
    return EXIT_CODES[answer["result"]]


def _records(args: argparse.Namespace) -> Iterable[Record]:
    """The records of the file, or those of the request.

    :raises RecordsError: when there are none, or they cannot be read
    """
    if Path(args.what).is_file():
        return RecordFile(Path(args.what))
    if "/" in args.what:
        raise RecordsError(args.what, FileNotFoundError("there is no file of this name"), "name a file of records")
    store = open_named(args.records) if args.records else open_configured(args.config_file)
    try:
        found = [record for record in store.find(args.what) if record.get("kind") == DECISION]
    finally:
        store.close()
    if not found:
        text = "it is neither a file nor the name of a recorded request or server"
        raise RecordsError(args.what, ValueError(text), "see records last")
    return found


def _on_recorded_state(args: argparse.Namespace, records: Iterable[Record]) -> Iterator[Replayed]:
    from shared_scheduler.nova import source_readers
    from shared_scheduler.nova.replaying import present_settings

    source_readers.configure(args.config_file, replaced_by=args.config)
    settings = present_settings()
    _warn_of_unknown_options(args)
    return (reweighed(record, settings) for record in records if record.get("kind", DECISION) == DECISION)


def _on_current_state(args: argparse.Namespace, records: Iterable[Record]) -> Iterator[Replayed]:
    from shared_scheduler.nova import source_readers
    from shared_scheduler.nova.replaying import Redecider, current_table, present_settings, replayed

    source_readers.configure(args.config_file)
    if args.config:
        source_readers.configure(args.config_file, again=True, replaced_by=args.config)
        present_settings()  # loads the plug-ins, which register their options
        _warn_of_unknown_options(args)
        source_readers.configure(args.config_file, again=True)
    table, aggregates, quarantined = current_table(_asks(args.socket_dir or source_readers.admin_socket_dir()))

    def configured(replaced_by: Path | None) -> Redecider:
        source_readers.configure(args.config_file, again=True, replaced_by=replaced_by)
        return Redecider(table, aggregates, quarantined)

    before = configured(None) if args.config else None
    return replayed(RecordProgress(records), before, partial(configured, args.config))


def _warn_of_unknown_options(args: argparse.Namespace) -> None:
    """An option that is misspelt would leave the choice as it is.

    :raises cfg.Error: when no option of --config is known
    """
    from shared_scheduler.nova.unknown_options import unknown_options

    for text in unknown_options(args.config) if args.config else ():
        print(f"replay: warning: {printable(text)}", file=sys.stderr)


def _asks(directory: Path) -> Callable[[str], Mapping[str, Any]]:
    """The function that reads pages of the first scheduler that answers.

    :raises AdminError: when none does
    """
    path = admin.first_answering(directory)
    return lambda after: admin.ask(path, "state", after=after)


class RecordProgress:
    """Records whose number is shown on a terminal while they are read."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = records
        self._told_s = time.monotonic()

    def __iter__(self) -> Iterator[Record]:
        for number, record in enumerate(self._records):
            if sys.stderr.isatty() and time.monotonic() - self._told_s > PROGRESS_S:
                self._told_s = time.monotonic()
                print(f"replay: {number} requests ...", file=sys.stderr)
            yield record


def same_result(answer: Mapping[str, Any], records: Iterable[Record]) -> Iterator[str]:
    """What a single request got again; the records of a file are read once only, and not kept."""
    if not isinstance(records, list) or len(records) != 1 or answer["same"] != 1:
        return
    if answer["compared_with"] == CONFIG_FILE:
        yield printable(f"same choice with and without --config: {', '.join(answer['choice']) or 'no host'}")
    else:
        result, hosts = records[0].get("result", ""), ", ".join(inner[0] for inner in records[0]["answer"] if inner)
        yield printable(f"same result as recorded: {result}{' on ' * bool(hosts)}{hosts}")


def lines(answer: Mapping[str, Any]) -> list[str]:
    """The answer as lines."""
    return [printable(line) for line in _lines(answer)]


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    plural = "s" * (answer["requests"] != 1)
    head = f"{answer['requests']} request{plural} on the {answer['state']} state"
    verdicts = f"{answer['same']} same, {answer['differ']} differ, {answer['cannot']} cannot be decided again"
    yield f"{head}: {verdicts} ({answer['took_s']:.1f} s)"
    if answer["compared_with"] == CONFIG_FILE:
        yield "the choices with --config are compared with those of --config-file alone, not with the recorded ones"
    shown = answer["differences"][:SHOWN_MAX]
    if shown:
        rows = [[one["request_id"], _hosts(one["was"]), _hosts(one["now"]), one["why"]] for one in shown]
        yield from printed_tables.lines(("request", "was", "now", "why"), rows)
    if answer["state"] == CURRENT and shown:
        yield "each request was decided as if it were the only one of today"
    if answer["differ"] > len(shown):
        yield f"({answer['differ'] - len(shown)} more differ)"
    for reason, count in answer["cannot_reasons"].items():
        yield f"{count} cannot be decided again: {reason}"


def _hosts(hosts: list[str]) -> str:
    return ",".join(hosts) or "no host"
