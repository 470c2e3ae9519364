# SPDX-License-Identifier: Apache-2.0
"""A row of the table as Nova's HostState, which filters, weighers and site plug-ins read.

Names, types and units are those of Nova's HostState, because operators use them too, in
``capabilities:`` extra specs and JSON hints.  Values are computed at their first use, and the costly ones (NUMA cells,
PCI pools) are cached until the row changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from cachetools import LRUCache
from nova import context as nova_context
from nova import objects
from nova.scheduler import host_manager
from oslo_utils import timeutils

from shared_scheduler.decision.host_attributes import PLAIN, stats
from shared_scheduler.nova.aggregates import AggregateCache
from shared_scheduler.novalib import topology
from shared_scheduler.table.host_view import HostView

#: The number of rows whose costly parts are cached; the least recently used one is dropped.
KEPT_MAX = 4_096


class Instances(Mapping[str, Any]):
    """``HostState.instances``: uuid -> Instance of the service host, created on access.

    Like Nova's, the instances have their uuid and their cell; other fields are loaded on demand.
    """

    def __init__(self, uuids: frozenset[str], context: Callable[[], Any]) -> None:
        self._uuids = uuids
        self._context = context
        self._made: dict[str, Any] = {}

    def __getitem__(self, uuid: str) -> Any:
        if uuid not in self._uuids:
            raise KeyError(uuid)
        if uuid not in self._made:
            self._made[uuid] = objects.Instance(self._context(), uuid=uuid)
        return self._made[uuid]

    def __contains__(self, uuid: object) -> bool:
        return uuid in self._uuids

    def __iter__(self) -> Iterator[str]:
        return iter(self._uuids)

    def __len__(self) -> int:
        return len(self._uuids)


class RowParts:
    """The costly parts of one row at one generation; they are shared, so no caller may change them."""

    def __init__(self, view: HostView) -> None:
        self.generation = view.generation
        self.leaves = view.leaves
        self.stats = stats(view)

    @cached_property
    def numa_topology(self) -> Any:
        """``objects.NUMATopology``; None if the driver reports none."""
        return topology.host_topology(self.leaves)

    @cached_property
    def pci_stats(self) -> Any:
        """Nova's ``PciDeviceStats``."""
        return topology.pci_stats(self.leaves)

    @cached_property
    def metrics(self) -> Any:
        """``objects.MonitorMetricList``."""
        return objects.MonitorMetricList.from_json(self.leaves.get("cn.metrics"))


class RowHostState(host_manager.HostState):
    """One host for one request.  Setting an attribute changes this object only."""

    def __init__(
        self,
        view: HostView,
        parts: RowParts,
        aggregates: AggregateCache,
        cell_context: Callable[[str], Any],
    ) -> None:
        # HostState.__init__ would set the attributes that are computed on demand here
        self._view, self._parts = view, parts
        self._aggregates, self._cell_context = aggregates, cell_context
        self.host = view.host
        self.nodename = view.nodename
        self.cell_uuid = view.cell
        self.limits: dict[str, Any] = {}
        self.allocation_candidates: list[Any] = []
        self.updated = None
        self._lock_name = f"{view.host}-{view.nodename}"

    def __getattr__(self, name: str) -> Any:
        # called for missing attributes only: numbers first, then plain fields of the compute node
        if name.startswith("_") or name not in DERIVED:
            raise AttributeError(f"HostState has no attribute {name!r}")
        value = DERIVED[name](self)
        self.__dict__[name] = value
        return value


def _plain(name: str) -> Callable[[RowHostState], Any]:
    return lambda state: PLAIN[name](state._view)


def _part(name: str) -> Callable[[RowHostState], Any]:
    return lambda state: getattr(state._parts, name)


def _service(state: RowHostState) -> Any:
    """The service record, with a current heartbeat time if the polls have found no missing heartbeat.

    The polls do not read heartbeats; they only list services that missed theirs.  So the time in a record may be old
    while the service is up.
    """
    facts = state._view.service
    if facts is None:
        return host_manager.ReadOnlyDict({})
    record = dict(facts.record)
    if facts.up:
        record["last_seen_up"] = timeutils.utcnow(with_timezone=True)
    return host_manager.ReadOnlyDict(record)


def _instances(state: RowHostState) -> Instances:
    view = state._view
    return Instances(view.instances, lambda: state._cell_context(view.cell))


#: attribute -> the function that computes it; with those of ``__init__``, all attributes of HostState
DERIVED: Mapping[str, Callable[[RowHostState], Any]] = {
    "uuid": lambda state: None if state._view.numbers is None else state._view.node,
    **{name: _plain(name) for name in PLAIN},
    "stats": _part("stats"),
    "metrics": _part("metrics"),
    "numa_topology": _part("numa_topology"),
    "pci_stats": lambda state: state._parts.pci_stats.uncounted(),
    "aggregates": lambda state: state._aggregates.of_host(state.host),
    "service": _service,
    "instances": _instances,
}


class HostStates:
    """Creates host states, and caches the costly parts of rows between requests."""

    def __init__(
        self,
        aggregates: AggregateCache,
        cell_context: Callable[[str], Any] = lambda _cell: nova_context.get_admin_context(),
    ) -> None:
        """``cell_context`` creates a context for the database of a cell (by uuid)."""
        self._aggregates = aggregates
        self._cell_context = cell_context
        self._kept: LRUCache[str, RowParts] = LRUCache(KEPT_MAX)

    def make(self, view: HostView) -> RowHostState:
        """A new host state with the data of the view."""
        return RowHostState(view, self._parts(view), self._aggregates, self._cell_context)

    def _parts(self, view: HostView) -> RowParts:
        kept = self._kept.get(view.node)
        if kept is None or kept.generation != view.generation:
            kept = self._kept[view.node] = RowParts(view)
        return kept
