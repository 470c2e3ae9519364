# SPDX-License-Identifier: Apache-2.0
"""The order in which records are shown.

An end that was read from Nova's databases has their time, in whole seconds.  It may be of the second in which the
server was placed, and then seems to be earlier than its decision.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from shared_scheduler.records.store import BUILD, DATABASES, DECISION, Record


def in_order(records: Iterable[Record]) -> list[tuple[float, Record]]:
    """The records, oldest first, each with the time at which it stands: its own, or that of the decision of the same
    second which has caused it."""
    known = list(records)
    placed: dict[tuple[str, int], float] = {}  # server and second -> the newest decision
    for record in known:
        if record.get("kind") == DECISION:
            for key in _seconds(record):
                placed[key] = max(placed.get(key, 0.0), record["at"])
    found = [(_stands_at(record, placed), record) for record in known]
    return sorted(found, key=lambda one: (one[0], one[1].get("kind") == BUILD))


def _stands_at(record: Record, placed: dict[tuple[str, int], float]) -> float:
    at_s = float(record["at"])
    if record.get("kind") != BUILD or record.get("source") != DATABASES or at_s % 1:
        return at_s
    return max([at_s, *(placed.get(key, at_s) for key in _seconds(record))])


def _seconds(record: Record) -> list[tuple[str, int]]:
    return [(server, math.floor(record["at"])) for server in record.get("instances", ())]
