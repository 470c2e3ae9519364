# SPDX-License-Identifier: Apache-2.0
"""NUMA and PCI: exact where columns of facts can tell, a sound screen else (topology_screen.py)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shared_scheduler.decision.filters.base import NativeFilter
from shared_scheduler.decision.look import Look
from shared_scheduler.decision.masks import RowTest
from shared_scheduler.decision.topology_columns import all_may_fit, is_simple
from shared_scheduler.decision.topology_request import TopologyAsk
from shared_scheduler.decision.topology_screen import (
    Ratios,
    cells_may_fit,
    devices_may_fit,
)
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.state import leaves as names
from shared_scheduler.state.columns import BoolArray
from shared_scheduler.state.numa_cells import has_threads, host_cells
from shared_scheduler.state.numa_columns import NO_TOPOLOGY, ODD
from shared_scheduler.state.numbers import topology_ratios
from shared_scheduler.state.row import Row
from shared_scheduler.state.table import HostTable
from shared_scheduler.state.view import HostView, pools_of


class NUMATopologyFilter(NativeFilter):
    """The instance's NUMA cells fit on the host's; sibling threads are there where required."""

    code = "NUMATopologyFilter"
    screens = True

    def mask(self, look: Look) -> BoolArray | None:
        needs_threads = _needs_threads(look)
        if not look.request.has_numa and not needs_threads:
            return None
        ask = look.ask if look.request.has_numa else None
        test = _cells_test(look, ask, needs_threads)
        simple = ask is None or is_simple(ask)
        return look.masks.rows(
            look.table,
            (self.code, ask, needs_threads),
            lambda: test,
            static=False,
            every=(lambda: _all_cells(look, ask, needs_threads, test)) if simple else None,
        )

    def detail(self, look: Look, view: HostView) -> Mapping[str, Leaf]:
        numa: dict[str, Leaf] = {
            name: value for name, value in view.leaves.items() if name.startswith(names.NUMA)
        }
        asked: list[Leaf] = [
            {
                "shared_cpus": cell.shared_cpus,
                "pinned_cpus": cell.pinned_cpus,
                "memory_mb": cell.memory_mb,
                "page_kb": cell.page_kb,
            }
            for cell in look.ask.cells
        ]
        return {
            "asked": asked,
            "threads_required": _needs_threads(look),
            "host": {name: value for name, value in numa.items() if name != names.NUMA_STATIC},
            "host_has_topology": names.NUMA_STATIC in numa,
        }


def _needs_threads(look: Look) -> bool:
    specs, image = look.request.flavor.extra_specs, look.request.image_properties
    policies = (specs.get("hw:cpu_policy"), image.get("hw_cpu_policy"))
    threads = (specs.get("hw:cpu_thread_policy"), image.get("hw_cpu_thread_policy"))
    return "dedicated" in policies and "require" in threads


def _cells_test(look: Look, ask: TopologyAsk | None, needs_threads: bool) -> RowTest:
    table = look.table

    def test(row: Row) -> bool:
        if names.NUMA_STATIC not in row.leaves:
            return ask is None
        if needs_threads and not has_threads(row.leaves):
            return False
        if ask is None:
            return True
        leaves = _effective(table, row)
        ratios = Ratios(*topology_ratios(leaves, table.ratios))
        return cells_may_fit(ask, host_cells(leaves), ratios)

    return test


def _all_cells(
    look: Look, ask: TopologyAsk | None, needs_threads: bool, test: RowTest
) -> BoolArray:
    """As the test of each row, from columns; rows that do not fit into columns are tested."""
    numa, high, table = look.columns.numa, look.high, look.table
    cells, threads = numa.cells.array[:high], numa.threads.array[:high]
    if ask is None:
        passes: BoolArray = (cells == NO_TOPOLOGY) | threads
    else:
        passes = all_may_fit(ask, numa, high)
        if needs_threads:
            passes &= threads
    for slot in np.flatnonzero(cells == ODD).tolist():
        row = table.row(slot)
        passes[slot] = row is not None and test(row)
    return passes


def _effective(table: HostTable, row: Row) -> Mapping[str, Leaf]:
    """A view is made where own claims must be taken off only."""
    return table.view_at(row.slot).leaves if row.claims else row.leaves


class PciPassthroughFilter(NativeFilter):
    """The pools hold the devices."""

    code = "PciPassthroughFilter"
    screens = True

    def mask(self, look: Look) -> BoolArray | None:
        if not look.request.has_pci:
            return None
        devices, table = look.ask.devices, look.table
        return look.masks.kinds(
            table,
            (self.code, devices),
            look.columns.devices,
            lambda: lambda row: devices_may_fit(devices, pools_of(_effective(table, row))),
            static=False,
        )

    def detail(self, look: Look, view: HostView) -> Mapping[str, Leaf]:
        asked: list[Leaf] = [
            {
                "count": ask.count,
                "any_of": [{key: value for key, value in spec} for spec in ask.alternatives],
            }
            for ask in look.ask.devices
        ]
        return {"asked": asked, "pools": [{"key": dict(k), "free": n} for k, n in view.pools]}
