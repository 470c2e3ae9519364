# SPDX-License-Identifier: Apache-2.0
"""Gives ends of builds the ids of the decisions that caused them, for a reader.

An end has no ids if the scheduler that recorded it has not placed the server: another one has, and has left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shared_scheduler.records.store import BUILD, DECISION, PLACED, Record

#: what an end has in common with its decision
IDS = ("request_id", "global_request_id", "project_id", "user_id")


def with_askers(records: Sequence[Record], decisions: Iterable[Record]) -> list[Record]:
    """The records; ends of builds without ids get those of the newest decision before them.

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
    before = [one for one in decisions if one["at"] < build["at"] + 1]  # Nova keeps whole seconds
    return {**build, **{name: before[-1].get(name, "") for name in IDS}} if before else build
