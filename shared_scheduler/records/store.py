# SPDX-License-Identifier: Apache-2.0
"""The interface of a store of records, and what all stores have in common.

A *record* is a JSON object that says what happened at one moment: a decision, or the end of a build.  Its *names* are
what it is found by: ids of requests, uuids of instances, and hosts.  ``json_lines.py`` and ``database.py`` are the two
stores; ``tests/unit/records/test_stores.py`` runs the same tests with both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from shared_scheduler.records.errors import RecordRefused
from shared_scheduler.records.told_reasons import reason_names

Record = Mapping[str, Any]

#: The kind of record that a decision is, and the result of one that found hosts.
DECISION, PLACED = "decision", "placed"
#: The kind of record that the end of a build on a node is, and its results.
BUILD, ACTIVE, FAILED = "build", "active", "failed"
#: The reason of a build that failed and of which Nova's databases have none.
NO_REASON = "Nova keeps no reason for a build that it tries on another host; the log of nova-compute there has it"
#: Who has reported the end of a build, or the state of a host: the agent of the node, or databases and Placement.
AGENT, DATABASES = "agent", "databases"
#: The kind of record that a comparison with nova-scheduler is; its results are those of ``agreement.Agreement``.
COMPARISON = "comparison"

#: The kind of record that a change of the knowledge of a host is; its result is a ``NodeChange``.
NODE = "node"
#: The kind of record that a change of allocations by another writer is; its result is a ``ChangeKind``.
FOREIGN = "foreign"

#: Maximum number of records that one question returns.
FOUND_MAX = 1_000
#: Only the owner and the group of a file may read records, because they name projects, users and servers.
FILE_MODE = 0o640
#: A record may be stored this much later than the one that follows it, because several processes write.
DISORDER_MAX_S = 60.0
SECONDS_PER_DAY = 86_400


@dataclass(frozen=True, slots=True)
class RecordConditions:
    """Conditions on records; one that is empty or None is always met.

    ``reason`` is part of the text of the reason, or of one of the reasons for which hosts were rejected, by its code or
    as it is told (``told_reasons.py``).  ``since_s``
    and ``until_s`` are seconds since 1970, both included.  ``names``: a record has one of them.
    """

    kind: str = ""
    project: str = ""
    host: str = ""
    result: str = ""
    reason: str = ""
    since_s: float | None = None
    until_s: float | None = None
    names: frozenset[str] = frozenset()

    def accepts(self, record: Record) -> bool:
        """Whether a record meets all conditions."""
        return (
            self.kind in ("", record.get("kind"))
            and self.project in ("", record.get("project_id"))
            and (not self.host or self.host in record.get("hosts", ()))
            and self.result in ("", record.get("result"))
            and (not self.reason or any(self.reason in text for text in reasons_of(record)))
            and (self.since_s is None or record["at"] >= self.since_s)
            and (self.until_s is None or record["at"] <= self.until_s)
            and (not self.names or not self.names.isdisjoint(names_of(record)))
        )

    def marks(self) -> list[str]:
        """Those of ``marks_of`` that each wanted record has."""
        values = {"kind": self.kind, "project": self.project, "result": self.result, "host": self.host}
        return [f"{name}:{value}" for name, value in values.items() if value]


class RecordWriter(Protocol):
    """Keeps records.  Used by one thread."""

    def write(self, records: Sequence[Record]) -> None:
        """Keep the records.  When it returns, they survive the end of this process.

        :raises RecordRefused: when one of them cannot be kept; then none is
        :raises Exception: when the store is full or away
        """

    def retain(self, now_s: float) -> bool:
        """Do one bounded step of retention at ``now_s`` (seconds since 1970): delete or archive the oldest records that
        are too old or too many.  Returns whether more is to be done.

        :raises Exception: when they are not archived; then they are kept
        """

    def close(self) -> None:
        """Release what is open.  Nothing is called after that."""


class Store(RecordWriter, Protocol):
    """A place where records are kept and found.  Other processes may read and write the same place."""

    def find(self, name: str) -> list[Record]:
        """The newest records that have this name, at most ``FOUND_MAX``, oldest first.

        :raises RecordsError: when the records cannot be read
        """

    def last(self, count: int, wanted: RecordConditions) -> list[Record]:
        """The newest ``count`` records that are wanted, oldest first.

        :raises RecordsError: when the records cannot be read
        """


def as_current(record: Record) -> Record:
    """A record as this release writes it.  Earlier ones had no kinds, and named a result ``outcome``."""
    if "kind" in record:
        return record
    asked, decisions = record.get("asked", {}), record.get("decisions", ())
    return {
        "user_id": asked.get("user_id", ""), **record, "kind": DECISION, "global_request_id": "",
        "instances": asked.get("instances", []), "result": record.get("outcome", ""), "reason": record.get("text", ""),
        "reasons": decisions[-1].get("reasons", {}) if decisions else {},
    }  # fmt: skip


def text_of(record: Record) -> str:
    """A record as a line of JSON.

    :raises RecordRefused: when it is not a record
    """
    try:
        float(record["at"])
        return json.dumps(record, separators=(",", ":"), default=str)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordRefused(f"{type(error).__name__}: {error}") from error


def names_of(record: Record) -> Iterator[str]:
    """What a record is found by, each once."""
    ids = (record.get("request_id"), record.get("global_request_id"), *record.get("instances", ()))
    yield from dict.fromkeys(one for one in ids if one)
    hosts = dict.fromkeys(record.get("hosts", ()))
    yield from map(host_name, hosts)
    near = dict.fromkeys(one["host"] for one in record.get("near", ()))
    yield from (near_name(host) for host in near if host not in hosts)


def marks_of(record: Record) -> Iterator[str]:
    """The names of a record, and the values that a question may require, each once."""
    yield from names_of(record)
    values = {"kind": "kind", "project": "project_id", "result": "result"}
    yield from (f"{mark}:{record[name]}" for mark, name in values.items() if record.get(name))


def reasons_of(record: Record) -> list[str]:
    """The text of the reason, and the reasons for which hosts were rejected, by their codes and as they are told."""
    return list(dict.fromkeys(text for text in (record.get("reason"), *reason_names(record)) if text))


def reasons_text(record: Record) -> str:
    """The reasons as JSON in ASCII, which any connection of a database can send; empty if there are none."""
    found = reasons_of(record)
    return json.dumps(found) if found else ""


def part_of_reasons(part: str) -> str:
    """What ``reasons_text`` contains if a reason contains the part."""
    return json.dumps(part)[1:-1]


def host_name(host: str) -> str:
    """The name by which the records of a host are found; no id looks like it."""
    return f"host:{host}"


def near_name(host: str) -> str:
    """The name by which the decisions are found that tell why they rejected a host, and did not try it."""
    return f"near:{host}"
