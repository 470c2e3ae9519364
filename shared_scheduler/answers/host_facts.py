# SPDX-License-Identifier: Apache-2.0
"""What a record says of one host, in sentences."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from shared_scheduler.records.store import BUILD, COMPARISON, DECISION, NODE, Record

#: the end of the name of a resource class -> its unit; others are counted, and named as they are
UNITS = {"MB": "MB", "GB": "GB"}


def values(detail: Mapping[str, Any]) -> str:
    """The values that were compared."""
    return ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                     for name, value in detail.items())  # fmt: skip


def more_would_do(code: str, least: float, most: float) -> str:
    """What hosts lack that a reason (``no_room:MEMORY_MB``) rejected, in the unit of its resource class."""
    resource_class = code.partition(":")[2]
    unit = UNITS.get(resource_class.rpartition("_")[2], resource_class)
    span = f"{least:g}" if least == most else f"{least:g} to {most:g}"
    return " ".join(filter(None, [span, unit, "more would do"]))


def unknown_kind(record: Record) -> str:
    """A record of a kind that this release does not know; another release has written it."""
    return f"{record.get('kind')} (a kind of another release): {json.dumps(record)}"


def facts(record: Record, host: str) -> Iterator[str]:
    """What a record says of the host, in order; a sentence each."""
    if record.get("kind") == BUILD:
        if host in record["hosts"]:
            yield f"the build on {host} ended: {' '.join(filter(None, [record['result'], record['reason']]))}"
        return
    if record.get("kind") == COMPARISON:
        yield f"ours chose {_named(record['ours'])}, nova-scheduler {_named(record['stock'])}"
        return
    if record.get("kind") == NODE:
        yield _change(record)
        return
    if record.get("kind", DECISION) != DECISION:
        yield unknown_kind(record)
        return
    found = [*_ranked(record, host), *_rejected(record, host), *_tried(record, host), *_answered(record, host)]
    yield from found or [_unknown(record, host)]


def _change(record: Record) -> str:
    state = f"state {record['epoch']}/{record['sequence']}"
    before = f"{record['increments']} increments, then " if record["increments"] else ""
    told = {
        "snapshot": f"a snapshot: {state}",
        "resync": f"asked for the messages after {state}" if record["epoch"] else "asked for its whole state",
        "silent": "its agent is silent: its state is read from the databases",
    }
    return f"{record['scheduler']}: {before}{told.get(record['result'], record['result'])}"


def _named(side: Any) -> str:
    return ", ".join(side["hosts"]) or side["error"] or "nothing"


def _ranked(record: Record, host: str) -> Iterator[str]:
    for counts in record["decisions"]:
        for place, one in enumerate(counts["best"], 1):
            if one["host"] == host:
                version = f"state {one['epoch']}/{one['sequence']}"
                best = counts["best"][0]
                behind = "" if place == 1 else f"; {best['host']} was the first with {best['weight']:.4g}"
                yield f"passed, number {place} by weight {one['weight']:.4g} ({version}){behind}"


def _rejected(record: Record, host: str) -> Iterator[str]:
    for one in record.get("near", ()):
        if one["host"] == host:
            yield f"rejected: {one['code']}" + (f" ({values(one['detail'])})" if one["detail"] else "")


def _tried(record: Record, host: str) -> Iterator[str]:
    for attempt in record["attempts"]:
        if attempt["host"] == host:
            detail = values(attempt["detail"])
            yield f"tried: {attempt['outcome']}" + (f" ({detail})" if detail else "")


def _answered(record: Record, host: str) -> Iterator[str]:
    for hosts in record["answer"]:
        if host in hosts:
            yield "selected" if hosts[0] == host else f"alternate of {hosts[0]}"


def _unknown(record: Record, host: str) -> str:
    counts = [f"{count} {code}" for code, count in sorted(record.get("reasons", {}).items())]
    survivors = record["decisions"][-1]["survivors"] if record["decisions"] else 0
    told = f"this record does not name {host}, so its own reason is not known"
    return f"{told}; {survivors} hosts passed, rejected: {', '.join(counts) or 'none'}"
