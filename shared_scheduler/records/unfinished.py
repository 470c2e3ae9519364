# SPDX-License-Identifier: Apache-2.0
"""The builds that the records show as begun and not as ended, for a scheduler that starts.

A scheduler awaits the end of each build that it has caused (``core/awaited_builds.py``), in memory only.  When it
starts again, it takes up its own unfinished builds.  Those of another scheduler it takes up after the time in which the
other would have read them, because that one may not come back.  Two schedulers that take up the same build record the
same end, and a reader sees one (``story.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from shared_scheduler.core.events import UnfinishedBuild
from shared_scheduler.records.store import ACTIVE, BUILD, DECISION, PLACED, Record, RecordConditions, Store

#: The newest records of each kind that are read at a start.
READ_MAX = 2_000
#: The greatest age of a placement that is taken up.
AGE_MAX_S = 86_400.0
#: The least age of a placement by another scheduler; until then that one has had five times to read the end.
OTHERS_AGE_MIN_S = 600.0
#: An end may be recorded with an earlier time than its decision: Nova's times have whole seconds and other clocks.
CLOCKS_DIFFER_S = 5.0


def unfinished(store: Store, scheduler: str, now_s: float) -> tuple[UnfinishedBuild, ...]:
    """The builds that ``scheduler`` takes up at ``now_s`` (seconds since 1970), oldest first.

    :raises RecordsError: when the records cannot be read
    """
    since_s = now_s - AGE_MAX_S
    builds = store.last(READ_MAX, RecordConditions(BUILD, since_s=since_s))
    if len(builds) == READ_MAX:  # the ends of older ones are not read
        since_s = float(builds[0]["at"])
    placed = placed_lately(store, now_s, since_s)
    begun = {uuid: (record, host) for record in placed for uuid, host in _claimed(record)}  # the newest of each
    ends = _by_server(builds)
    return tuple(
        UnfinishedBuild(uuid, host, max(now_s - float(record["at"]), 0.0), failed_on)
        for uuid, (record, host) in begun.items()
        if record.get("scheduler") == scheduler or now_s - float(record["at"]) > OTHERS_AGE_MIN_S
        for failed_on in _failed(ends.get(uuid, ()), float(record["at"]) - CLOCKS_DIFFER_S)
    )


def placed_lately(store: Store, now_s: float, since_s: float = 0.0) -> list[Record]:
    """The newest decisions that placed servers, of the last day and since then, oldest first.

    :raises RecordsError: when the records cannot be read
    """
    since_s = max(since_s, now_s - AGE_MAX_S)
    return store.last(READ_MAX, RecordConditions(DECISION, result=PLACED, since_s=since_s))


def _claimed(record: Record) -> Iterator[tuple[str, str]]:
    """The servers that a decision has placed with a claim, and their hosts."""
    asked = record.get("asked", {})
    if asked.get("forms"):
        for uuid, hosts in zip(asked.get("instances", ()), record.get("answer", ()), strict=False):
            if uuid and hosts:
                yield uuid, hosts[0]


def _by_server(builds: Iterable[Record]) -> Mapping[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for build in builds:
        for uuid in build.get("instances", ()):
            found.setdefault(uuid, []).append(build)
    return found


def _failed(ends: Iterable[Record], since_s: float) -> Iterator[frozenset[str]]:
    """The hosts on which a build has failed since then; nothing if it has ended well."""
    since = [end for end in ends if end["at"] >= since_s]
    if all(end.get("result") != ACTIVE for end in since):
        yield frozenset(host for end in since for host in end.get("hosts", ()))
