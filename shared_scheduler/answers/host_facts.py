# SPDX-License-Identifier: Apache-2.0
"""What a record says of one host, in sentences."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from shared_scheduler.answers.held_room import held_text
from shared_scheduler.records.amounts import NO_ROOM, amount, short_by, unit_of
from shared_scheduler.records.reason_names import FILTERED, told, told_code, told_outcome
from shared_scheduler.records.short_names import server_of, short_names
from shared_scheduler.records.store import AGENT, BUILD, COMPARISON, DECISION, FOREIGN, NODE, Record
from shared_scheduler.records.told_reasons import named_hosts, told_reasons, weighed_in

#: how the sentence begins that a record tells nothing of a host
UNNAMED = "this record does not name"
#: what the reason for lack of room says already, or nobody asks
IN_THE_CODE = frozenset({"provider", "resource_class"})
#: word that a reader may not know -> the sentences that need its definition
WORDS = {
    "weights": r"\bby weight ", "alternates": r"^alternate of ", "selected": r"^selected$", "held": r"^held by ",
    "snapshot": r": (\d+ increments, then )?a snapshot: ", "resync": r"\basked for (the messages after its|its whole) ",
    "silent": r": its agent is silent: ", "increment": r"\bincrements? ?", "state": r"\bstate at epoch \d+",
    "Success": r"^Nova, .* began; Success", "no end recorded": r"^Nova, .* began; no end recorded",
}  # fmt: skip
#: Characters that are shown of the reason why a service is disabled.
REASON_CHARS_MAX = 60
#: values that are amounts of a resource class
AMOUNTS = frozenset({"asked", "used", "capacity", "total", "reserved", "min_unit", "max_unit", "step_size"})


def values(detail: Mapping[str, Any]) -> str:
    """The values that were compared; empty lists and texts are left out."""
    return ", ".join(f"{name} {_value(value)}" for name, value in detail.items() if value not in ([], ""))


def _value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _with_units(detail: Mapping[str, Any], resource_class: str) -> dict[str, Any]:
    """The values that were compared, of which amounts have the unit of their resource class."""
    unit = unit_of(resource_class)
    return {name: f"{value} {unit}" if unit and name in AMOUNTS else value for name, value in detail.items()}


def outcome(attempt: Mapping[str, Any]) -> str:
    """How a try ended, with the numbers compared; a filter of Nova by its name."""
    name, compared = outcome_parts(attempt)
    return name + (f" ({compared})" if compared else "")


def outcome_parts(attempt: Mapping[str, Any]) -> tuple[str, str]:
    """How a try ended, and the numbers compared."""
    ended = told(str(attempt["outcome"]), attempt["detail"])
    detail = {name: value for name, value in ended.detail.items() if name != "provider"}
    return ended.name, values(_with_units(detail, str(detail.get("resource_class", ""))))


def rejection(one: Mapping[str, Any]) -> str:
    """Why a host was rejected: the reason, the numbers compared, what it lacks, and where the numbers came from."""
    why = "; ".join(filter(None, [comparison(one), origin(one)]))
    return told_code(one) + (f" ({why})" if why else "")


def comparison(one: Mapping[str, Any]) -> str:
    """The numbers that rejected a host, and what it lacks."""
    reason = told(str(one["code"]), one["detail"])
    resource_class, missing = reason.name.removeprefix(NO_ROOM), short_by(one["detail"]) or 0
    lacks = f"short by {amount(resource_class, missing)}" if missing > 0 else ""
    said = IN_THE_CODE if reason.name.startswith(NO_ROOM) else ()
    compared = {name: value for name, value in reason.detail.items() if name not in said}
    return "; ".join(filter(None, [values(_with_units(compared, resource_class)), lacks, reason.service]))


def why_not(node: Mapping[str, Any]) -> str:
    """Why a node is not choosable, with the beginning of the reason of a disabled service."""
    reason = str(node.get("disabled_reason") or "")
    short = reason[:REASON_CHARS_MAX] + "…" * (len(reason) > REASON_CHARS_MAX)
    return f"{node['why_not']} ({short})" if short and node["why_not"] == "disabled" else str(node["why_not"])


def lag(node: Mapping[str, Any]) -> int | None:
    """The messages that a node is behind; None of a silent agent, because its node is read from the databases."""
    return None if node.get("agent") == "silent" else int(node["lag"])


def origin(one: Mapping[str, Any]) -> str:
    """Where the numbers of a host came from, and how old they were; empty if the record does not show it."""
    if "source" not in one:
        return ""
    age_s = one.get("age_s")
    age = "" if age_s is None else f", {age_s:g} s old"
    if one["source"] == AGENT:
        return f"from its agent, {state_at(one)}{age}"
    return f"from the databases and Placement{age}"


def state_at(one: Mapping[str, Any]) -> str:
    """The last message of its agent that was known of a host."""
    if not one.get("epoch"):
        return "no message of its agent"
    return f"state at epoch {one['epoch']}, sequence {one.get('sequence', 0)}"


def unknown_kind(record: Record) -> str:
    """A record of a kind that this release does not know; another release has written it."""
    return f"{record.get('kind')} (a kind of another release): {json.dumps(record)}"


def words(texts: Iterable[str]) -> Iterator[str]:
    """The codes and other words of such sentences that a reader may not know."""
    for text in texts:
        yield from re.findall(r"(?:rejected|tried): (\w+)", text)
        yield from (word for word, pattern in WORDS.items() if re.search(pattern, text))


class Fact(NamedTuple):
    """A sentence about a host.  ``server``: of a request for several, the one that it is about; empty: it is about
    all of them."""

    text: str
    server: str = ""


def facts(record: Record, host: str) -> Iterator[Fact]:
    """What a record says of the host, in order."""
    if record.get("kind", DECISION) != DECISION:
        yield from map(Fact, _other_facts(record, host))
        return
    found = [*_decided(record, host), *_rejected(record, host), *_tried(record, host, 0), *_answered(record, host)]
    several = short_names(record)
    yield from (Fact(one.text, one.server if one.server in several else "") for one in found)
    if not found:
        yield Fact(_unknown(record, host))


def _other_facts(record: Record, host: str) -> Iterator[str]:
    """Those of a record that is no decision."""
    if record["kind"] == BUILD:
        if host in record["hosts"]:
            yield f"the build on {host} ended: {': '.join(filter(None, [record['result'], record['reason']]))}"
    elif record["kind"] == COMPARISON:
        yield f"ours chose {_named(record['ours'])}, nova-scheduler {_named(record['stock'])}"
    elif record["kind"] == NODE:
        yield change(record)
    elif record["kind"] == FOREIGN:
        yield f"another writer changed allocations: {record['result']}: {record['reason']}"
    else:
        yield unknown_kind(record)


def tries(record: Record) -> list[Mapping[str, Any]]:
    """The tries, without those that a filter ended whose numbers the record has among the rejections."""
    known = {(one["host"], told_code(one)) for one in record.get("near", ())}
    return [one for one in record.get("attempts", ()) if (one["host"], told_outcome(one)) not in known]


def tries_after(record: Record, decision: int) -> Iterator[Mapping[str, Any]]:
    """The tries that ended after this decision of the request (from 1) and before the next one; of 0: those of which
    the record does not show after which one."""
    shown = len(record["decisions"])
    for attempt in tries(record):
        after = attempt.get("after_decisions", 0)
        if decision == (after if 0 < after <= shown else 0):
            yield attempt


def change(record: Record) -> str:
    """What a record of the state of a host says."""
    state = state_at(record)
    before = f"{record['increments']} increments, then " if record["increments"] else ""
    texts = {
        "snapshot": f"a snapshot: {state}",
        "resync": f"asked for the messages after its {state}" if record["epoch"] else "asked for its whole state",
        "silent": "its agent is silent: its state is read from the databases",
    }
    return f"{record['scheduler']}: {before}{texts.get(record['result'], record['result'])}"


def known_state(record: Record, host: str) -> tuple[int, int]:
    """Epoch and sequence of the newest message of the agent of a host that a record shows; zeros if it shows none."""
    if record.get("kind") == NODE:
        return record["epoch"], record["sequence"]
    weighed = [one for counts in record.get("decisions", ()) for one in weighed_in(counts)]
    shown = [one for one in (*weighed, *record.get("near", ()), *record.get("attempts", ())) if one["host"] == host]
    return max(((one.get("epoch", 0), one.get("sequence", 0)) for one in shown), default=(0, 0))


def _named(side: Any) -> str:
    return ", ".join(side["hosts"]) or side["error"] or "nothing"


def _decided(record: Record, host: str) -> Iterator[Fact]:
    for number, counts in enumerate(record["decisions"], 1):
        server = server_of(record, counts.get("index", 0))
        yield from (Fact(text, server) for text in _ranked(counts, host))
        yield from _tried(record, host, number)


def _ranked(counts: Mapping[str, Any], host: str) -> Iterator[str]:
    best: Sequence[Mapping[str, Any]] = counts["best"]
    weights = [weight_number(one["weight"]) for one in best]
    equal = weights.count(weights[0]) if weights else 0
    for place, (one, weight) in enumerate(zip(best, weights, strict=True), 1):
        if one["host"] != host:
            continue
        if counts["survivors"] == 1:
            yield f"passed, as the only one ({state_at(one)})"
            continue
        among_best = equal > 1 and weight == weights[0]
        rank = f"one of the best {equal}," if among_best else f"number {place}"
        behind = "" if among_best or place == 1 else f"; {best[0]['host']} was the first with {weight_text(best[0])}"
        yield f"passed, {rank} by weight {weight_text(one)} ({state_at(one)}){behind}"
    chosen = counts.get("chosen")
    if chosen and chosen["host"] == host:
        is_behind = bool(best) and weight_number(chosen["weight"]) != weights[0]
        behind = f"; {best[0]['host']} was the first with {weight_text(best[0])}" if is_behind else ""
        yield f"passed and was chosen, by weight {weight_text(chosen)} ({state_at(chosen)}){behind}"


def weight_text(weighed: Mapping[str, Any]) -> str:
    """The weight of a host, and the part of each weigher as far as it is known."""
    parts = " + ".join(f"{name} {weight_number(part)}" for name, part in weighed.get("shares", {}).items())
    return " = ".join(filter(None, [weight_number(weighed["weight"]), parts]))


def weight_number(weight: float) -> str:
    """A weight or a part of one, without the sign of a zero."""
    return f"{weight + 0.0:.4g}"


def _rejected(record: Record, host: str) -> Iterator[Fact]:
    for one in named_hosts(record):
        if one["host"] == host:
            yield Fact(f"rejected: {rejection(one)}")
            yield from (Fact(f"held {text}") for text in [held_text(one)] if text)


def _tried(record: Record, host: str, decision: int) -> Iterator[Fact]:
    for attempt in tries_after(record, decision):
        if attempt["host"] == host:
            did, server = "rejected" if attempt["outcome"] == FILTERED else "tried", attempt.get("instance", "")
            yield Fact(f"{did}: {outcome(attempt)}", server)
            yield from (Fact(f"held {text}", server) for text in [held_text(attempt)] if text)


def _answered(record: Record, host: str) -> Iterator[Fact]:
    for index, hosts in enumerate(record["answer"]):
        if host in hosts:
            text = "selected" if hosts[0] == host else f"alternate of {hosts[0]}"
            yield Fact(text, server_of(record, index))


def is_of_host(text: str) -> bool:
    """Whether such a sentence tells something of the host."""
    return not text.startswith(UNNAMED)


def _unknown(record: Record, host: str) -> str:
    counts = [f"{count} {code}" for code, count in sorted(told_reasons(record).items())]
    survivors = record["decisions"][-1]["survivors"] if record["decisions"] else 0
    unnamed = f"{UNNAMED} {host}, so its own reason is not known"
    return f"{unnamed}; {survivors} host{'s' * (survivors != 1)} passed, rejected: {', '.join(counts) or 'none'}"
