# SPDX-License-Identifier: Apache-2.0
"""What the records answer.  ``records.opening`` opens the store that these functions read; each raises
``RecordsError`` when the records cannot be read.

The commands ``why``, ``why-not``, ``records`` and ``story``, the page of ``serve`` and its JSON call these functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from shared_scheduler.answers.held_room import with_projects
from shared_scheduler.answers.host_facts import facts, known_state
from shared_scheduler.answers.shapes import HostEvent, Reasons, RecordEntry, Why, WhyNot
from shared_scheduler.records.joined_ends import lacks_asker, with_askers
from shared_scheduler.records.moments import moment
from shared_scheduler.records.order import in_order
from shared_scheduler.records.store import (
    ACTIVE,
    BUILD,
    DATABASES,
    DECISION,
    DISORDER_MAX_S,
    FAILED,
    FOUND_MAX,
    NODE,
    PLACED,
    Record,
    RecordConditions,
    Store,
    host_name,
    names_of,
    near_name,
)
from shared_scheduler.records.story import Story, story_of

#: Records that ``reasons`` reads at most, the newest ones.
COUNTED_MAX = 5_000
#: Decisions that ``last_failures``, ``last`` of a project and ``with_askers_of`` read.
DECISIONS_MAX = 1_000
#: Servers of a project whose ends ``last`` looks for, the newest ones.
SERVERS_MAX = 2_000
#: Records of a host that ``story`` reads for a line that is wanted, and how many times as many if these are too few.
READ_PER_LINE, READ_AGAIN = 2, 4
#: The longest time between a decision and the end of its build that ``last`` takes into account.
BUILD_MAX_S = 3_600.0
#: An end that Nova keeps in whole seconds may seem to be this much earlier than its decision.
WHOLE_SECONDS_S = 1.0
#: kind of a record that may say that something failed -> its result otherwise
SUCCEEDED = {DECISION: PLACED, BUILD: ACTIVE}
#: Steps of time in which failures are counted.
STEPS = 48
#: All records.
ALWAYS = RecordConditions()
#: Records in which ``writers`` looks for schedulers.
WRITERS_MAX = 1_000
#: Texts of builds that ``reasons`` has of one error, and their length.
TEXTS_MAX, TEXT_CHARS_MAX = 3, 160


def why(store: Store, name: str) -> Why | None:
    """The story of a request, a global request or a server; None if there is no record of it."""
    story = _told(store, name)
    return None if story is None else cast(Why, story.as_dict())


def _told(store: Store, name: str) -> Story | None:
    story = story_of(store, name)
    return None if story is None else replace(story, records=tuple(with_projects(store, story.records)))


def why_not(store: Store, name: str, host: str) -> list[WhyNot] | None:
    """Why a server is not on a host, oldest first; None if there is no record of the server."""
    found = server_and_host(store, name, host)
    return None if found is None else found.why_not


@dataclass(frozen=True, slots=True)
class ServerAndHost:
    """What the records tell of a server and a host: ``outcome`` of the server, why it is not there, oldest first, and
    its newest decision; None if none is recorded."""

    outcome: str
    why_not: list[WhyNot]
    decision: Record | None


def server_and_host(store: Store, name: str, host: str) -> ServerAndHost | None:
    """Why a server is not on a host; None if there is no record of the server."""
    story = _told(store, name)
    if story is None:
        return None
    found = [
        WhyNot(at=one["at"], request_id=one.get("request_id", ""), instance=fact.server,
               text=fact.text, source="record")
        for one in story.records for fact in facts(one, host)
    ]  # fmt: skip
    decisions = (one for one in reversed(story.records) if one.get("kind") == DECISION and name in names_of(one))
    return ServerAndHost(story.outcome, found, next(decisions, None))


def is_named(store: Store, host: str) -> bool:
    """Whether a record has a host: it was selected, tried or built on, or told its state, or the reason is recorded."""
    return any(store.last(1, RecordConditions(names=frozenset({name}))) for name in (host_name(host), near_name(host)))


def last(store: Store, count: int, wanted: RecordConditions) -> list[RecordEntry]:
    """The newest ``count`` records that are wanted, oldest first.

    Those of a project have the ends of builds of its newest servers that were stored without ids."""
    found = store.last(count, wanted)
    if wanted.project and wanted.kind in ("", BUILD):
        part = replace(wanted, since_s=_newer_since_s(found, wanted)) if 0 < count == len(found) else wanted
        if ends := _ends_without_ids(store, part):  # their decisions may have been stored since
            found = [record for _, record in in_order([*store.last(count, wanted), *ends])]
    return cast(list[RecordEntry], found[-count:])


def _newer_since_s(found: Sequence[Record], wanted: RecordConditions) -> float:
    """Since when there may be ends that are newer than the oldest of as many records as are wanted."""
    oldest_s = float(found[0]["at"]) - WHOLE_SECONDS_S
    return oldest_s if wanted.since_s is None else max(oldest_s, wanted.since_s)


def _ends_without_ids(store: Store, wanted: RecordConditions) -> list[Record]:
    """Those that are wanted but for their project, with the ids of their decisions."""
    since_s = None if wanted.since_s is None else wanted.since_s - BUILD_MAX_S
    until_s = None if wanted.until_s is None else wanted.until_s + WHOLE_SECONDS_S
    of_project = RecordConditions(DECISION, wanted.project, result=PLACED, since_s=since_s, until_s=until_s)
    decisions = store.last(DECISIONS_MAX, of_project)
    servers = _servers(reversed(decisions))[:SERVERS_MAX]
    if not servers:
        return []
    # all of them, because the store's newest are those that were stored last
    ends = store.last(FOUND_MAX, replace(wanted, kind=BUILD, project="", names=frozenset(servers)))
    joined = with_askers([end for end in ends if lacks_asker(end)], decisions)
    return [end for end in joined if wanted.accepts(end)]


def _servers(records: Iterable[Record]) -> list[str]:
    """The servers of the records, each once."""
    return list(dict.fromkeys(server for record in records for server in record.get("instances", ())))


def story(store: Store, host: str, count: int, span: RecordConditions = ALWAYS) -> list[HostEvent]:
    """The newest ``count`` facts that the records tell of a host, oldest first; those that a scheduler repeats are one.

    ``span``: since when and until when; its other conditions are not read."""
    return story_with_servers(store, host, count, 0, span)[0]


def story_with_servers(
    store: Store, host: str, count: int, servers: int, span: RecordConditions = ALWAYS
) -> tuple[list[HostEvent], list[str]]:
    """The story of a host, and the newest ``servers`` servers that it names, in all of its facts, the newest first.

    No more is read than this takes: one fact more, because the first one depends on what was before it, and those that
    ``_may_differ_until`` leaves in doubt."""
    read = READ_PER_LINE * count
    while True:
        found, since_s = _newest_of_host(store, host, min(read, FOUND_MAX), span)
        part = span if since_s is None else replace(span, since_s=since_s)
        found += _as_alternate(store, host, found, count, part)
        events = _events_of(store, host, found)
        named = list(dict.fromkeys(server for one in reversed(events) for server in one["instances"]))
        is_certain = len(events) > count and events[-count]["at"] > _may_differ_until(found, host)
        if since_s is None or (is_certain and len(named) >= servers):
            return events[-count:], named[:servers]
        read *= READ_AGAIN


def _may_differ_until(records: Iterable[Record], host: str) -> float:
    """Until when a story that begins with these records may differ from one that begins earlier: the first word of a
    scheduler may repeat an earlier one, and increments may have come before the first state of the host."""
    first: dict[str, float] = {}
    for record in records:
        words = [f"of {record.get('scheduler')}"] if record.get("kind") == NODE else []
        states = ["state"] if known_state(record, host)[0] else []
        first |= {one: min(record["at"], first.get(one, record["at"])) for one in (*words, *states)}
    return max(first.values(), default=float("-inf"))


def _newest_of_host(store: Store, host: str, read: int, span: RecordConditions) -> tuple[list[Record], float | None]:
    """Of each name of a host the newest ``read`` records, and since when they are all; None if none is left out.

    A record is stored a while after its time, and the end of a build that databases have told may be much older."""
    names = (host_name(host), near_name(host))
    each = [store.last(read, replace(span, names=frozenset({name}))) for name in names]
    left_out = [records for records in each if len(records) == read < FOUND_MAX]
    if not left_out:
        return [one for records in each for one in records], None
    oldest = (min((one["at"] for one in records if one.get("source") != DATABASES), default=float("inf"))
              for records in left_out)  # fmt: skip
    since_s = max(oldest) + DISORDER_MAX_S
    return [one for records in each for one in records if one["at"] >= since_s], since_s


def _events_of(store: Store, host: str, records: Sequence[Record]) -> list[HostEvent]:
    found = [record for _, record in in_order(records)]
    known = with_askers_of(store, cast(list[RecordEntry], with_projects(store, found)))
    return list(_with_increments(_repeated(cast(list[Record], known)), host))


def _as_alternate(store: Store, host: str, known: Sequence[Record], count: int, span: RecordConditions) -> list[Record]:
    """The decisions that named a host as an alternate only, of the newest ``count`` servers that were built there.

    nova-conductor tried it without a new decision, so it is neither selected nor tried in any."""
    decided = set(_servers(record for record in known if record.get("kind") == DECISION))
    builds = sorted((record for record in known if record.get("kind") == BUILD), key=lambda one: -float(one["at"]))
    retried = [server for server in _servers(builds) if server not in decided][:count]
    if not retried:
        return []
    wanted = replace(span, kind=DECISION, result=PLACED, names=frozenset(retried))
    return [one for one in store.last(DECISIONS_MAX, wanted) if any(host in hosts for hosts in one.get("answer", ()))]


def with_askers_of(store: Store, records: list[RecordEntry]) -> list[RecordEntry]:
    """The records; ends of builds that a scheduler recorded for another one get the ids of the decision, if it is one
    of the newest ``DECISIONS_MAX`` of these servers."""
    found = cast(list[Record], records)
    lacking = [record for record in found if lacks_asker(record)]
    if not lacking:
        return records
    until_s = max(record["at"] for record in lacking) + WHOLE_SECONDS_S
    wanted = RecordConditions(DECISION, result=PLACED, until_s=until_s, names=frozenset(_servers(lacking)))
    return cast(list[RecordEntry], with_askers(found, store.last(DECISIONS_MAX, wanted)))


def _repeated(records: Iterable[Record]) -> list[list[Record]]:
    """The records; those that repeat one another are in one list.

    A scheduler asks for the state of a node again and again until an agent answers.  An agent reports the end of a
    build several times, maybe to schedulers that have started since.

    After a new decision about its server, the same build may end again."""
    found: list[list[Record]] = []
    last: dict[tuple[str, ...], list[Record]] = {}  # what was last said of a subject
    for record in records:
        if record.get("kind") == DECISION:
            for server in record.get("instances", ()):
                last.pop((BUILD, server), None)
        subject = _subject(record)
        same = last.get(subject, [])
        if same and _said(same[0]) == _said(record):
            same.append(record)
            continue
        found.append([record])
        if subject:
            last[subject] = found[-1]
    return found


def _subject(record: Record) -> tuple[str, ...]:
    """What may be repeated: the state of the host, by each scheduler, and the end of the build of a server."""
    kind = record.get("kind", "")
    names = {NODE: [record.get("scheduler", "")], BUILD: record.get("instances", ())}
    return (kind, *names[kind]) if kind in names else ()


def _said(record: Record) -> Record:
    """What is the same if it is said again; another scheduler may record the end of a build again."""
    left_out = {"at", "scheduler"} if record.get("kind") == BUILD else {"at"}
    return {name: value for name, value in record.items() if name not in left_out}


def _with_increments(groups: Iterable[Sequence[Record]], host: str) -> Iterator[HostEvent]:
    """The events, and before each one the increments of the agent since the newest message that an earlier one shows.

    No increment has a record of its own.  A scheduler that has applied some counts them in its next record."""
    newest: dict[int, int] = {}  # epoch -> sequence
    for same in groups:
        epoch, sequence = known_state(same[0], host)
        if sequence > newest.get(epoch, sequence) and not same[0].get("increments"):
            text = _increments(newest[epoch] + 1, sequence)
            yield HostEvent(at=same[0]["at"], request_id="", instances=[], text=text)
        newest[epoch] = max(sequence, newest.get(epoch, 0))
        yield from _events(same, host)


def _increments(first: int, last: int) -> str:
    numbers = f"increment {first}" if first == last else f"increments {first} to {last}"
    return f"its agent had sent {numbers}"


def _events(same: Sequence[Record], host: str) -> Iterator[HostEvent]:
    first, last = same[0], same[-1]
    request_id, instances = first.get("request_id", ""), list(first.get("instances", ()))
    again = f" ({len(same)} times until {moment(last['at'])})" if len(same) > 1 and first.get("kind") == NODE else ""
    for fact in facts(first, host):
        servers = [fact.server] if fact.server else instances
        yield HostEvent(at=first["at"], request_id=request_id, instances=servers, text=fact.text + again)


def reasons(store: Store, since_at: float, until_at: float) -> Reasons:
    """The failures between two moments by reason, of the newest ``COUNTED_MAX`` records."""
    found = store.last(COUNTED_MAX, RecordConditions(since_s=since_at, until_s=until_at))
    whole = len(found) < COUNTED_MAX
    since_at = since_at if whole else float(found[0]["at"])
    step_s = max(until_at - since_at, 1.0) / STEPS
    counts: dict[str, list[int]] = {}
    for record, reason in _failures(found):
        counts.setdefault(reason, [0] * STEPS)[min(int((record["at"] - since_at) / step_s), STEPS - 1)] += 1
    ordered = dict(sorted(counts.items(), key=lambda one: (-sum(one[1]), one[0])))
    return Reasons(since_at=since_at, until_at=until_at, step_s=step_s, records=len(found), whole=whole,
                   counts=ordered, texts=_texts(found))  # fmt: skip


def is_failure(record: Record) -> bool:
    """Whether a record says that a request or a build failed.  A resync or a dropped comparison is no failure."""
    good = SUCCEEDED.get(record.get("kind", ""))
    return good is not None and record.get("result", good) != good


def last_failures(store: Store, count: int) -> list[RecordEntry]:
    """The newest ``count`` failures, oldest first: of all builds, and of the newest ``DECISIONS_MAX`` decisions."""
    builds = store.last(count, RecordConditions(kind=BUILD, result=FAILED))
    decisions = filter(is_failure, store.last(DECISIONS_MAX, RecordConditions(kind=DECISION)))
    found = sorted([*builds, *decisions], key=lambda record: float(record["at"]))
    return cast(list[RecordEntry], found[-count:])


def _texts(records: list[Record]) -> dict[str, dict[str, int]]:
    """What failed builds say behind the name of their error."""
    texts: dict[str, Counter[str]] = {}
    for record, reason in _failures(records):
        text = record["reason"].partition(":")[2].strip() if record["kind"] == BUILD else ""
        if text:
            short = text[:TEXT_CHARS_MAX] + "…" * (len(text) > TEXT_CHARS_MAX)
            texts.setdefault(reason, Counter())[short] += 1
    return {reason: dict(counted.most_common(TEXTS_MAX)) for reason, counted in texts.items()}


def writers(store: Store, since_at: float) -> dict[str, float]:
    """Each scheduler that wrote one of the newest ``WRITERS_MAX`` records since then -> the moment of its last one."""
    found = store.last(WRITERS_MAX, RecordConditions(since_s=since_at))
    return {str(one["scheduler"]): float(one["at"]) for one in found if one.get("scheduler")}


def _failures(records: list[Record]) -> Iterator[tuple[Record, str]]:
    for record in filter(is_failure, records):
        if record["kind"] == BUILD:
            yield record, record["reason"].partition(":")[0].strip() or FAILED
        else:
            most = Counter[str](record.get("reasons", {})).most_common(1)
            yield record, most[0][0] if most else record["result"]
