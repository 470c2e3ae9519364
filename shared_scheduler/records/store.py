# SPDX-License-Identifier: Apache-2.0
"""The interface of a store of records, and what all stores have in common.

A *record* is a JSON object that says what happened at one moment: a decision, or the end of a build.  Its *names* are
what it is found by: ids of requests, uuids of instances, and hosts.  ``json_lines.py`` and ``database.py`` are the two
stores; ``tests/unit/records/test_stores.py`` runs the same tests with both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Record = Mapping[str, Any]

#: The kind of record that a decision is, and the result of one that found hosts.
DECISION, PLACED = "decision", "placed"
#: The kind of record that the end of a build on a node is, and its results.
BUILD, ACTIVE, FAILED = "build", "active", "failed"

#: Maximum number of records that one question returns.
FOUND_MAX = 1_000
#: Only the owner and the group of a file may read records, because they name projects, users and servers.
FILE_MODE = 0o640
#: A record may be stored this much later than the one that follows it, because several processes write.
DISORDER_MAX_S = 60.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """Conditions on records; one that is empty or None is always met.

    ``reason`` is part of the text of the reason, or one of the reasons for which hosts were rejected.  ``since_s`` and
    ``until_s`` are seconds since 1970, both included.
    """

    kind: str = ""
    project: str = ""
    host: str = ""
    result: str = ""
    reason: str = ""
    since_s: float | None = None
    until_s: float | None = None

    def accepts(self, record: Record) -> bool:
        """Whether a record meets all conditions."""
        return (
            self.kind in ("", record.get("kind"))
            and self.project in ("", record.get("project_id"))
            and (not self.host or self.host in record.get("hosts", ()))
            and self.result in ("", record.get("result"))
            and (not self.reason or self.reason in record.get("reason", "") or self.reason in record.get("reasons", ()))
            and (self.since_s is None or record["at"] >= self.since_s)
            and (self.until_s is None or record["at"] <= self.until_s)
        )

    def is_behind(self, record: Record) -> bool:
        """Whether a record is so old that no record stored before it is wanted."""
        return self.since_s is not None and record["at"] < self.since_s - DISORDER_MAX_S


class RecordWriter(Protocol):
    """Keeps records.  Used by one thread."""

    def write(self, records: Sequence[Record]) -> None:
        """Keep the records.  When it returns, they survive the end of this process.

        :raises Exception: when they are not kept
        """

    def close(self) -> None:
        """Release what is open.  Nothing is called after that."""


class Store(RecordWriter, Protocol):
    """A place where records are kept and found.  Other processes may read and write the same place."""

    def find(self, name: str) -> list[Record]:
        """The newest records that have this name, at most ``FOUND_MAX``, oldest first.

        :raises RecordsError: when the records cannot be read
        """

    def last(self, count: int, wanted: Wanted) -> list[Record]:
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
        "reasons": decisions[-1]["reasons"] if decisions else {},
    }  # fmt: skip


def names_of(record: Record) -> Iterator[str]:
    """What a record is found by, each once."""
    ids = (record.get("request_id"), record.get("global_request_id"), *record.get("instances", ()))
    yield from dict.fromkeys(one for one in ids if one)
    yield from map(host_name, dict.fromkeys(record.get("hosts", ())))


def host_name(host: str) -> str:
    """The name by which the records of a host are found; no id looks like it."""
    return f"host:{host}"
