# SPDX-License-Identifier: Apache-2.0
"""Who asked for a server: the ids that the end of its build has in common with its decision.

The scheduler that records an end knows them of the servers that it has placed itself.  What it does not know, a reader
takes from the decision that another scheduler has recorded (``joined_ends.py``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

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


#: of the servers that another scheduler has placed
NOBODY = Asker()


def asker_of(record: DecisionRecord) -> Asker:
    """Who asked for a decision."""
    local = record.local_request_id or record.request_id
    global_id = record.request_id if record.request_id != local else ""
    return Asker(local, global_id, record.asked["project_id"], record.asked["user_id"])


class Askers:
    """Remembers who asked for the servers whose builds may end; the newest ``AWAITED_MAX``.  Many threads use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: FIFOCache[str, Asker] = FIFOCache(AWAITED_MAX)

    def decided(self, record: DecisionRecord) -> None:
        """A request was decided."""
        if not record.failure:
            self._learn(record.asked["instances"], asker_of(record))

    def recorded(self, placed: Iterable[Record]) -> None:
        """Learn from the records of decisions, oldest first."""
        for record in placed:
            self._learn(record.get("instances", ()), _asker_in(record))

    def _learn(self, servers: Iterable[str], asker: Asker) -> None:
        with self._lock:
            for server in filter(None, servers):
                self._known.pop(server, None)  # a server that is placed again is the newest
                self._known[server] = asker

    def of(self, server: str) -> Asker:
        """Who asked for a server."""
        with self._lock:
            return self._known.get(server, NOBODY)


def _asker_in(record: Record) -> Asker:
    return Asker(**{name: record.get(name, "") for name in Asker.__slots__})
