# SPDX-License-Identifier: Apache-2.0
"""Shows why a server is not on a host, from the records: one line for each decision and build.

The exit code is 0 if there is a record of the server, 1 if there is none, and 2 if the records cannot be
read.  ``why-now --host HOST`` tells what a running scheduler thinks of the host now.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import Any

from shared_scheduler.cmd import record_stores, terms
from shared_scheduler.cmd.record_stores import moment, values
from shared_scheduler.records.plain_text import printable
from shared_scheduler.records.store import BUILD, Record, Store
from shared_scheduler.records.story import story_of

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
        story = story_of(store, args.id)
        if story is None:
            return record_stores.not_found("why-not", args.id)
        found = [{"at": one["at"], "request_id": one["request_id"], "text": text}
                 for one in story.records for text in answers(one, args.host)]  # fmt: skip
        print(json.dumps(found) if args.format == "json" else "\n".join(_lines(found)))
        return 0

    return record_stores.with_store("why-not", args, ask)


def _lines(found: Sequence[Any]) -> Iterator[str]:
    for one in found:
        yield printable(f"{moment(one['at'])}  {one['request_id'] or '-'}  {one['text']}")


def answers(record: Record, host: str) -> Iterator[str]:
    """What a record says of the host, in order; a sentence each."""
    if record.get("kind") == BUILD:
        if host in record["hosts"]:
            yield f"the build on {host} ended: {' '.join(filter(None, [record['result'], record['reason']]))}"
        return
    found = [*_ranked(record, host), *_rejected(record, host), *_tried(record, host), *_answered(record, host)]
    yield from found or [_unknown(record, host)]


def _ranked(record: Record, host: str) -> Iterator[str]:
    for counts in record["decisions"]:
        for place, one in enumerate(counts["best"], 1):
            if one["host"] == host:
                version = f"state {one['epoch']}/{one['sequence']}"
                best = counts["best"][0]
                behind = "" if place == 1 else f"; {best['host']} was the first with {best['weight']:.4g}"
                yield f"passed, number {place} by weight {one['weight']:.4g} ({version}){behind}"


def _rejected(record: Record, host: str) -> Iterator[str]:
    for one in record.get("near", ()):
        if one["host"] == host:
            yield f"rejected: {one['code']}" + (f" ({values(one['detail'])})" if one["detail"] else "")


def _tried(record: Record, host: str) -> Iterator[str]:
    for attempt in record["attempts"]:
        if attempt["host"] == host:
            detail = values(attempt["detail"])
            yield f"tried: {attempt['outcome']}" + (f" ({detail})" if detail else "")


def _answered(record: Record, host: str) -> Iterator[str]:
    for hosts in record["answer"]:
        if host in hosts:
            yield "selected" if hosts[0] == host else f"alternate of {hosts[0]}"


def _unknown(record: Record, host: str) -> str:
    counts = [f"{count} {code}" for code, count in sorted(record.get("reasons", {}).items())]
    survivors = record["decisions"][-1]["survivors"] if record["decisions"] else 0
    return f"{host} is not named; {survivors} hosts passed, rejected: {', '.join(counts) or 'none'}"
