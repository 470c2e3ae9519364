# SPDX-License-Identifier: Apache-2.0
"""Gives ends of builds the ids of the decisions that caused them, for a reader.

An end has no ids if the scheduler that recorded it has not placed the server: another one has, and has left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shared_scheduler.records.store import BUILD, DATABASES, DECISION, PLACED, Record

#: what an end has in common with its decision
IDS = ("request_id", "global_request_id", "project_id", "user_id")


def with_askers(records: Sequence[Record], decisions: Iterable[Record]) -> list[Record]:
    """The records; ends of builds without ids get those of the newest decision before them that names their host.

    If none names it, they get those of the newest one before them.

    ``decisions``: oldest first; other records among them are ignored.
    """
    placed: dict[str, list[Record]] = {}
    for one in decisions:
        if one.get("kind") == DECISION and one.get("result") == PLACED:
            for server in one.get("instances", ()):
                placed.setdefault(server, []).append(one)
    return [_with_asker(record, placed) if lacks_asker(record) else record for record in records]


def lacks_asker(record: Record) -> bool:
    """Whether a record is an end of a build without ids."""
    return record.get("kind") == BUILD and not record.get("request_id")


def _with_asker(build: Record, placed: Mapping[str, Sequence[Record]]) -> Record:
    decisions = [one for server in build.get("instances", ()) for one in placed.get(server, ())]
    before = [one for one in decisions if one["at"] < _before_s(build)]
    named = [one for one in before if not _hosts_of(one).isdisjoint(build.get("hosts", ()))]
    newest = [*before[-1:], *named[-1:]][-1:]
    return {**build, **{name: one.get(name, "") for one in newest for name in IDS}}


def _before_s(build: Record) -> float:
    """Decisions before this time may have caused the end; Nova keeps whole seconds."""
    at_s = float(build["at"])
    return at_s + 1 if build.get("source") == DATABASES and not at_s % 1 else at_s


def _hosts_of(decision: Record) -> set[str]:
    """The hosts on which a decision may have caused a build: those that were selected or tried, and the alternates."""
    return {*decision.get("hosts", ()), *(host for inner in decision.get("answer", ()) for host in inner)}
