# SPDX-License-Identifier: Apache-2.0
"""Who asked for a server: the ids that the end of its build has in common with its decision.

The scheduler that records an end knows them of the servers that it has placed itself.  What it does not know, a reader
takes from the decision that another scheduler has recorded (``joined_ends.py``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

from cachetools import FIFOCache

from shared_scheduler.core.awaited_builds import AWAITED_MAX
from shared_scheduler.decision.record import DecisionRecord
from shared_scheduler.records.store import Record


@dataclass(frozen=True, slots=True)
class Asker:
    """``request_id``: the id in Nova's logs; ``global_request_id``: empty if the caller sent none."""

    request_id: str = ""
    global_request_id: str = ""
    project_id: str = ""
    user_id: str = ""


#: Requests of one server that are remembered.
PLACEMENTS_MAX = 4
#: of the servers that another scheduler has placed
NOBODY = Asker()


def asker_of(record: DecisionRecord) -> Asker:
    """Who asked for a decision."""
    local = record.local_request_id or record.request_id
    global_id = record.request_id if record.request_id != local else ""
    return Asker(local, global_id, record.asked["project_id"], record.asked["user_id"])


@dataclass(frozen=True, slots=True)
class _Placement:
    """``hosts``: the selected host of a server and its alternates."""

    hosts: frozenset[str]
    asker: Asker


class Askers:
    """Remembers who asked for the servers whose builds may end; the newest ``AWAITED_MAX``.  Many threads use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._placements: FIFOCache[str, tuple[_Placement, ...]] = FIFOCache(AWAITED_MAX)  # newest first

    def decided(self, record: DecisionRecord) -> None:
        """A request was decided."""
        if not record.failure:
            self._learn(record.asked["instances"], record.answer, asker_of(record))

    def recorded(self, placed: Iterable[Record]) -> None:
        """Learn from the records of decisions, oldest first."""
        for record in placed:
            servers = record.get("asked", {}).get("instances", ())
            self._learn(servers, record.get("answer", ()), _asker_in(record))

    def _learn(self, servers: Iterable[str], answer: Iterable[Sequence[str]], asker: Asker) -> None:
        with self._lock:
            for server, hosts in zip(servers, chain(answer, repeat(())), strict=False):
                if server:
                    before = self._placements.pop(server, ())  # a server that is placed again is the newest
                    self._placements[server] = (_Placement(frozenset(hosts), asker), *before)[:PLACEMENTS_MAX]

    def of(self, server: str, host: str) -> Asker:
        """Who asked for the build of a server on a host: the newest request that named the host, or else the newest."""
        with self._lock:
            placements = self._placements.get(server, ())
        named = (one.asker for one in placements if host in one.hosts)
        return next(named, placements[0].asker if placements else NOBODY)


def _asker_in(record: Record) -> Asker:
    return Asker(**{name: record.get(name, "") for name in Asker.__slots__})
