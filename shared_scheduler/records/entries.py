# SPDX-License-Identifier: Apache-2.0
"""A decision as one line of the log, and as the record that is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared_scheduler.core.effects import RecordBuild, RecordNode
from shared_scheduler.decision.explain import ExplainedHost
from shared_scheduler.decision.record import Attempt, DecisionCounts, DecisionRecord, Weighed
from shared_scheduler.placement.foreign_changes import ForeignChange
from shared_scheduler.records.amounts import held_text
from shared_scheduler.records.askers import Asker, asker_of
from shared_scheduler.records.plain_text import printable
from shared_scheduler.records.store import ACTIVE, AGENT, BUILD, DATABASES, DECISION, FAILED, FOREIGN, NODE, PLACED

#: Maximum number of reasons in a line of the log; the record has all of them.
REASONS_IN_LINE_MAX = 4
#: Maximum number of instances in a line of the log.
INSTANCES_IN_LINE_MAX = 4


@dataclass(frozen=True, slots=True)
class Near:
    """Why no host was found.  ``hosts``: some of each reason, with the numbers compared; ``missing``: the least and the
    most that all hosts of a reason lack; ``origins``: node -> source and age of these numbers; ``held``: node -> who
    holds the room that it lacks."""

    hosts: Sequence[ExplainedHost] = ()
    missing: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    origins: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    held: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def entries(self) -> list[dict[str, Any]]:
        """The hosts as a record keeps them."""
        return [
            {"host": one.host, "code": one.code, "detail": dict(one.detail), "epoch": one.epoch,
             "sequence": one.sequence, **self.origins.get(one.node, {}),
             **({"held": self.held[one.node]} if one.node in self.held else {})}
            for one in self.hosts if one.code
        ]  # fmt: skip


#: what is recorded of hosts if some were found, or there are too many refusals
NOTHING_NEAR = Near()


def entry(
    record: DecisionRecord, scheduler: str, at_s: float, near: Near = NOTHING_NEAR, rejected: Near = NOTHING_NEAR
) -> dict[str, Any]:
    """The record that stores keep.  ``at_s``: when the decision was made, in seconds since 1970.  ``rejected``: the
    hosts that were rejected for a server that was placed.

    ``hosts`` are those of the answer and those that were tried; ``reasons`` are those of the last decision.
    """
    return {
        "kind": DECISION,
        "at": round(at_s, 6),
        "started_at": round(at_s - record.timings_ms.get("total", 0.0) / 1000, 6),
        "scheduler": scheduler,
        **_fields(asker_of(record)),
        "instances": [uuid for uuid in record.asked["instances"] if uuid],
        "hosts": sorted({inner[0] for inner in record.answer if inner} | {one.host for one in record.attempts}),
        "result": record.failure or PLACED,
        "reason": record.text,
        "reasons": dict(record.decisions[-1].reasons) if record.decisions else {},
        "near": near.entries(),
        "rejected": rejected.entries(),
        "missing": {code: list(span) for code, span in near.missing.items()},
        "asked": record.asked,
        "decisions": list(map(_decision_entry, record.decisions)),
        "attempts": [_attempt_entry(one) for one in record.attempts],
        "answer": list(map(list, record.answer)),
        "timings_ms": record.timings_ms,
    }


def _fields(one: DecisionCounts | Weighed | Attempt | Asker) -> dict[str, Any]:
    """The fields as they are; ``dataclasses.asdict`` copies what they hold, and takes ten times as long."""
    return {name: getattr(one, name) for name in one.__slots__}


def _decision_entry(counts: DecisionCounts) -> dict[str, Any]:
    """A decision; as a rule it has chosen one of the best hosts."""
    found = {**_fields(counts), "best": list(map(_fields, counts.best))}
    if counts.chosen is None:
        del found["chosen"]
    else:
        found["chosen"] = _fields(counts.chosen)
    return found


def _attempt_entry(attempt: Attempt) -> dict[str, Any]:
    """An attempt; few of them have who held the room."""
    found = _fields(attempt)
    if not attempt.held:
        del found["held"]
    return found


def build_entry(build: RecordBuild, asker: Asker, scheduler: str, at_s: float) -> dict[str, Any]:
    """The record of the end of a build.  ``asker``: who asked for the instance, if it is known."""
    return {
        "kind": BUILD,
        "at": round(at_s, 6),
        "scheduler": scheduler,
        **_fields(asker),
        "instances": [build.consumer],
        "hosts": [build.host],
        "result": ACTIVE if build.succeeded else FAILED,
        "reason": build.reason,
        "source": AGENT if build.at_s is None else DATABASES,
    }


def node_entry(change: RecordNode, scheduler: str, at_s: float) -> dict[str, Any]:
    """The record of a change of what a scheduler knows of a host."""
    nobody = dict.fromkeys(("request_id", "global_request_id", "project_id", "user_id", "reason"), "")
    return {
        "kind": NODE, "at": round(at_s, 6), "scheduler": scheduler, **nobody, "instances": [], "hosts": [change.host],
        "result": str(change.change), "epoch": change.epoch, "sequence": change.sequence,
        "increments": change.increments,
    }  # fmt: skip


def foreign_entry(change: ForeignChange, asker: Asker, scheduler: str) -> dict[str, Any]:
    """The record of a change that another writer has made.  ``asker``: who asked for the server, if it is known."""
    before = held_text(change.before, change.generation_before)
    after = held_text(change.after, change.generation_after)
    return {
        "kind": FOREIGN, "at": round(change.seen_at_s, 6), "scheduler": scheduler, **_fields(asker),
        "instances": [change.consumer], "hosts": [change.host] if change.host else [], "result": change.kind.value,
        "reason": f"{before} -> {after}", "seen_by": change.seen_by.value,
    }  # fmt: skip


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
