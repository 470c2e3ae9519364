# SPDX-License-Identifier: Apache-2.0
"""The story of a request or a server: all records that belong to it, in order, and what they come to.

A build that fails on its node is tried on an alternate by nova-conductor without a new decision, and a server that is
moved has a request of its own for each move.  Therefore a story begins with the records of a name, and then takes in
every record of the instances that they name.  Records of kinds that this release does not know are shown, and decide
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared_scheduler.records.joined_ends import with_askers
from shared_scheduler.records.lacking import NAMED_MAX, lacking
from shared_scheduler.records.later_requests import NO_HOST, Followed, Later, followed, own_records
from shared_scheduler.records.order import in_order
from shared_scheduler.records.plain_text import listed
from shared_scheduler.records.reason_names import FILTERED, told_outcome
from shared_scheduler.records.short_names import server_of, servers_of, short_names
from shared_scheduler.records.store import (
    ACTIVE,
    BUILD,
    COMPARISON,
    DECISION,
    FOUND_MAX,
    NO_REASON,
    PLACED,
    Record,
    RecordConditions,
    Store,
)
from shared_scheduler.records.told_reasons import WRITTEN, placed_before, told_reasons, told_text

#: Instances of one request whose records are read; a larger request shows only its own records for the others.
INSTANCES_MAX = 50
#: the outcome of a claim that was taken back after it was written
DELETED = "deleted"
#: outcomes of tries that no host has refused: it gave no answer in time, or the claim or the write was not wanted
NOT_REFUSED = frozenset({
    WRITTEN, FILTERED, "released", "late", "timed_out", "undelivered", "unreachable", "denied", "not_served",
    "never_sent", "consumer_conflict",
})  # fmt: skip
#: Later requests that are told apart, the newest ones.
LATER_MAX = 10


@dataclass(frozen=True, slots=True)
class Story:
    """``records``: oldest first, each once.  ``outcome``: one sentence; ``causes``: why it failed, oldest first;
    ``would_help``: what the hosts lacked.  ``later``: what became of later requests for servers of this one."""

    name: str
    records: tuple[Record, ...]
    outcome: str
    causes: tuple[str, ...]
    would_help: tuple[str, ...] = ()
    later: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The story as plain values."""
        return {
            "name": self.name, "outcome": self.outcome, "causes": list(self.causes),
            "would_help": list(self.would_help), "later": list(self.later),
            "records": [dict(one) for one in self.records],
        }  # fmt: skip


def story_of(store: Store, name: str) -> Story | None:
    """The story of the request, global request or instance with this name; None if there is no record of it.

    :raises RecordsError: when the records cannot be read
    """
    found = store.find(name)
    if not found:
        return None
    instances = dict.fromkeys(uuid for record in found for uuid in record.get("instances", ()))
    others = frozenset(list(instances)[:INSTANCES_MAX]) - {name}
    if others:
        found += store.last(FOUND_MAX, RecordConditions(names=others))
    ordered = [record for _, record in in_order(found)]
    records = tuple(with_askers(list(_each_once(ordered)), ordered))
    own = [record for record in own_records(records, name) if record.get("kind") != COMPARISON]
    later = followed(records).later
    outcome = _outcome(own, later) if own else "nova-scheduler has answered the request (mode shadow)"
    return Story(name, records, outcome, tuple(_causes(own)), tuple(_would_help(own)), tuple(_later(own, later)))


def _each_once(records: Sequence[Record]) -> Iterator[Record]:
    """Without repetitions, and with one of the ends of a build that schedulers recorded twice.

    After a new decision about its server, the same build may fail again."""
    seen: list[Any] = []
    decisions: Counter[str] = Counter()
    for record in records:
        key: Any = record
        if record.get("kind") == BUILD:
            number = [decisions[server] for server in record["instances"]]
            key = [record["instances"], record["hosts"], record["result"], record["reason"], number]
        if key not in seen:
            seen.append(key)
            decisions.update(record.get("instances", ()) if record.get("kind") == DECISION else ())
            yield record


