# SPDX-License-Identifier: Apache-2.0
"""What a recorded decision asked of hosts besides resources, and how long it took, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shared_scheduler.answers.story_words import PHASES
from shared_scheduler.records.moments import moment
from shared_scheduler.records.reason_names import FILTERED
from shared_scheduler.records.store import Record

#: a trait that a request filter of Nova adds to every request, and a hint that is told with its group
OF_EVERY_REQUEST, HINT_OF_GROUP = "OWNER_NOVA", "group"


def limits(asked: Any) -> Iterator[str]:
    """What else restricts the hosts."""
    required = {name for form in asked["forms"] for names in ("root_required", "required")
                for name in form.get(names, ())}  # fmt: skip
    hints = [hint for hint in asked.get("hints") or () if hint != HINT_OF_GROUP or not asked.get("group")]
    texts = {
        "zone": asked.get("availability_zone"), "group": " ".join(filter(None, reversed(asked.get("group") or ()))),
        "hints": ", ".join(hints), "not": ", ".join(asked.get("ignore_hosts") or ()),
        "only": ", ".join([*(asked.get("force_hosts") or ()), *(asked.get("force_nodes") or ())]),
        "traits": ", ".join(sorted(required - {OF_EVERY_REQUEST})),
        "spread": "; ".join(map(_spread, asked.get("spread") or ())), "without its image:": asked.get("image_unread"),
        "to": (asked.get("destination") or {}).get("host"),
    }  # fmt: skip
    return (f"{name} {text}" for name, text in texts.items() if text)


def _spread(constraint: Any) -> str:
    """A constraint of spreading, and where the request had it."""
    source = f" ({constraint['source']})" if constraint.get("source") else ""
    return f"over {constraint['key']} with max_skew {constraint['max_skew']}, {constraint['mode']}{source}"


def took(record: Record) -> Iterator[str]:
    """How long a decision took, and for what; nothing if that is not recorded."""
    times = record.get("timings_ms", {})
    if "total" in times:
        kept = {"decision": len(record.get("decisions", ())), "host": len(record.get("attempts", ()))}
        counts = {
            name: int(times.get(of, kept[name])) for name, of in (("decision", "decisions"), ("host", "attempts"))
        }
        tries, filtered = _hosts(record, counts["host"])
        counts["host"] = tries
        decided, hosts = (f"{number} {name}{'s' * (number != 1)}" for name, number in counts.items())
        tried = f"{hosts} tried" + (f", {filtered} rejected by a filter" if filtered else "")
        parts = ", ".join(f"{name} {times[name]:.1f} ms" for name in PHASES if times.get(name))
        came = f"the request came at {moment(record['started_at'])}" if "started_at" in record else ""
        total = f"{times['total']:.1f} ms" if times["total"] else "less than 0.1 ms of waiting"
        yield f"{total}: {decided}, {tried}" + "".join(f"; {part}" for part in (parts, came) if part)


def _hosts(record: Record, attempts: int) -> tuple[int, int]:
    """The hosts that were tried, and those that a filter rejected.  ``attempts``: all tries; if the record does not
    have them all, those that were tried are not known to be different hosts."""
    kept = record.get("attempts", ())
    tried = {one["host"] for one in kept if one["outcome"] != FILTERED}
    filtered = {one["host"] for one in kept if one["outcome"] == FILTERED} - tried
    if len(kept) == attempts:
        return len(tried), len(filtered)
    return max(attempts - sum(1 for one in kept if one["outcome"] == FILTERED), 0), len(filtered)
