# SPDX-License-Identifier: Apache-2.0
"""The reports of a running scheduler as plain data, which ``daemon.admin`` serves."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from heapq import nlargest
from itertools import islice
from math import isfinite
from typing import Any, cast

from shared_scheduler.answers.shapes import FleetHost
from shared_scheduler.conf.mode import CurrentMode
from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.daemon.admin import Handler, Handlers
from shared_scheduler.model.leaves import AGENT_RELEASE
from shared_scheduler.protocol.phases import ASKING, WindowPhase
from shared_scheduler.release import UNKNOWN, release
from shared_scheduler.service.engine import Engine
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.transport.channel import Channel

#: The fields of one node.
Describe = Callable[[SchedulerCore, str], dict[str, Any]]

#: name -> number of items that wait
Queues = Mapping[str, Callable[[], int]]

#: Nodes are counted by their lag in these classes: at most so many messages.
LAG_CLASSES = (0, 1, 4, 16)
LAG_BEYOND = "more"
#: Classes of nodes whose lag says nothing, because no agent publishes their state.
LAG_SILENT, LAG_WITHOUT_AGENT = "silent", "without_agent"
LAG_NAMES = (*map(str, LAG_CLASSES), LAG_BEYOND, LAG_SILENT, LAG_WITHOUT_AGENT)
#: Number of silent agents that ``status`` names, those that have been silent for the longest time first.
SILENT_NAMED_MAX = 20
#: States of a window whose agent is behind or away.
LAGGING = frozenset(phase.value for phase in (*ASKING, WindowPhase.SILENT))
#: Number of nodes that ``load`` names, those with the largest lag first.
LAGGING_MAX = 20

#: Number of requests that ``report`` names, the oldest first.
REQUESTS_MAX = 50

#: The number of rows that are described while decisions wait, which takes some milliseconds.
NODES_PER_PART = 32


class AgentState(StrEnum):
    """Whether the agent of a node publishes its state."""

    HEARD = "heard"
    SILENT = "silent"  # it was heard since this scheduler started, and does not report now
    NONE = "none"  # it was never heard


def questions(
    engine: Engine,
    name: str,
    why: Handler,
    reads: Callable[[], list[dict[str, Any]]],
    foreign_changes: Callable[[], dict[str, Any]],
    mode: CurrentMode,
    queues: Queues,
) -> Handlers:
    """The questions of one scheduler process.  ``name``: the name that operators use; ``reads``: returns the report of
    the revalidator; ``foreign_changes``: that of the writer of allocations; ``queues``: what waits.
    """
    started = {"started_at": time.time()}
    return {
        "status": lambda _: {"scheduler": name, "pid": os.getpid(), "mode": mode.value.value, **status(engine)},
        "nodes": lambda _: {"scheduler": name, "nodes": nodes(engine)},
        "tables": lambda _: {"scheduler": name, "nodes": rows(engine, whole_row)},
        "reads": lambda _: {"scheduler": name, "pid": os.getpid(), "reads": reads()},
        "foreign-changes": lambda _: {"scheduler": name, "pid": os.getpid(), **foreign_changes()},
        "fleet": lambda _: {"scheduler": name, "pid": os.getpid(), "hosts": fleet(engine)},
        "top": lambda _: {"scheduler": name, "pid": os.getpid(), **started, **load(engine, queues)},
        "why": why,
    }


def rows(engine: Engine, describe: Describe) -> list[dict[str, Any]]:
    """One row for each node, in parts: each row is consistent, but the rows are not all of the same moment."""
    there = engine.inspect(lambda core: list(core.table.nodes()))
    parts = [there[start : start + NODES_PER_PART] for start in range(0, len(there), NODES_PER_PART)]
    batches = (engine.inspect(partial(_part, part, describe)) for part in parts)
    return [row for rows in batches for row in rows]


def _part(part: Sequence[str], describe: Describe, core: SchedulerCore) -> list[dict[str, Any]]:
    return [describe(core, node) for node in part if node in core.table]


def status(engine: Engine) -> dict[str, Any]:
    """Counts: nodes by freshness, requests and claims under way, events since the start."""
    return {
        **engine.inspect(partial(status_of_core, engine.clock())),
        "release": release(),
        "releases": releases(engine),
        "in_flight": engine.in_flight,
        "cells": {
            cell: {"name": own.name, **_channel_status(own.channel)}
            for cell, own in list(engine.channels.items())  # a reload may add channels
        },
        "counters": counters(engine),
    }


def _channel_status(channel: Channel) -> dict[str, Any]:
    return {
        "connected": channel.connected,
        "address": channel.address,
        "in_state_s": channel.in_state_s,
        "heard_ago_s": channel.heard_ago_s,
        "host_keys": channel.host_keys.mode.value,
    }


def releases(engine: Engine) -> dict[str, dict[str, int]]:
    """Role -> release -> number of peers, this scheduler included.  Agents that do not report are not counted."""
    peers = engine.inspect(lambda core: core.peers.releases())
    # a scheduler has an address in each cell, which differ in their last part only
    schedulers = {address.rpartition(".")[0] or address: told for address, told in peers.items()}
    agents = [row["release"] for row in rows(engine, _agent_release) if row["spoken_for"]]
    return {"schedulers": _counted([release(), *schedulers.values()]), "agents": _counted(agents)}


def _agent_release(core: SchedulerCore, node: str) -> dict[str, Any]:
    row = core.table.row_of(node)
    told = None if row is None else row.leaves.get(AGENT_RELEASE)
    return {"spoken_for": core.nodes.agent_speaks_for(node), "release": told}


def _counted(told: Iterable[Any]) -> dict[str, int]:
    return dict(sorted(Counter(str(each or UNKNOWN) for each in told).items()))


def counters(engine: Engine) -> dict[str, int]:
    """Every counter by name, summed over the channels, those that no cell uses any more included."""
    found: Counter[str] = Counter()
    for own in list(engine.channel_counters):  # a reload may add channels
        found.update(dict(own))  # a copy at once, because other threads count meanwhile
    found.update(dict(engine.counters))
    found.update(engine.inspect(lambda core: core.counters()))
    return dict(sorted(found.items()))


def status_of_core(now: float, core: SchedulerCore) -> dict[str, Any]:
    """What ``status`` shows of the core."""
    freshness = Counter(core.table.freshness(node).value for node in core.table.nodes())
    silent = [node for node in core.table.nodes() if _agent(core, node) is AgentState.SILENT]
    named = [{"host": core.nodes.host_of(node), "node": node, "heard_ago_s": _heard_ago_s(core, node, now)}
             for node in silent]  # fmt: skip
    return {
        "nodes": len(core.table),
        "freshness": dict(sorted(freshness.items())),
        "agents_silent": len(silent),
        "silent_agents": nlargest(SILENT_NAMED_MAX, named, key=lambda one: (one["heard_ago_s"], one["host"])),
        "quarantined": sorted(core.quarantine.nodes),
        "quarantined_hosts": sorted(core.nodes.host_of(node) or node for node in core.quarantine.nodes),
        "second_agents": second_agents(core),
        "claims_open": len(core.claims),
        "claims_watched": len(core.confirmed_claims),
    }


def _agent(core: SchedulerCore, node: str) -> AgentState:
    if core.nodes.agent_speaks_for(node):
        return AgentState.HEARD
    known = core.nodes.get(node)
    was_heard = known is not None and isfinite(known.window.heard_at_s)
    return AgentState.SILENT if was_heard else AgentState.NONE


def second_agents(core: SchedulerCore) -> list[dict[str, str]]:
    """Nodes for which two agents speak: the host in the database, and the host that the other agent names."""
    return [
        {"node": one.node, "host": core.nodes.host_of(one.node), "other_host": one.host}
        for one in core.nodes.second_agents.speaking()
    ]


def nodes(engine: Engine) -> list[dict[str, Any]]:
    """One short row for each node, by host."""
    return sorted(rows(engine, partial(_short, engine.clock())), key=lambda row: (row["host"], row["node"]))


def _short(now: float, core: SchedulerCore, node: str) -> dict[str, Any]:
    described = core.table.describe(node)
    closed = why_not(core.table, node)
    why = closed or ("quarantined" if node in core.quarantine.nodes else "")
    return {
        "node": node,
        "host": described["host"],
        "cell": described["cell"],
        "freshness": described["freshness"],
        "agent": _agent(core, node).value,
        "epoch": described["epoch"],
        "sequence": described["sequence"],
        "heard_ago_s": _heard_ago_s(core, node, now),
        "choosable": not closed,
        "why_not": why,
        "disabled_reason": _disabled_reason(core.table, node),
        "outstanding": len(described["outstanding"]),
        "pending": len(described["claims"]),
        "used": _root_used(node, described["used"]),
    }


def _heard_ago_s(core: SchedulerCore, node: str, now: float) -> float | None:
    """Age of the last message of the node's agent; None if there was none."""
    known = core.nodes.get(node)
    if known is None or not isfinite(known.window.heard_at_s):
        return None
    return round(now - known.window.heard_at_s, 1)