def _outcome(own: Sequence[Record], later: Sequence[Later]) -> str:
    found = followed(own)
    ends = list(found.ends.values())
    if not ends:
        return "no decision and no build is recorded"
    if len(ends) == 1:
        [server] = found.ends
        since = [*(one.text("there") for one in found.since.get(server, ())[-1:]), *_stays(ends[0], later)]
        return "; ".join([_sentence(ends[0], _troubles(own, server, ends[0])), *since])
    active = sum(1 for end in ends if end["result"] == ACTIVE)
    failed = sum(1 for end in ends if end["result"] not in (ACTIVE, PLACED))
    counts = {
        "active": active,
        "failed": failed,
        "placed, the end of the build is not known": len(ends) - active - failed,
    }
    return f"{len(ends)} servers: " + ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def _stays(end: Record, later: Sequence[Later]) -> Iterator[str]:
    """Where the server of a request stays that could not move it."""
    yield from (f"the server stays on {one.host}" for one in later
                if one.decision is end and one.failed and one.moves)  # fmt: skip


def _later(own: Sequence[Record], later: Sequence[Later]) -> list[str]:
    """The later requests that the outcome does not tell."""
    several = len(followed(own).ends) > 1
    told = [one for one in later if one.decision not in own or (several and one.failed)]
    return [f"{one.server}: {one.text(f'on {one.host}')}" for one in told[-LATER_MAX:]]


@dataclass(frozen=True, slots=True)
class _Troubles:
    """The hosts that refused a server, those that a filter rejected, and those on which its builds failed, since it was
    last active."""

    refused: tuple[str, ...]
    rejected: tuple[str, ...]
    failed: tuple[str, ...]

    def before(self) -> str:
        """In brackets, for a server that is active now; empty if there were none."""
        refused = [f"{listed(self.refused)} refused"] if self.refused else []
        rejected = [f"a filter rejected {listed(self.rejected)}"] if self.rejected else []
        failed = [f"{_builds(self.failed)} failed"] if self.failed else []
        told = [*refused, *rejected, *failed]
        return f" ({listed(told)} before)" if told else ""


def _troubles(records: Sequence[Record], server: str, end: Record) -> _Troubles:
    """Before the end of a server; hosts of the newest decision only, because an older one was of another request."""
    known = [one for one in records
             if one.get("kind") in (DECISION, BUILD) and server in (one.get("instances") or [""])]  # fmt: skip
    before = known[: known.index(end)]
    active = [place for place, one in enumerate(before) if one["result"] == ACTIVE]
    since = before[active[-1] + 1 :] if active else before
    failed = tuple(_host(one) for one in since if one["kind"] == BUILD)
    decided: Record = next((one for one in reversed(since) if one["kind"] == DECISION), {})
    return _Troubles(tuple(refusing(decided, server)), tuple(rejected(decided, server)), failed)


def refusing(decision: Record, server: str = "") -> list[str]:
    """The hosts that refused a server, or any server of the decision."""
    return _ended(decision, server, lambda outcome: outcome not in NOT_REFUSED)


def rejected(decision: Record, server: str = "") -> list[str]:
    """The selected hosts that a filter of Nova rejected for a server, or for any server of the decision."""
    return _ended(decision, server, lambda outcome: outcome == FILTERED)


def hosts_by_end(decision: Record) -> tuple[list[str], dict[str, list[str]]]:
    """The selected hosts of a decision, and how the others ended -> these hosts."""
    selected = list(dict.fromkeys(str(inner[0]) for inner in decision["answer"] if inner))
    refused = refusing(decision)
    filtered = [host for host in rejected(decision) if host not in refused]
    others = [host for host in decision.get("hosts", ()) if host not in (*selected, *refused, *filtered)]
    named = {"refused": refused, "rejected by a filter": filtered, "tried": others}
    return selected, {end: hosts for end, hosts in named.items() if hosts}


def servers_by_host(decision: Record) -> dict[str, list[str]]:
    """Host -> the servers that were placed there; of a host without any, those for which it was tried."""
    placed: dict[str, list[str]] = {}
    for server, hosts in zip(servers_of(decision), decision.get("answer", ()), strict=False):
        placed.setdefault(str(next(iter(hosts), "")), []).append(server)
    tried: dict[str, list[str]] = {}
    for one in decision.get("attempts", ()):
        tried.setdefault(one["host"], []).append(one.get("instance", ""))
    return {host: list(dict.fromkeys(servers)) for host, servers in {**tried, **placed}.items()}


def _ended(decision: Record, server: str, is_wanted: Callable[[str], bool]) -> list[str]:
    """The hosts that have a try with such an outcome, and none that succeeded."""
    tries = [one for one in decision.get("attempts", ()) if server in ("", one.get("instance", server))]
    took = {one["host"] for one in tries if one["outcome"] == WRITTEN}
    hosts = (str(one["host"]) for one in tries if is_wanted(one["outcome"]) and one["host"] not in took)
    return list(dict.fromkeys(hosts))


