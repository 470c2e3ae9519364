# SPDX-License-Identifier: Apache-2.0
"""Shows what the records say of a host, oldest first: snapshots, increments and gaps of its state, claims
and their verdicts, answers, and ends of builds.  With --nova, it also shows what Nova did on the host
with these servers, for example their deletion.  A line is one fact; a record may have several.  A line
about a whole request names the first of its servers; --format json has all.

The exit code is 0 if there is a record of the host, 1 if there is none, and 2 if the records cannot be read.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import accumulate

from shared_scheduler.answers import from_records, host_facts, terms
from shared_scheduler.answers.shapes import FAULT, HostEvent, NovaEvent, RecordEntry
from shared_scheduler.answers.story_words import HOST_TERMS, result_of
from shared_scheduler.answers.times import timed
from shared_scheduler.cmd import nova_events, printed_tables, record_stores
from shared_scheduler.cmd.arguments import WHEN_HELP, when, whole
from shared_scheduler.records.moments import moment
from shared_scheduler.records.store import BUILD, FOUND_MAX, RecordConditions, Store
from shared_scheduler.records.story import INSTANCES_MAX

#: groups of terms that ``--help`` defines
TERMS = HOST_TERMS
COLUMNS = ("at", "request", "servers", "what")
COUNT = 50


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("host", metavar="HOST")
    parser.add_argument(
        "--last", type=whole(1, FOUND_MAX), default=COUNT, metavar="N", help=f"newest lines (default {COUNT})"
    )
    parser.add_argument("--since", type=when, metavar="TIME", help=WHEN_HELP)
    parser.add_argument("--until", type=when, metavar="TIME", help="in the same forms")
    nova_events.add_argument(parser)
    record_stores.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read the records and print them.  Returns the exit code."""

    def ask(store: Store) -> int:
        found = _found(args, store)
        if not found:
            searched = "names of hosts" + ", in this span of time," * (_span(args) != RecordConditions())
            return record_stores.not_found(store, "story", args.host, searched)
        if args.format == "json":
            print(json.dumps(timed(found)))
        else:
            rows = [_row(one) for one in found]
            words = terms.explained(host_facts.words(one["text"] for one in found), *TERMS)
            print("\n".join([*printed_tables.lines(COLUMNS, rows), *words]))
        return 0

    return record_stores.with_store("story", args, ask)


def _span(args: argparse.Namespace) -> RecordConditions:
    return RecordConditions(since_s=args.since, until_s=args.until)


def _found(args: argparse.Namespace, store: Store) -> list[HostEvent]:
    """The newest ``--last`` facts, oldest first; those of Nova are of the newest servers of the whole story.

    :raises RecordsError: when the records or Nova's databases cannot be read
    """
    span = _span(args)
    if not args.nova:
        return from_records.story(store, args.host, args.last, span)
    found, servers = from_records.story_with_servers(store, args.host, args.last, INSTANCES_MAX, span)
    novas = [one for one in _of_nova(args, store, servers) if span.accepts({"at": one["at"]})]
    return _in_order_of_time(found, novas)[-args.last :]


def _row(one: HostEvent) -> list[str]:
    return [moment(one["at"]), one["request_id"], printed_tables.first_of(one["instances"]), one["text"]]


def _of_nova(args: argparse.Namespace, store: Store, servers: Sequence[str]) -> list[HostEvent]:
    """What Nova did on the host with these servers.

    :raises RecordsError: when the records or Nova's databases cannot be read
    """
    wanted = RecordConditions(BUILD, host=args.host, since_s=args.since, names=frozenset(servers))
    builds = from_records.last(store, FOUND_MAX, wanted) if servers else []
    return [
        HostEvent(at=one["at"], request_id=one["request_id"], instances=[one["instance"]], text=_text(one, builds))
        for one in nova_events.read(args, servers) if one["host"] == args.host
    ]  # fmt: skip


def _text(event: NovaEvent, builds: Sequence[RecordEntry]) -> str:
    if event["action"] == FAULT:
        return f"Nova, fault: {event['details']}"
    began = f"Nova, {event['action']}: {event['event']} began; {result_of(builds, event)}"
    return ": ".join(filter(None, [began, event["details"]]))


def _in_order_of_time(ours: Sequence[HostEvent], novas: Sequence[HostEvent]) -> list[HostEvent]:
    """Nova keeps whole seconds, and begins a build after its decision, so its events stand at the end of a second."""
    stands_at = accumulate((one["at"] for one in ours), max)  # ours are in order already
    ordered = [*((one["at"] + 1, one) for one in novas), *zip(stands_at, ours, strict=True)]
    return [one for _, one in sorted(ordered, key=lambda each: each[0])]