def _root_used(node: str, used: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    return {rc: amount for rc, amount in sorted(used.get(node, {}).items()) if amount}


def fleet(engine: Engine) -> list[FleetHost]:
    """What each node has, holds and lags behind, by host."""
    found = rows(engine, partial(_fleet_host, engine.clock()))
    return cast(list[FleetHost], sorted(found, key=lambda row: (row["host"], row["node"])))


def _fleet_host(now: float, core: SchedulerCore, node: str) -> dict[str, Any]:
    table, view = core.table, core.table.view(node)
    used = view.used.get(node, {})
    return {
        "host": view.host,
        "node": node,
        "cell": view.cell,
        "freshness": table.freshness(node).value,
        **_lag(now, core, node),
        "why_not": why_not(table, node) or ("quarantined" if node in core.quarantine.nodes else ""),
        "disabled_reason": _disabled_reason(table, node),
        "resources": {
            rc: {"used": used.get(rc, 0), "capacity": inventory.capacity}
            for rc, inventory in sorted(view.root.inventories.items())
        },
    }  # fmt: skip


def _lag(now: float, core: SchedulerCore, node: str) -> dict[str, Any]:
    known = core.nodes.get(node)
    if known is None:
        return {"state": WindowPhase.NEW.value, "agent": AgentState.NONE.value, "lag": 0, "heard_ago_s": None}
    return {
        "state": known.window.phase.value,
        "agent": _agent(core, node).value,
        "lag": known.window.lag,
        "heard_ago_s": _heard_ago_s(core, node, now),
    }


def load(engine: Engine, queues: Queues) -> dict[str, Any]:
    """What this scheduler does: windows and lags of its nodes, counts since its start, queues."""
    clock_s = engine.clock()
    found = rows(engine, lambda core, node: {"host": core.table.view(node).host, **_lag(clock_s, core, node)})
    counted = counters(engine)
    answered, failed = counted.get("requests_answered", 0), counted.get("requests_failed", 0)
    return {
        "clock_s": clock_s,
        "nodes": len(found),
        "windows": {each.value: 0 for each in WindowPhase} | Counter(row["state"] for row in found),
        "lags": dict.fromkeys(LAG_NAMES, 0) | Counter(map(_lag_class, found)),
        "lagging": sorted(filter(_is_lagging, found), key=_lag_order)[:LAGGING_MAX],
        "decisions": answered + failed,
        "failures": failed,
        "refusals": counted.get("refused", 0),
        "conflicts": counted.get("conflicts", 0),
        "queues": {"requests": engine.in_flight, **{name: waiting() for name, waiting in queues.items()}},
    }  # fmt: skip


def report(engine: Engine, queues: Queues) -> dict[str, Any]:
    """What a Guru Meditation Report shows: the table, windows, queues, cells, and the oldest requests."""
    found = load(engine, queues)
    clock_s = found["clock_s"]
    return {
        "table": engine.inspect(partial(status_of_core, clock_s)),
        "windows": found["windows"],
        "lags": found["lags"],
        "lagging": {row["host"]: f"{row['state']}, {row['lag']} behind" for row in found["lagging"]},
        "queues": found["queues"],
        "cells": {cell: _channel_status(own.channel) for cell, own in list(engine.channels.items())},
        "requests": engine.inspect(partial(_oldest_requests, clock_s)),
    }


def _oldest_requests(now: float, core: SchedulerCore) -> dict[str, str]:
    return {
        f"{each.request.request_id} ({each.key})":
            f"{each.phase.value}, {len(each.instances)} instances, for {now - each.arrived_s:.1f} s"
        for each in islice(core.requests.under_way(), REQUESTS_MAX)
    }  # fmt: skip


def _is_lagging(row: Mapping[str, Any]) -> bool:
    return row["lag"] > 0 or row["state"] in LAGGING or row["agent"] == AgentState.SILENT


def _lag_class(row: Mapping[str, Any]) -> str:
    if row["agent"] != AgentState.HEARD:
        return LAG_SILENT if row["agent"] == AgentState.SILENT else LAG_WITHOUT_AGENT
    return next((str(most) for most in LAG_CLASSES if row["lag"] <= most), LAG_BEYOND)


def _lag_order(row: Mapping[str, Any]) -> tuple[int, float, str]:
    return -row["lag"], -(row["heard_ago_s"] or 0.0), row["host"]


def why_not(table: HostTable, node: str) -> str:
    """The reason why no request may select this node at present; empty if there is none."""
    closed = table.why_closed(node)
    if closed is not None:
        return closed.value
    service = table.view(node).service
    if service is None:
        return "no_service_record"
    states = {"forced_down": service.forced_down, "disabled": service.disabled, "down": not service.up}
    return next((name for name, holds in states.items() if holds), "")


def _disabled_reason(table: HostTable, node: str) -> str:
    service = table.view(node).service
    return "" if service is None else service.disabled_reason


def whole_row(core: SchedulerCore, node: str) -> dict[str, Any]:
    """The whole row, as ``compare`` needs it."""
    return {**core.table.describe(node), "service": _service_of(core.table, node)}


def _service_of(table: HostTable, node: str) -> dict[str, bool] | None:
    service = table.view(node).service
    if service is None:
        return None
    return {"disabled": service.disabled, "forced_down": service.forced_down, "up": service.up}