def _builds(hosts: Sequence[str]) -> str:
    return f"the build{'s' * (len(set(hosts)) > 1)} on {listed(hosts)}"


def _sentence(end: Record, troubles: _Troubles) -> str:
    host = _host(end)
    if end["result"] == ACTIVE:
        return f"became active on {host}{troubles.before()}"
    if end.get("kind") == BUILD:
        return f"{_builds((*troubles.failed, host))} failed"
    if end["result"] == PLACED:
        return f"placed on {host}; no build is recorded after that"
    if end["result"] in NO_HOST:
        return f"no host was found ({end['result']})"
    return f"the request failed ({end['result']})"


def _host(record: Record) -> str:
    answer = [inner[0] for inner in record.get("answer", ()) if inner]
    return ", ".join(answer or record.get("hosts", ()))


def _causes(records: Sequence[Record]) -> Iterator[str]:
    """Why it failed, each reason once."""
    causes: dict[str, list[str]] = {}
    for record in _failures(records):
        if record["kind"] == DECISION:
            causes.setdefault(_refusal(record), [])
        elif record["reason"] != NO_REASON:
            causes.setdefault(record["reason"], []).append(_host(record))
    yield from (f"{cause} (on {listed(hosts)})" if hosts else cause for cause, hosts in causes.items())


def reasonless(records: Sequence[Record]) -> list[str]:
    """The hosts of builds that failed, and of which Nova keeps no reason."""
    return list(dict.fromkeys(_host(one) for one in _failures(records) if one.get("reason") == NO_REASON))


def _failures(records: Sequence[Record]) -> Iterator[Record]:
    """What failed.  The earlier failures of a server that is active now are in the records, and do not count."""
    found = followed(records)
    for record in records:
        kind = record.get("kind")
        if kind not in (DECISION, BUILD) or record["result"] in (ACTIVE, PLACED):
            continue
        if any(_counts(record, server, found) for server in record["instances"] or [""]):
            yield record


def _counts(failure: Record, server: str, found: Followed) -> bool:
    """Whether a server is not active, or could not be moved since."""
    since = any(one.decision is failure for one in found.since.get(server, ()))
    return since or bool(found.ends[server]["result"] != ACTIVE)


def _would_help(records: Sequence[Record]) -> Iterator[str]:
    """What the hosts lacked, of the newest decision, if it found no host."""
    last: Record = next((one for one in reversed(records) if one.get("kind") == DECISION), {})
    if last.get("result") in NO_HOST:
        yield from lacking(last)


def _refusal(decision: Record) -> str:
    """The text of the failure, with what it leaves out: the outcome of each try, and the reasons by their hosts."""
    text, reasons = told_text(decision) or decision["result"], told_reasons(decision)
    part = _in_part(decision)
    left_out = (WRITTEN, DELETED) if part else (WRITTEN,)  # all were taken back, because one server found no host
    names = short_names(decision)
    ends = [(one["host"], told_outcome(one), _for(names, one.get("instance", "")))
            for one in decision.get("attempts", ()) if one["outcome"] not in left_out]  # fmt: skip
    tried = [f"{host} {end}{of}" for host, end, of in ends if end not in reasons]
    ordered = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    rejected = [f"{count} {code}" for code, count in ordered]
    missing = sorted({name for one in decision.get("near", ()) for name in one["detail"].get("missing", ())})
    told = "rejected:" in text or decision["result"] not in NO_HOST
    parts = {"tried": _first(tried), "rejected": "" if told else _first(rejected), "missing": ", ".join(missing)}
    return part + "; ".join([text, *(f"{name}: {part}" for name, part in parts.items() if part)])


def _in_part(decision: Record) -> str:
    """How many servers of a request had a host; empty if none had, or the record does not show it."""
    had, failed = placed_before(decision) if decision["result"] in NO_HOST else (0, 0)
    if not had:
        return ""
    of, name = len(decision.get("instances", ())), short_names(decision).get(server_of(decision, failed - 1))
    which = f"server {failed}" + (f", {name}," if name else "")
    return f"{had} of {of} servers had a host when {which} found none, and a request places all or none: "


def _for(names: Mapping[str, str], server: str) -> str:
    return f" for {names[server]}" if server in names else ""


def _first(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
