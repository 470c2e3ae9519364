# SPDX-License-Identifier: Apache-2.0
"""Lists the last records: decisions of the schedulers, comparisons of mode shadow, ends of builds on the nodes, changes
of what a scheduler knows of a node, and changes of allocations by other writers.

The columns and their words are defined below.  All conditions must be met.  ``--follow`` goes on with new
records until it is interrupted.  ``--format json`` prints each record as one object on a line.  The exit code
is 0 if there is such a record, 1 if there is none, and 2 if the records cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from shared_scheduler.answers import from_records, terms
from shared_scheduler.answers.host_facts import change
from shared_scheduler.answers.shapes import RecordEntry
from shared_scheduler.answers.times import timed
from shared_scheduler.cmd import printed_tables, record_stores
from shared_scheduler.cmd.arguments import WHEN_HELP, when, whole
from shared_scheduler.cmd.record_stores import NOT_FOUND
from shared_scheduler.records.later_requests import NO_HOST
from shared_scheduler.records.moments import moment
from shared_scheduler.records.plain_text import printable
from shared_scheduler.records.reason_names import told_outcome
from shared_scheduler.records.short_names import first_names, short_names
from shared_scheduler.records.store import (
    BUILD,
    COMPARISON,
    DECISION,
    DISORDER_MAX_S,
    FAILED,
    FOREIGN,
    FOUND_MAX,
    NODE,
    Record,
    RecordConditions,
    Store,
)
from shared_scheduler.records.story import hosts_by_end, servers_by_host
from shared_scheduler.records.told_reasons import WRITTEN, told_reasons, told_text

#: groups of terms that ``--help`` defines
RESULTS = (terms.FAILURES, terms.BUILDS, terms.NODE_CHANGES, terms.AGREEMENT, terms.CHANGE_KINDS)
REASONS = (terms.REASONS, terms.NOT_CHOOSABLE, terms.ATTEMPTS)
TERMS = (terms.RECORD_COLUMNS, *RESULTS, *REASONS)
#: Said after the records of one result, because a reader may look for all failures.
OTHER_RESULTS = f"--result failed shows builds; a request without a host has the result {' or '.join(sorted(NO_HOST))}"
COLUMNS = ("at", "kind", "request", "servers", "result", "hosts", "reason")
#: Time between two reads of new records.
FOLLOW_S = 1.0
#: so many of the newest records that were printed are kept, so that none is printed twice
PRINTED_MAX = 2 * FOUND_MAX


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("which", choices=("last",), metavar="last", help="the newest records")
    parser.add_argument("count", type=whole(1, FOUND_MAX), metavar="N", help=f"how many, at most {FOUND_MAX}")
    parser.add_argument("--kind", choices=(DECISION, BUILD, COMPARISON, NODE, FOREIGN), default="")
    parser.add_argument("--project", default="", metavar="ID")
    parser.add_argument("--host", default="", metavar="HOST", help="selected, tried, or built on")
    parser.add_argument("--result", default="", metavar="RESULT", help="for example placed, no_valid_host, failed")
    parser.add_argument(
        "--reason",
        default="",
        metavar="TEXT",
        help="part of the text, or of a reason for hosts: as it is told (disabled), or by its code (root_traits)",
    )
    parser.add_argument("--since", type=when, metavar="TIME", help=WHEN_HELP)
    parser.add_argument("--until", type=when, metavar="TIME", help="in the same forms")
    parser.add_argument("--follow", action="store_true", help="go on with new records")
    record_stores.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read the records and print them.  Returns the exit code."""

    def ask(store: Store) -> int:
        before = from_records.last(store, FOUND_MAX, _wanted(args, args.since)) if args.follow else []
        found = from_records.last(store, args.count, _wanted(args, args.since))
        _show(args, from_records.with_askers_of(store, found))
        if args.follow:
            _follow(args, store, [*before, *found])
        elif found and args.format == "text" and args.result == FAILED:
            print(f"\n{OTHER_RESULTS}")
        return 0 if found else _nothing(args, store)

    return record_stores.with_store("records", args, ask)


def _nothing(args: argparse.Namespace, store: Store) -> int:
    if record_stores.is_empty(store):
        print(f"records: {record_stores.NO_RECORDS}", file=sys.stderr)
        return NOT_FOUND
    more = f"; {OTHER_RESULTS}" if args.result == FAILED else ""
    if args.result and not any(args.result in group.terms for group in RESULTS):
        more = f"; {printable(args.result)!r} is no result that --help lists"
    more += _unknown(args.reason)
    print(f"records: no record meets all conditions; {record_stores.ONLY_NEWEST}{more}", file=sys.stderr)
    return NOT_FOUND


