# SPDX-License-Identifier: Apache-2.0
"""A decision as one line of the log, and as the record that is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared_scheduler.decision.record import DecisionCounts, DecisionRecord

PLACED = "placed"
#: the kind of record that a decision is
DECISION = "decision"

#: Maximum number of reasons in a line of the log; the record has all of them.
REASONS_IN_LINE_MAX = 4
#: Maximum number of instances in a line of the log.
INSTANCES_IN_LINE_MAX = 4


def entry(record: DecisionRecord, scheduler: str, at_s: float) -> dict[str, Any]:
    """The record that stores keep.  ``at_s``: when the decision was made, in seconds since 1970.

    ``hosts`` are those of the answer and those that were tried; ``reasons`` are those of the last decision.
    """
    global_id = record.request_id if record.local_request_id not in ("", record.request_id) else ""
    details = record.as_dict()
    return {
        "kind": DECISION,
        "at": round(at_s, 6),
        "started_at": round(at_s - record.timings_ms.get("total", 0.0) / 1000, 6),
        "scheduler": scheduler,
        "request_id": record.local_request_id or record.request_id,
        "global_request_id": global_id,
        "project_id": record.asked["project_id"],
        "user_id": record.asked["user_id"],
        "instances": [uuid for uuid in record.asked["instances"] if uuid],
        "hosts": sorted({inner[0] for inner in record.answer if inner} | {one.host for one in record.attempts}),
        "result": record.failure or PLACED,
        "reason": record.text,
        "reasons": dict(record.decisions[-1].reasons) if record.decisions else {},
        **{name: details[name] for name in ("asked", "decisions", "attempts", "answer", "timings_ms")},
    }


def line(record: DecisionRecord) -> str:
    """A line of the log: the request, its hosts, the number of hosts that passed, the reasons for others, the time."""
    asked: list[str] = record.asked["instances"]
    if record.failure:
        head = f"No host for {_shortened(asked)}: {record.failure}: {record.text}"
    else:
        pairs = zip(asked, record.answer, strict=True)
        head = "Placed " + _shortened([f"{uuid or 'server'} on {inner[0]}" for uuid, inner in pairs])
    parts = [head, _counts(record.decisions[-1:]), _attempts(record), _time(record.timings_ms)]
    return printable(f"{record.request_id}: " + "; ".join(part for part in parts if part))


def printable(text: str) -> str:
    """``text`` in one line without control characters, because agents, plug-ins and Placement wrote parts of it."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _shortened(names: list[str]) -> str:
    more = len(names) - INSTANCES_IN_LINE_MAX
    shown = ", ".join(names[:INSTANCES_IN_LINE_MAX])
    return f"{shown} and {more} more" if more > 0 else shown


def _counts(decisions: tuple[DecisionCounts, ...]) -> str:
    if not decisions:
        return ""
    [counts] = decisions
    ordered = sorted(counts.reasons.items(), key=lambda one: (-one[1], one[0]))
    named = ", ".join(f"{count} {code}" for code, count in ordered[:REASONS_IN_LINE_MAX])
    return f"{counts.survivors} of {counts.hosts} hosts passed" + (f", rejected: {named}" if named else "")


def _attempts(record: DecisionRecord) -> str:
    bad = [each for each in record.attempts if each.outcome != "written"]
    if not bad:
        return ""
    named = ", ".join(f"{each.host} {each.outcome}" for each in bad[:REASONS_IN_LINE_MAX])
    return f"{len(bad)} hosts refused: {named}"


def _time(timings_ms: Mapping[str, float]) -> str:
    total = timings_ms.get("total")
    return "" if total is None else f"{total:.1f} ms"
