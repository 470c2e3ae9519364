# SPDX-License-Identifier: Apache-2.0
"""The map of the fleet: one cell for each node, coloured by use, by what is stranded, or by lag.

Free capacity is *stranded* if another resource of the node runs out first: a node with half of its memory but none of
its CPUs free strands half of its memory.  Cells of one class are one path of an SVG, so that 10,000 cells stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt

from shared_scheduler.answers.shapes import FleetHost, Use
from shared_scheduler.protocol.phases import WindowPhase

#: resources that a map adds up, by the names that Nova and the commands use
RESOURCES = ("VCPU", "MEMORY_MB", "DISK_GB")
COLUMNS_MIN = 48
#: columns for each row of a large map
ASPECT = 3.2
CELL, GAP = 10, 2
STEPS = 5
CLOSED, UNKNOWN = "closed", "unknown"


@dataclass(frozen=True, slots=True)
class CellClass:
    """Cells of one colour.  ``path``: of the SVG; ``name``: in the legend."""

    key: str
    name: str
    count: int
    path: str


@dataclass(frozen=True, slots=True)
class FleetMap:
    """``width`` and ``height`` in units of the SVG."""

    columns: int
    width: int
    height: int
    classes: tuple[CellClass, ...]


@dataclass(frozen=True, slots=True)
class ResourceTotal:
    """One resource of the whole fleet, in its own unit.  The parts add up to ``capacity``, unless it is overcommitted.

    ``closed``: free on nodes that are not choosable.
    """

    name: str
    capacity: int
    used: int
    usable: int
    stranded: int
    closed: int


def steps(share: float) -> str:
    """The class of a share from 0 to 1."""
    return f"step{min(int(share * STEPS), STEPS - 1)}"


STEP_NAMES = {f"step{n}": f"{100 * n // STEPS} to {100 * (n + 1) // STEPS} %" for n in range(STEPS)}


def used_class(host: FleetHost) -> str:
    """The share of the resource that is used most."""
    found = [min(use["used"] / use["capacity"], 1.0) for use in _resources(host)]
    return CLOSED if host["why_not"] else steps(max(found)) if found else UNKNOWN


def stranded_class(host: FleetHost) -> str:
    """The largest share of a resource that is free, and that another one keeps from being used."""
    shares = free_shares(host)
    return CLOSED if host["why_not"] else steps(max(shares) - min(shares)) if shares else UNKNOWN


def lag_class(host: FleetHost) -> str:
    """The state of the window."""
    return host["state"]


#: what a map may show: how a node is classified, and the names of the classes in order
VIEWS: Mapping[str, tuple[Callable[[FleetHost], str], Mapping[str, str]]] = {
    "used": (used_class, {**STEP_NAMES, CLOSED: "not choosable", UNKNOWN: "not known"}),
    "stranded": (stranded_class, {**STEP_NAMES, CLOSED: "not choosable", UNKNOWN: "not known"}),
    "lag": (lag_class, {
        WindowPhase.IN_ORDER.value: "in order", WindowPhase.UNVERIFIED.value: "unverified",
        WindowPhase.GAP.value: "gap",
        WindowPhase.DIFFERS.value: "differs", WindowPhase.LOST.value: "lost", WindowPhase.SILENT.value: "silent",
        WindowPhase.NEW.value: "no agent", UNKNOWN: "not known",
    }),
}  # fmt: skip


def fleet_map(hosts: Sequence[FleetHost], view: str) -> FleetMap:
    """The map of these nodes, in their order, row by row."""
    classify, names = VIEWS[view]
    columns = max(COLUMNS_MIN, ceil(sqrt(len(hosts) * ASPECT)))
    cells: dict[str, list[int]] = {key: [] for key in names}
    for place, host in enumerate(hosts):
        key = classify(host)
        cells[key if key in cells else UNKNOWN].append(place)
    found = tuple(CellClass(key, names[key], len(own), _path(own, columns)) for key, own in cells.items() if own)
    rows = max(1, ceil(len(hosts) / columns))
    return FleetMap(columns, columns * (CELL + GAP) - GAP, rows * (CELL + GAP) - GAP, found)


def _path(places: Iterable[int], columns: int) -> str:
    pitch, side = CELL + GAP, f"h{CELL}v{CELL}h-{CELL}z"
    return "".join(f"M{place % columns * pitch} {place // columns * pitch}{side}" for place in places)


def totals(hosts: Sequence[FleetHost]) -> list[ResourceTotal]:
    """What the fleet has of each resource."""
    return [_total(rc, [host for host in hosts if _capacity(host, rc)]) for rc in RESOURCES]


def _total(rc: str, hosts: Sequence[FleetHost]) -> ResourceTotal:
    capacity = used = usable = stranded = closed = 0
    for host in hosts:
        own = host["resources"][rc]
        free = max(own["capacity"] - own["used"], 0)
        reachable = int(min(free_shares(host)) * own["capacity"])
        capacity, used = capacity + own["capacity"], used + own["used"]
        if host["why_not"]:
            closed += free
        else:
            usable, stranded = usable + min(reachable, free), stranded + max(free - reachable, 0)
    return ResourceTotal(rc, capacity, used, usable, stranded, closed)


def free_shares(host: FleetHost) -> list[float]:
    """The free share of each resource that the node has."""
    return [max(1 - use["used"] / use["capacity"], 0.0) for use in _resources(host)]


def _resources(host: FleetHost) -> list[Use]:
    return [host["resources"][rc] for rc in RESOURCES if _capacity(host, rc)]


def _capacity(host: FleetHost, rc: str) -> int:
    use = host["resources"].get(rc)
    return 0 if use is None else use["capacity"]