def _unknown(reason: str) -> str:
    """That this is no name of a reason, and which are; empty if it is one, or part of one, or a text of several words.

    Nor if it has capital letters and is like none: the filters of a site, the resource classes and the errors of builds
    are not known."""
    names = [*(name for group in REASONS for name in group.terms), *terms.OF_FILTERS]
    word = reason.partition(":")[0]
    if not word or " " in word or word.endswith("Filter") or any(word in name for name in names):
        return ""
    like = get_close_matches(word, names)
    if not like and word != word.lower():
        return ""
    these = ", ".join(like) or f"{', '.join(terms.REASONS.terms)} and others that --help lists"
    return f"; {printable(reason)!r} is no name of a reason; these are: {these}"


def _wanted(args: argparse.Namespace, since_s: float | None) -> RecordConditions:
    return RecordConditions(args.kind, args.project, args.host, args.result, args.reason, since_s, args.until)


def _show(args: argparse.Namespace, found: Sequence[Record]) -> None:
    if args.format == "json":
        for record in found:
            print(json.dumps(timed(record)), flush=True)
    elif found:
        print("\n".join(printed_tables.lines(COLUMNS, [_row(record, args.reason) for record in found])), flush=True)


def _follow(args: argparse.Namespace, store: Store, known: Sequence[RecordEntry]) -> None:
    """Print new records until the command is interrupted.

    Records may be stored late, and the clock may be set back: what is known is not found by its time."""
    printed, recent = dict.fromkeys(map(_identity, known)), known
    while True:
        time.sleep(FOLLOW_S)
        newest = from_records.last(store, FOUND_MAX, _wanted(args, _since_s(recent)))
        found = [record for record in newest if _identity(record) not in printed]
        printed.update(dict.fromkeys(map(_identity, found)))
        for oldest in list(printed)[:-PRINTED_MAX]:
            del printed[oldest]
        recent = found or recent
        _print_lines(args, from_records.with_askers_of(store, found))


def _since_s(recent: Sequence[RecordEntry]) -> float:
    """Since when records may be new: none is stored so much later than the newest that were found."""
    return min(max((record["at"] for record in recent), default=time.time()), time.time()) - DISORDER_MAX_S


def _identity(record: RecordEntry) -> str:
    return json.dumps(record, sort_keys=True)


def _print_lines(args: argparse.Namespace, found: Iterable[Record]) -> None:
    for record in found:
        line = json.dumps(timed(record)) if args.format == "json" else "  ".join(_row(record, args.reason))
        print(printable(line), flush=True)


def _row(record: Record, asked: str) -> list[str]:
    servers = printed_tables.first_of(record.get("instances", ()))
    return [
        moment(record["at"]), record.get("kind", ""), record.get("request_id", ""), servers, record.get("result", ""),
        _hosts(record), change(record) if record.get("kind") == NODE else _reason(record, asked),
    ]  # fmt: skip


def _reason(record: Record, asked: str) -> str:
    """The text of the reason, and the other reasons that a question asked for, unless the text has them."""
    text = told_text(record) if record.get("reason") else ""
    reasons = {**record.get("reasons", {}), **told_reasons(record)} if asked else {}
    counted = (f"{count} {code}" for code, count in sorted(reasons.items()) if asked in code)
    missing = ", ".join(one for one in counted if f" {one}" not in f" {text}")
    tried = ", ".join(f"{one['host']} {told_outcome(one)}" for one in _tries(record, asked))
    parts = {"rejected": missing, "tried": tried}
    return "; ".join(filter(None, [text, *(f"{name}: {part}" for name, part in parts.items() if part)]))


def _tries(record: Record, asked: str) -> list[Record]:
    """The tries that ended for a reason that a question asked for."""
    ended = [one for one in record.get("attempts", ()) if one["outcome"] != WRITTEN]
    return [one for one in ended if asked and (asked in told_outcome(one) or asked in one["outcome"])]


def _hosts(record: Record) -> str:
    """The selected hosts, and in brackets those that refused, that a filter rejected, or that gave no answer; other
    records have hosts."""
    if record.get("kind") != DECISION or "answer" not in record:
        return ",".join(record.get("hosts", ()))
    selected, others = hosts_by_end(record)
    told = [f"{end}: {_with_servers(record, hosts)}" for end, hosts in others.items()]
    brackets = f"({'; '.join(told)})" if told else ""
    return " ".join(filter(None, [_with_servers(record, selected), brackets]))


def _with_servers(record: Record, hosts: Sequence[str]) -> str:
    """The hosts; of a request for several servers, each with its servers."""
    names, of = short_names(record), servers_by_host(record)
    if not names:
        return ",".join(hosts)
    servers = [(host, [names.get(server, server) for server in of.get(host, ())]) for host in hosts]
    return ", ".join(f"{host} for {first_names(found)}" if found else host for host, found in servers)
