# SPDX-License-Identifier: Apache-2.0
"""Shows why a request got its result, from the records of all schedulers that share them.

ID is the id of a request as Nova logs and returns it, the global id that its caller sent, or the uuid
of a server.  The command prints each decision with the number of hosts that each reason rejected, each
claim in order, the alternates, and how the builds on the nodes ended; first of all, the causes of a
failure.  The exit code is 0 if there is a record, 1 if there is none, and 2 if the records cannot be read.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from shared_scheduler.cmd import record_stores, terms
from shared_scheduler.cmd.record_stores import moment, values
from shared_scheduler.records.plain_text import printable
from shared_scheduler.records.store import ACTIVE, BUILD, PLACED, Record, Store
from shared_scheduler.records.story import Story, story_of

#: groups of terms that ``--help`` defines
TERMS = (terms.FAILURES, terms.BUILDS, terms.NOT_CHOOSABLE, terms.REASONS, terms.ATTEMPTS)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("id", metavar="ID", help="id of a request, global id of a request, or uuid of a server")
    record_stores.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read the records and print the story.  Returns the exit code."""

    def ask(store: Store) -> int:
        story = story_of(store, args.id)
        if story is None:
            return record_stores.not_found("why", args.id)
        print(json.dumps(story.as_dict()) if args.format == "json" else "\n".join(lines(story)))
        return 0

    return record_stores.with_store("why", args, ask)


def lines(story: Story) -> list[str]:
    """The story as lines, each without control characters."""
    return [printable(line) for line in _lines(story)]


def _lines(story: Story) -> Iterator[str]:
    yield f"{story.name}: {story.outcome}"
    yield from (f"  cause     {cause}" for cause in story.causes)
    for record in story.records:
        yield ""
        yield from _build(record) if record.get("kind") == BUILD else _decision(record)


def _build(record: Record) -> Iterator[str]:
    [host, *_] = record["hosts"]
    yield f"{moment(record['at'])}  build of {record['instances'][0]} on {host}: {record['result']}"
    if record["result"] != ACTIVE:
        yield f"  reason    {record['reason']}"


def _decision(record: Record) -> Iterator[str]:
    ids = [record["request_id"], *filter(None, [record.get("global_request_id")])]
    yield f"{moment(record['at'])}  decision of {record['scheduler']}: {' '.join(ids)}"
    yield f"  who       project {record['project_id']}, user {record.get('user_id', '')}"
    yield f"  asked     {_asked(record['asked'])}"
    if record.get("result", PLACED) != PLACED:
        yield f"  failed    {record['result']}: {record['reason']}"
    for counts in record["decisions"]:
        yield f"  decided   {counts['survivors']} of {counts['hosts']} hosts passed{_rejected(counts['reasons'])}"
        if counts["best"]:
            yield "  weights   " + ", ".join(map(_weight, counts["best"]))
    yield from (f"  short     {text}" for text in _short(record.get("near", ())))
    yield from map(_attempt, record["attempts"])
    for uuid, hosts in zip(record["asked"]["instances"], record["answer"], strict=False):
        alternates = f"; alternates {', '.join(hosts[1:])}" if hosts[1:] else ""
        yield f"  answer    {uuid} on {hosts[0]}{alternates}"


def _weight(one: Any) -> str:
    shares = " + ".join(f"{name} {share:.4g}" for name, share in one.get("shares", {}).items())
    return f"{one['host']} {one['weight']:.4g}" + (f" = {shares}" if shares else "")


def _asked(asked: Any) -> str:
    servers = len(asked["instances"])
    resources = values(asked["forms"][0]["resources"]) if asked["forms"] else "nothing of Placement"
    return f"{servers} server{'s' * (servers != 1)}, flavor {asked['flavor']}, {resources}"


def _rejected(reasons: Any) -> str:
    ordered = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    return "; rejected: " + ", ".join(f"{count} {code}" for code, count in ordered) if ordered else ""


def _short(near: Any) -> Iterator[str]:
    """What would have helped, of the hosts that were recorded one by one."""
    for one in near:
        detail = one["detail"]
        if {"asked", "used", "capacity"} <= detail.keys():
            missing = detail["used"] + detail["asked"] - detail["capacity"]
            yield f"{one['host']} {one['code']}: {values(detail)}; {missing:g} more would do"
        else:
            yield f"{one['host']} {one['code']}" + (f": {values(detail)}" if detail else "")


def _attempt(attempt: Any) -> str:
    times = {"verdict": attempt["verdict_ms"], "write": attempt["write_ms"]}
    took = ", ".join(f"{name} {value:.1f} ms" for name, value in times.items() if value is not None)
    detail = values(attempt["detail"])
    return f"  tried     {attempt['host']}: {'; '.join(filter(None, [attempt['outcome'], detail, took]))}"
