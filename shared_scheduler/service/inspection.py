# SPDX-License-Identifier: Apache-2.0
"""The reports of a running scheduler as plain data, which ``service.admin`` serves."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any

from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.model.leaves import AGENT_RELEASE
from shared_scheduler.release import UNKNOWN, release
from shared_scheduler.service.admin import Handler, Handlers
from shared_scheduler.service.engine import Engine
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import CLOSED_CODES
from shared_scheduler.transport.channel import Channel

#: The fields of one node.
Describe = Callable[[SchedulerCore, str], dict[str, Any]]

#: The number of rows that are described while decisions wait, which takes some milliseconds.
NODES_PER_LOOK = 32


def questions(
    engine: Engine,
    name: str,
    why: Handler,
    reads: Callable[[], list[dict[str, Any]]],
    foreign_changes: Callable[[], dict[str, Any]],
) -> Handlers:
    """The questions of one scheduler process.  ``name``: the name that operators use; ``reads``: returns the report of
    the revalidator; ``foreign_changes``: that of the writer of allocations.
    """
    return {
        "status": lambda _: {"scheduler": name, "pid": os.getpid(), **status(engine)},
        "nodes": lambda _: {"scheduler": name, "nodes": nodes(engine)},
        "tables": lambda _: {"scheduler": name, "nodes": rows(engine, _whole)},
        "reads": lambda _: {"scheduler": name, "pid": os.getpid(), "reads": reads()},
        "foreign-changes": lambda _: {"scheduler": name, "pid": os.getpid(), **foreign_changes()},
        "why": why,
    }


def rows(engine: Engine, describe: Describe) -> list[dict[str, Any]]:
    """One row for each node, in parts: each row is consistent, but the rows are not all of the same moment."""
    there = engine.inspect(lambda core: list(core.table.nodes()))
    parts = [there[start : start + NODES_PER_LOOK] for start in range(0, len(there), NODES_PER_LOOK)]
    batches = (engine.inspect(partial(_part, part, describe)) for part in parts)
    return [row for rows in batches for row in rows]


def _part(part: Sequence[str], describe: Describe, core: SchedulerCore) -> list[dict[str, Any]]:
    return [describe(core, node) for node in part if node in core.table]


def status(engine: Engine) -> dict[str, Any]:
    """Counts: nodes by freshness, requests and claims under way, events since the start."""
    return {
        **engine.inspect(_core_status),
        "release": release(),
        "releases": releases(engine),
        "in_flight": engine.in_flight,
        "cells": {
            cell: _channel_status(own.channel)
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
    }


def releases(engine: Engine) -> dict[str, dict[str, int]]:
    """Role -> release -> number of peers, this scheduler included.  Agents that do not report are not counted."""
    peers = engine.inspect(lambda core: core.peers.releases())
    # a scheduler has an address in each cell, which differ in their last part only
    schedulers = {address.rpartition(".")[0] or address: told for address, told in peers.items()}
    agents = [row["release"] for row in rows(engine, _agent_release) if row["spoken_for"]]
    return {"schedulers": _counted([release(), *schedulers.values()]), "agents": _counted(agents)}


def _agent_release(core: SchedulerCore, node: str) -> dict[str, Any]:
    slot = core.table.slot_of(node)
    row = None if slot is None else core.table.row(slot)
    told = None if row is None else row.leaves.get(AGENT_RELEASE)
    return {"spoken_for": core.nodes.agent_speaks_for(node), "release": told}


def _counted(told: Iterable[Any]) -> dict[str, int]:
    return dict(sorted(Counter(str(each or UNKNOWN) for each in told).items()))


def counters(engine: Engine) -> dict[str, int]:
    """Every counter by name, summed over the cells' channels."""
    found: Counter[str] = Counter()
    for own in list(engine.channels.values()):
        found.update(own.channel.counters)
    found.update(engine.counters)
    found.update(engine.inspect(lambda core: core.counters()))
    return dict(sorted(found.items()))


def _core_status(core: SchedulerCore) -> dict[str, Any]:
    freshness = Counter(core.table.freshness(node).value for node in core.table.nodes())
    return {
        "nodes": len(core.table),
        "freshness": dict(sorted(freshness.items())),
        "quarantined": sorted(core.quarantine.nodes),
        "claims_open": len(core.claims),
        "claims_watched": len(core.confirmed_claims),
    }


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
        "epoch": described["epoch"],
        "sequence": described["sequence"],
        "heard_ago_s": _heard_ago_s(core, node, now),
        "choosable": not closed,
        "why_not": why,
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


def why_not(table: HostTable, node: str) -> str:
    """The reason why no request may select this node at present; empty if there is none."""
    slot = table.slot_of(node)
    assert slot is not None, node
    closed = CLOSED_CODES[int(table.columns.closed.array[slot])]
    if closed is not None:
        return closed.value
    service = table.view_at(slot).service
    if service is None:
        return "no_service_record"
    states = {"forced_down": service.forced_down, "disabled": service.disabled, "down": not service.up}
    return next((name for name, holds in states.items() if holds), "")


def _whole(core: SchedulerCore, node: str) -> dict[str, Any]:
    """The whole row, as ``compare`` needs it."""
    return {**core.table.describe(node), "service": _service_of(core.table, node)}


def _service_of(table: HostTable, node: str) -> dict[str, bool] | None:
    service = table.view(node).service
    if service is None:
        return None
    return {"disabled": service.disabled, "forced_down": service.forced_down, "up": service.up}
