# SPDX-License-Identifier: Apache-2.0
"""The figures of a world, as plain data and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from shared_scheduler.core.claim_state import ClaimState
from shared_scheduler.sim.found_changes import FOUND
from shared_scheduler.sim.world import World


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which ``part`` (0 to 1) of the values lie; 0 if there are none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def endings_of(world: World) -> Counter[str]:
    """Number of ended claims by ending, of the schedulers that are alive."""
    total: Counter[str] = Counter(world.dead_endings)
    for scheduler in world.schedulers.values():
        total.update(scheduler.core.claims.endings)
    return total


def packing(world: World) -> dict[str, float]:
    """Number of nodes in use, and the part of their memory that is used."""
    used, busy = 0.0, 0
    for node in world.nodes.values():
        memory_mb = world.placement.used(node.node).get("MEMORY_MB", 0)
        if memory_mb:
            busy += 1
            used += memory_mb / world.sizes.size.memory_mb
    return {"nodes_in_use": busy, "memory_used_of_those": round(used / busy, 4) if busy else 0.0}


def report(world: World) -> dict[str, Any]:
    """All figures.  Times are in milliseconds of virtual time, except those with wall in their name."""
    endings = endings_of(world)
    claims = sum(endings.values())
    refused = endings[ClaimState.REFUSED.value]
    lost = world.counters["requests_lost_with_scheduler"]
    decisions = sum(len(a.outcome.record.decisions) for a in world.users.asked.values() if a.outcome)
    steps_s = world.all_step_s()
    return {
        "seed": world.seed,
        "nodes": len(world.nodes),
        "schedulers": world.sizes.schedulers,
        "virtual_s": round(world.now, 3),
        "requests": world.counters["requests"],
        "decisions": decisions,
        "answered": world.counters["answered"],
        "failed": named(world.counters, "failed_"),
        "lost_with_a_scheduler": lost,
        "instances": world.counters["instances"],
        "claims": claims,
        "claim_endings": dict(sorted(endings.items())),
        "refused_percent": round(100 * refused / claims, 3) if claims else 0.0,
        "conflicts": refused + endings[ClaimState.NOT_WRITTEN.value],
        "migrations": world.counters["migrations"],
        "foreign_changes": named(world.counters, FOUND),
        "faults": named(world.counters, "fault_"),
        "latency_ms": _milliseconds(world.latencies_s),
        "decision_wall_ms": _milliseconds(steps_s),
        "lag_sequences": _lag(world),
        "windows": window_counters(world),
        "messages": dict(sorted(world.network.counters.items())),
        "packing": packing(world),
        "over_committed_nodes": sum(bool(world.placement.over_commit(n)) for n in world.nodes),
        "checks": dict(sorted(world.checkers.checked.items())),
        "violations": [violation.line() for violation in world.checkers.violations],
        "trace": world.trace.digest(),
    }


def named(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    """The counters whose names have a prefix, without the prefix."""
    names = sorted(name for name in counts if name.startswith(prefix))
    return {name.removeprefix(prefix): counts[name] for name in names}


def _lag(world: World) -> dict[str, int]:
    """The lag of the schedulers when the faults ended, and at the end."""
    now = world.lags()
    return {
        "nodes_behind_at_healing": world.behind_at_healing,
        "nodes_behind_now": sum(lag > 0 for lag in now.values()),
        "most_now": max(now.values(), default=0),
    }


def _milliseconds(values_s: Sequence[float]) -> dict[str, float]:
    parts = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: round(1000 * percentile(values_s, part), 3) for name, part in parts.items()}


def window_counters(world: World) -> dict[str, int]:
    """The counters of the windows, summed over the schedulers that are alive."""
    total: Counter[str] = Counter()
    for scheduler in world.schedulers.values():
        total.update(scheduler.core.nodes.window_counters.as_dict())
    return dict(sorted(total.items()))


def as_text(figures: Mapping[str, Any], indent: str = "") -> str:
    """The figures as text: one line per name; nested figures are on one line."""
    lines = []
    for name, value in figures.items():
        if isinstance(value, Mapping):
            value = "  ".join(f"{key} {item}" for key, item in value.items() if item) or "none"
        elif isinstance(value, list):
            value = "".join(f"\n{indent}  {item}" for item in value) or "none"
        lines.append(f"{indent}{name.replace('_', ' '):24} {value}")
    return "\n".join(lines)
