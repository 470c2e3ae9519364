# SPDX-License-Identifier: Apache-2.0
"""The reasons of a decision as a reader is told them; the records keep the codes of the stages.

``reason_names`` names the reason for one host.

Before an instance has no host, Nova's own filters are asked about some hosts that our counterparts rejected.  The next
decision leaves these hosts out and counts them as ``tried``.  They are told under the filter that rejected them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby, islice
from typing import Any

from shared_scheduler.records.amounts import REJECTED, counts_first
from shared_scheduler.records.reason_names import DISABLED, FILTERED, is_disabled, told_outcome

#: the outcome of a try that succeeded
WRITTEN = "written"
#: the reason for a host that was left out, because it was tried before
TRIED = "tried"


def named_hosts(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The hosts that were rejected and that a record names: some if no host was found, all or none otherwise."""
    return [*record.get("near", ()), *record.get("rejected", ())]


def weighed_in(counts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The hosts of a decision whose weights are recorded: the best ones, and the chosen one if it is none of these."""
    return [*counts.get("best", ()), *([counts["chosen"]] if "chosen" in counts else [])]


def told_reasons(record: Mapping[str, Any]) -> dict[str, int]:
    """The reasons of the last decision of a record -> hosts."""
    reasons = record.get("reasons", {})
    decisions = record.get("decisions", ())
    last = len(decisions) if decisions and decisions[-1].get("reasons") == reasons else 0
    return _told(record, reasons, last)


def reason_names(record: Mapping[str, Any]) -> Iterator[str]:
    """The codes and the names of the reasons for which hosts were rejected or refused; some more than once."""
    yield from record.get("reasons", ())
    yield from told_reasons(record)
    for one in record.get("attempts", ()):
        if one["outcome"] != WRITTEN:
            yield from (one["outcome"], told_outcome(one))


def told_text(record: Mapping[str, Any]) -> str:
    """The text of a failure, with the same reasons."""
    text, told = str(record["reason"]).strip(), told_reasons(record)
    if told == record.get("reasons", {}):
        return counts_first(text)
    ordered = sorted(told.items(), key=lambda one: (-one[1], one[0]))
    return REJECTED.sub(lambda _: ", ".join(f"{count} {code}" for code, count in ordered), text)


def told_decisions(record: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """The decisions of a record with these reasons, and their numbers, from 1.

    The same decision without a host, made again for the same server, is one."""
    decisions = [{**one, "reasons": _told(record, one.get("reasons", {}), number)}
                 for number, one in enumerate(record.get("decisions", ()), 1)]  # fmt: skip
    numbered = enumerate(decisions, 1)
    for _, same in groupby(numbered, key=lambda one: one[0] if one[1]["survivors"] else _subject(one[1])):
        alike = list(same)
        yield alike[0][1], [number for number, _ in alike]


def _subject(counts: Mapping[str, Any]) -> Any:
    return counts.get("index"), counts["hosts"], sorted(counts["reasons"].items())


def _told(record: Mapping[str, Any], reasons: Mapping[str, int], decision: int) -> dict[str, int]:
    """``decision``: the number of the decision that has these reasons; 0: not known."""
    found = Counter[str](reasons)
    if decision and TRIED in found:
        filters = list(islice(_filters_before(record, decision), found[TRIED]))
        found.update(filters)
        found[TRIED] -= len(filters)
    near = named_hosts(record)
    for code, disabled in Counter(str(one["code"]) for one in near if is_disabled(one)).items():
        named = sum(1 for one in near if one["code"] == code)
        if named == found.get(code):
            found[DISABLED] += disabled
            found[code] -= disabled
    return {code: count for code, count in found.items() if count > 0}


def _filters_before(record: Mapping[str, Any], decision: int) -> Iterator[str]:
    """The filters that ended tries of the server of a decision before it, of each host the newest, newest first.

    It ends with a host that an agent or Placement has refused: that one stays tried."""
    index, servers = record["decisions"][decision - 1].get("index", 0), record.get("asked", {}).get("instances", ())
    server = servers[index] if index < len(servers) else ""
    hosts = set()
    for one in reversed(record.get("attempts", ())):
        if one.get("instance") != server or not 0 < one.get("after_decisions", 0) < decision or one["host"] in hosts:
            continue
        if one["outcome"] != FILTERED:
            return
        hosts.add(one["host"])
        yield told_outcome(one)


def placed_before(record: Mapping[str, Any]) -> tuple[int, int]:
    """How many servers of a request had a host when another one found none, and the number of that one, from 1; zeros
    if the record does not show it."""
    decisions = record.get("decisions", ())
    if not decisions or record.get("timings_ms", {}).get("decisions", len(decisions)) != len(decisions):
        return 0, 0
    newest = {one.get("index", 0): one["survivors"] for one in decisions}
    failed = decisions[-1].get("index", 0)
    return sum(1 for index, passed in newest.items() if passed and index != failed), failed + 1
