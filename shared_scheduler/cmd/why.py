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
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from shared_scheduler.answers import from_records, terms
from shared_scheduler.answers.decision_facts import limits, took
from shared_scheduler.answers.held_room import held_text
from shared_scheduler.answers.host_facts import outcome, rejection, tries_after, unknown_kind, values, weight_text
from shared_scheduler.answers.next_steps import end_of_alternates, next_steps, unknown_causes
from shared_scheduler.answers.shapes import FAULT, NovaEvent, Why
from shared_scheduler.answers.story_words import TERMS, result_of, words
from shared_scheduler.answers.times import timed
from shared_scheduler.cmd import nova_events, record_stores
from shared_scheduler.records.later_requests import move_text
from shared_scheduler.records.moments import moment, second
from shared_scheduler.records.order import in_order
from shared_scheduler.records.plain_text import listed, printable
from shared_scheduler.records.reason_names import FILTERED
from shared_scheduler.records.short_names import server_of, short_names
from shared_scheduler.records.store import (
    ACTIVE,
    BUILD,
    COMPARISON,
    DATABASES,
    DECISION,
    FOREIGN,
    PLACED,
    Record,
    Store,
)
from shared_scheduler.records.told_reasons import told_decisions, told_text


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("id", metavar="ID", help="id of a request, global id of a request, or uuid of a server")
    nova_events.add_argument(parser)
    record_stores.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read the records and print the story.  Returns the exit code."""

    def ask(store: Store) -> int:
        story = from_records.why(store, args.id)
        if story is None:
            return record_stores.not_found(store, "why", args.id)
        if args.nova:
            story["nova"] = nova_events.read(args, (uuid for one in story["records"] for uuid in one["instances"]))
        print(json.dumps(timed(story)) if args.format == "json" else "\n".join(lines(story, record_stores.named(args))))
        return 0

    return record_stores.with_store("why", args, ask)


def lines(story: Why, place: str = "") -> list[str]:
    """The story as lines, each without control characters; ``place``: see ``next_steps``."""
    return [printable(line) for line in _lines(story, place)]


def _lines(story: Why, place: str) -> Iterator[str]:
    yield f"{story['name']}: {story['outcome']}"
    yield from (f"  cause     {cause}" for cause in story["causes"])
    yield from (f"  end       {text}" for text in end_of_alternates(story))
    yield from (f"  unknown   {text}" for text in unknown_causes(story))
    yield from (f"  lacking   {text}" for text in story["would_help"])
    yield from (f"  next      {text}" for text in next_steps(story, place))
    yield from (f"  later     {text}" for text in story.get("later", ()))
    ours = [((stands_at, _PLACES.get(record.get("kind", DECISION), LAST)),
             ["", *_SHOWN.get(record.get("kind", DECISION), _unknown)(record)])
            for stands_at, record in in_order(story["records"])]  # fmt: skip
    novas = [(_place(story, event), ["", *_nova_event(story, event)]) for event in story.get("nova", ())]
    for _, shown in sorted([*ours, *novas], key=lambda one: one[0]):
        yield from shown
    yield from terms.explained(words(story), *TERMS)


def _place(story: Why, event: NovaEvent) -> tuple[float, int]:
    """Where an event of Nova stands.  Nova keeps whole seconds, so it may have begun after a decision of its second."""
    if event["action"] == FAULT:
        return event["at"], LAST
    decided = (one["at"] for one in story["records"] if one.get("kind", DECISION) == DECISION
               and math.floor(one["at"]) == event["at"])  # fmt: skip
    return max(decided, default=event["at"]), EVENT


def _nova_event(story: Why, event: NovaEvent) -> Iterator[str]:
    where = f" on {event['host']}" if event["host"] else ""
    if event["action"] == FAULT:
        yield f"{second(event['at'])}  Nova, fault{where}: {event['details']}"
        return
    began = f"{second(event['at'])}  Nova, {event['action']}: {event['event']}{where} began"
    yield f"{began}; {result_of(story['records'], event)}"
    if event["details"]:
        yield f"  details   {event['details']}"


def _unknown(record: Record) -> Iterator[str]:
    yield f"{moment(record['at'])}  {unknown_kind(record)}"


def _comparison(record: Record) -> Iterator[str]:
    yield f"{moment(record['at'])}  comparison of {record['scheduler']}: {_ids(record)}"
    yield f"  result    {' '.join(filter(None, [record['result'], record['reason']]))}"
    for name, side in (("ours", "ours"), ("stock", "nova-scheduler")):
        yield f"  {name:8}  {', '.join(record[name]['hosts']) or record[name]['error'] or 'not asked'} ({side})"
    if record["weights"] is not None:
        ours, stock = record["weights"]
        place = f"number {record['rank']} in our order"
        yield f"  weights   ours {ours:.4g}, nova-scheduler's {stock:.4g}, {place}"


def _build(record: Record) -> Iterator[str]:
    where = f" on {record['hosts'][0]}" if record["hosts"] else ""
    told = " (read from Nova's databases)" if record.get("source") == DATABASES else ""
    yield f"{moment(record['at'])}  build of {record['instances'][0]}{where}: {record['result']}{told}"
    if record["result"] != ACTIVE:
        yield f"  reason    {record['reason']}"


def _foreign(record: Record) -> Iterator[str]:
    where = f" on {record['hosts'][0]}" if record["hosts"] else ""
    yield f"{moment(record['at'])}  another writer changed allocations of {record['instances'][0]}{where}"
    yield f"  kind      {record['result']}, seen by {record.get('seen_by', '')} of {record['scheduler']}"
    yield f"  change    {record['reason']}"


def _decision(record: Record) -> Iterator[str]:
    yield f"{moment(record['at'])}  decision of {record['scheduler']}: {_ids(record)}"
    yield f"  who       project {record['project_id']}, user {record.get('user_id', '')}"
    yield f"  asked     {_asked(record['asked'])}"
    yield from (f"  limited   {'; '.join(texts)}" for texts in [list(limits(record["asked"]))] if texts)
    if record.get("result", PLACED) != PLACED:
        yield f"  failed    {record['result']}: {told_text(record)}"
    names = short_names(record)
    for counts, numbers in told_decisions(record):
        name = names.get(server_of(record, counts.get("index", 0)), "")
        yield f"  decided   {name}{': ' * bool(name)}{passed(counts)}" + f" ({len(numbers)} times)" * (len(numbers) > 1)
        if counts["best"]:
            yield "  weights   " + "; ".join(_weights(counts))
        for number in numbers:
            yield from _attempts(record, number)
    for one in record.get("near", ()):
        yield f"  host      {one['host']}: {rejection(one)}"
        yield from _held(one)
    yield from _attempts(record, 0)
    for uuid, hosts in zip(record["asked"]["instances"], record["answer"], strict=False):
        alternates = f"; alternates {', '.join(hosts[1:])}" if hosts[1:] else ""
        yield f"  answer    {uuid} on {hosts[0]}{alternates}"
    yield from (f"  took      {text}" for text in took(record))


def _ids(record: Record) -> str:
    global_id = record.get("global_request_id")
    return str(record["request_id"]) + (f" (global id {global_id})" if global_id else "")


def passed(counts: Mapping[str, Any]) -> str:
    """How many hosts passed in a decision, and why the others did not."""
    if not counts["hosts"]:
        return "no host was known yet"
    return f"{counts['survivors']} of {counts['hosts']} hosts passed{_rejected(counts['reasons'])}"


def _weights(counts: Any) -> Iterator[str]:
    """The best hosts, best first; those whose weights are shown alike are one part."""
    if counts["survivors"] == 1:
        return iter([f"only {counts['best'][0]['host']} passed, so it was not weighed"])
    alike: dict[str, list[str]] = {}
    for one in counts["best"]:
        alike.setdefault(weight_text(one), []).append(one["host"])
    best = [f"{listed(hosts)}{' each' * bool(hosts[1:])} {weight}" for weight, hosts in alike.items()]
    chosen = [f"chosen: {one['host']} {weight_text(one)}" for one in [counts.get("chosen")] if one]
    return iter([*best, *chosen])


def _asked(asked: Any) -> str:
    servers = len(asked["instances"])
    resources = values(asked["forms"][0]["resources"]) if asked["forms"] else "nothing of Placement"
    move = move_text(asked)
    return f"{move}{' of ' * bool(move)}{servers} server{'s' * (servers != 1)}, flavor {asked['flavor']}, {resources}"


def _rejected(reasons: Any) -> str:
    ordered = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    return "; rejected: " + ", ".join(f"{count} {code}" for code, count in ordered) if ordered else ""


def _attempts(record: Record, decision: int) -> Iterator[str]:
    names = short_names(record)
    for attempt in tries_after(record, decision):
        yield _attempt(attempt, names.get(attempt.get("instance", ""), ""))
        yield from _held(attempt)


def _held(host: Any) -> Iterator[str]:
    text = held_text(host)
    if text:
        yield f"  held      {host['host']}: {text}"


def _attempt(attempt: Any, server: str) -> str:
    """``server``: its short name, if the request has several."""
    times = {"verdict": attempt["verdict_ms"], "write": attempt["write_ms"]}
    took = ", ".join(f"{name} {value:.1f} ms" for name, value in times.items() if value is not None)
    did = "rejected" if attempt["outcome"] == FILTERED else "tried"
    where = f"{server} on {attempt['host']}" if server else attempt["host"]
    return f"  {did:8}  {where}: {'; '.join(filter(None, [outcome(attempt), took]))}"


#: order of what has the same time: Nova begins a build after the decision, and the end of a build follows
EVENT, LAST = 1, 3
#: kind of a record -> its place in this order
_PLACES = {DECISION: 0, BUILD: 2}
#: kind of a record -> its lines
_SHOWN: Mapping[str, Callable[[Record], Iterator[str]]] = {
    DECISION: _decision, BUILD: _build, COMPARISON: _comparison,
    FOREIGN: _foreign,
}  # fmt: skip
