# SPDX-License-Identifier: Apache-2.0
"""The story of a request or a server: all records that belong to it, in order, and what they come to.

A build that fails on its node is tried on an alternate by nova-conductor without a new decision, and a server that is
moved has a request of its own for each move.  Therefore a story begins with the records of a name, and then takes in
every record of the instances that they name.  Records of kinds that this release does not know are shown, and decide
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared_scheduler.records.amounts import short_of
from shared_scheduler.records.store import ACTIVE, BUILD, COMPARISON, DECISION, PLACED, Record, Store

#: Instances of one request whose records are read; a larger request shows only its own records for the others.
INSTANCES_MAX = 50
#: Results that say that no host fits; the other failures say nothing of the hosts.
NO_HOST = frozenset({"no_valid_host", "no_candidates"})
#: the outcome of a try that succeeded
WRITTEN = "written"
#: Hosts and reasons of one failure that its cause names.
NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Story:
    """``records``: oldest first, each once.  ``outcome``: one sentence; ``causes``: why it failed, oldest first;
    ``would_help``: what the hosts lacked."""

    name: str
    records: tuple[Record, ...]
    outcome: str
    causes: tuple[str, ...]
    would_help: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The story as plain values."""
        return {
            "name": self.name, "outcome": self.outcome, "causes": list(self.causes),
            "would_help": list(self.would_help), "records": [dict(one) for one in self.records],
        }  # fmt: skip


def story_of(store: Store, name: str) -> Story | None:
    """The story of the request, global request or instance with this name; None if there is no record of it.

    :raises RecordsError: when the records cannot be read
    """
    found = store.find(name)
    if not found:
        return None
    instances = dict.fromkeys(uuid for record in found for uuid in record.get("instances", ()))
    for uuid in list(instances)[:INSTANCES_MAX]:
        if uuid != name:
            found += store.find(uuid)
    records = tuple(_each_once(sorted(found, key=lambda record: float(record["at"]))))
    own = [record for record in records if record.get("kind") != COMPARISON]
    outcome = _outcome(own) if own else "nova-scheduler has answered the request (mode shadow)"
    return Story(name, records, outcome, tuple(_causes(own)), tuple(_would_help(own)))


def _each_once(records: Sequence[Record]) -> Iterator[Record]:
    """Without repetitions, and with one of the ends of a build that two schedulers recorded."""
    seen: list[Any] = []
    for record in records:
        key: Any = record
        if record.get("kind") == BUILD:
            key = [record["instances"], record["hosts"], record["result"], record["reason"], _attempt(records, record)]
        if key not in seen:
            seen.append(key)
            yield record


def _attempt(records: Sequence[Record], build: Record) -> int:
    """The number of decisions before a build: after a new decision, the same build may fail again."""
    return sum(1 for one in records if one.get("kind") == DECISION and one["at"] <= build["at"])


def _outcome(records: Sequence[Record]) -> str:
    ends = list(_ends(records).values())
    if not ends:
        return "no decision and no build is recorded"
    if len(ends) == 1:
        return _sentence(ends[0])
    active = sum(1 for end in ends if end["result"] == ACTIVE)
    failed = sum(1 for end in ends if end["result"] not in (ACTIVE, PLACED))
    return f"{len(ends)} servers: {active} active, {failed} failed, {len(ends) - active - failed} placed"


def _ends(records: Sequence[Record]) -> Mapping[str, Record]:
    """The newest record of each instance; a request without instances is one."""
    known = (record for record in records if record.get("kind") in (DECISION, BUILD))
    return {uuid: record for record in known for uuid in record.get("instances") or [""]}


def _sentence(end: Record) -> str:
    host = _host(end)
    if end["result"] == ACTIVE:
        return f"active on {host}"
    if end.get("kind") == BUILD:
        return f"the build on {host} failed"
    if end["result"] == PLACED:
        return f"placed on {host}; no build is recorded after that"
    if end["result"] in NO_HOST:
        return f"no host was found ({end['result']})"
    return f"the request failed ({end['result']})"


def _host(record: Record) -> str:
    answer = [inner[0] for inner in record.get("answer", ()) if inner]
    return ", ".join(answer or record.get("hosts", ()))


def _causes(records: Sequence[Record]) -> Iterator[str]:
    """Why it failed.  A server that is active now has no causes; its earlier failures are in the records."""
    ends = _ends(records)
    causes: dict[str, None] = {}
    for record in records:
        kind = record.get("kind")
        if kind in (DECISION, BUILD) and all(ends[uuid]["result"] == ACTIVE for uuid in record["instances"] or [""]):
            continue
        if kind == BUILD and record["result"] != ACTIVE:
            causes[f"{record['reason']} (on {_host(record)})"] = None
        elif kind == DECISION and record["result"] != PLACED:
            causes[_refusal(record)] = None
    yield from causes


def _would_help(records: Sequence[Record]) -> Iterator[str]:
    """What the hosts lacked, of the newest decision, if it found no host."""
    last: Record = next((one for one in reversed(records) if one.get("kind") == DECISION), {})
    for code, span in last.get("missing", {}).items():
        if len(span) == 2:  # a changed record may have any numbers
            yield short_of(code, last.get("reasons", {}).get(code, 0), *span)


def _refusal(decision: Record) -> str:
    """The text of the failure, with what it leaves out: the outcome of each try, and the reasons by their hosts."""
    text = decision["reason"].strip() or decision["result"]
    tried = [f"{one['host']} {one.get('detail', {}).get('filter', one['outcome'])}"
             for one in decision.get("attempts", ()) if one["outcome"] != WRITTEN]  # fmt: skip
    ordered = sorted(decision.get("reasons", {}).items(), key=lambda one: (-one[1], one[0]))
    rejected = [f"{count} {code}" for code, count in ordered]
    missing = sorted({name for one in decision.get("near", ()) for name in one["detail"].get("missing", ())})
    told = "rejected:" in text or decision["result"] not in NO_HOST
    parts = {"tried": _first(tried), "rejected": "" if told else _first(rejected), "missing": ", ".join(missing)}
    return "; ".join([text, *(f"{name}: {part}" for name, part in parts.items() if part)])


def _first(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
