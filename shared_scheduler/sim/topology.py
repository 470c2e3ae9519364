# SPDX-License-Identifier: Apache-2.0
"""NUMA cells and PCI pools for worlds without Nova: the resources of a host, and one fit for both sides.

The leaves are those of ``model/leaves.py``.  The request is the text that the product sends, reduced to the parts that
are judged here: pinned CPUs, memory in pages of one size, devices of a vendor.  The real fit is Nova's
(``shared_scheduler/novalib/topology.py``); the protocol does not depend on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared_scheduler.core.events import Candidate
from shared_scheduler.core.planner import Approval
from shared_scheduler.decision.request import Request
from shared_scheduler.decision.topology_request import KIB_PER_MIB, CellAsk, DeviceAsk, topology_ask
from shared_scheduler.model import leaves as names
from shared_scheduler.model.topology import TopologyUsage, bitmap, cpus_of, pool_id
from shared_scheduler.protocol.messages import Leaf, Reason, RefusalCode
from shared_scheduler.table.host_view import HostView

SMALL_PAGE_KB = 4
HUGE_PAGE_KB = 1_048_576
VENDOR = "8086"


@dataclass(frozen=True, slots=True)
class Board:
    """The NUMA cells and PCI pools of one simulated host; each cell has one pool of devices."""

    cells: int = 2
    cpus_per_cell: int = 8
    memory_mb_per_cell: int = 32_768
    huge_pages_per_cell: int = 8
    devices_per_cell: int = 2

    def static(self) -> dict[str, Leaf]:
        """The leaves that never change."""
        cells: list[Leaf] = [self._cell(number) for number in range(self.cells)]
        pools: dict[str, Leaf] = {names.PCI_STATIC + pool: key for pool, key in self._pools()}
        return {names.NUMA_STATIC: cells, **pools}

    def untouched(self) -> dict[str, Leaf]:
        """The leaves that change, as they are while nothing is in use."""
        pages: dict[str, Leaf] = {str(SMALL_PAGE_KB): 0, str(HUGE_PAGE_KB): 0}
        cells: dict[str, Leaf] = {f"{names.NUMA}{number}": [0, 0, "0", dict(pages)] for number in range(self.cells)}
        pools: dict[str, Leaf] = {names.PCI + pool: self.devices_per_cell for pool, _ in self._pools()}
        return cells | pools

    def _cell(self, number: int) -> Leaf:
        first = number * self.cpus_per_cell
        huge_mb = self.huge_pages_per_cell * HUGE_PAGE_KB // KIB_PER_MIB
        small = (self.memory_mb_per_cell - huge_mb) * KIB_PER_MIB // SMALL_PAGE_KB
        return {
            "id": number,
            "socket": number,
            "cpuset": [],
            "pcpuset": list(range(first, first + self.cpus_per_cell)),
            "siblings": [],
            "memory": self.memory_mb_per_cell,
            "mempages": [[SMALL_PAGE_KB, small, 0], [HUGE_PAGE_KB, self.huge_pages_per_cell, 0]],
            "network_metadata": {"physnets": [], "tunneled": False},
        }

    def _pools(self) -> list[tuple[str, dict[str, Leaf]]]:
        keys: list[dict[str, Leaf]] = [
            {"vendor_id": VENDOR, "product_id": "10fb", "numa_node": number} for number in range(self.cells)
        ]
        return [(pool_id(key), key) for key in keys]


def ask_text(cells: Sequence[tuple[int, int, int]], devices: int = 0) -> str:
    """A request: cells as (pinned CPUs, MiB, page size in KiB or 0), and a number of devices."""
    asked = [
        {"id": i, "cpuset": [], "pcpuset": list(range(cpus)), "memory": mb, "pagesize": kb or None,
         "cpu_policy": "dedicated"}
        for i, (cpus, mb, kb) in enumerate(cells)
    ]  # fmt: skip
    pci = [{"count": devices, "spec": [{"vendor_id": VENDOR}]}] if devices else []
    return json.dumps({"numa": {"cells": asked} if asked else None, "pci": pci})


def ports_text(cells: Sequence[tuple[int, int, int]], ports: int) -> str:
    """The same for so many SR-IOV ports.  Each is a request of its own, as long as Nova's object of it."""
    asked = json.loads(ask_text(cells))
    mappings = {_port_id(number): [_port_id(number)] for number in range(ports)}
    return json.dumps({**asked, "pci": [_port(number) for number in range(ports)], "mappings": mappings})


def _port_id(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def _port(number: int) -> dict[str, object]:
    data = {
        "count": 1,
        "spec": [{"vendor_id": VENDOR, "remote_managed": "False"}],
        "alias_name": None,
        "request_id": _port_id(number),
        "requester_id": _port_id(number),
        "numa_policy": "required",
    }
    return {
        "nova_object.name": "InstancePCIRequest",
        "nova_object.namespace": "nova",
        "nova_object.version": "1.4",
        "nova_object.data": data,
        "nova_object.changes": [*data],
    }


@dataclass(frozen=True, slots=True)
class SimFit:
    """The ``TopologyFit`` of a simulated agent or nova-compute.

    ``from_top``: take the highest CPUs and cells first, because nova-compute computes the fit again and may select
    others than the agent did.
    """

    from_top: bool = False

    def consume(self, leaves: Mapping[str, Leaf], topology: str) -> Mapping[str, Leaf] | Reason:
        """See ``compute_agent.claim_ledger.TopologyFit``."""
        asked = topology_ask(topology)
        changed: dict[str, Leaf] = {}
        for cell in asked.cells:
            found = self._place(leaves, cell, changed)
            if found is None:
                return Reason(RefusalCode.TOPOLOGY, {"why": "NUMA cells"})
            changed.update([found])
        for devices in asked.devices:
            taken = self._devices({**leaves, **changed}, devices)
            if taken is None:
                return Reason(RefusalCode.TOPOLOGY, {"why": "PCI devices"})
            changed.update(taken)
        return changed

    def _place(self, leaves: Mapping[str, Leaf], wanted: CellAsk, used: Mapping[str, Leaf]) -> tuple[str, Leaf] | None:
        """The state of a host cell after it has taken one cell of the instance."""
        static: Any = leaves.get(names.NUMA_STATIC) or ()
        for cell in reversed(static) if self.from_top else static:
            name = f"{names.NUMA}{cell['id']}"
            if name not in used and (after := self._cell_after(cell, leaves.get(name), wanted)):
                return name, after
        return None

    def _cell_after(self, static: Any, dynamic: Any, wanted: CellAsk) -> Leaf | None:
        cpu_usage, memory_mb, pinned, pages = dynamic
        taken = cpus_of(pinned)
        free = [cpu for cpu in static["pcpuset"] if cpu not in taken]
        size_kb = wanted.page_kb or SMALL_PAGE_KB
        count = wanted.memory_mb * KIB_PER_MIB // size_kb
        room = next(total for size, total, _ in static["mempages"] if size == size_kb)
        if len(free) < wanted.pinned_cpus or pages[str(size_kb)] + count > room:
            return None
        chosen = sorted(free, reverse=self.from_top)[: wanted.pinned_cpus]
        after_pages = {**pages, str(size_kb): pages[str(size_kb)] + count}
        after = bitmap(taken.union(chosen))
        return [cpu_usage + wanted.pinned_cpus, memory_mb + wanted.memory_mb, after, after_pages]

    def _devices(self, leaves: Mapping[str, Leaf], wanted: DeviceAsk) -> dict[str, Leaf] | None:
        """Take devices from one pool after the other."""
        changed: dict[str, Leaf] = {}
        left = wanted.count
        for name in sorted(leaves, reverse=self.from_top):
            free = leaves[name]
            if left and is_pool(name) and isinstance(free, int) and free > 0:
                changed[name] = free - min(free, left)
                left -= min(free, left)
        return None if left else changed


def is_pool(name: str) -> bool:
    """Whether this leaf counts the free devices of a pool."""
    return name.startswith(names.PCI) and not name.startswith(names.PCI_STATIC)


class SimJudge:
    """The ``HostJudge`` of a simulated scheduler: the agent's fit, on the scheduler's own row."""

    def verify(
        self, request: Request, index: int, view: HostView, candidates: Sequence[Candidate]
    ) -> Approval | Reason:
        """See ``core.planner.HostJudge``."""
        candidate = candidates[0] if candidates else None
        if not request.topology:
            return Approval(candidate)
        changed = SimFit().consume(view.leaves, request.topology)
        if isinstance(changed, Reason):
            return changed
        take = TopologyUsage.between(view.leaves, changed)
        return Approval(candidate, request.topology, None, take)


@dataclass(frozen=True, slots=True)
class Holding:
    """The sum of the resources in use on a board, over all cells and pools."""

    pinned_cpus: int = 0
    pages: tuple[tuple[int, int], ...] = ()  # (size in KiB, count), sorted
    devices: int = 0


def holding_of(texts: Sequence[str]) -> Holding:
    """The sum of the resources of these requests."""
    pinned, devices, pages = 0, 0, {SMALL_PAGE_KB: 0, HUGE_PAGE_KB: 0}
    for asked in map(topology_ask, texts):
        devices += sum(each.count for each in asked.devices)
        for cell in asked.cells:
            size_kb = cell.page_kb or SMALL_PAGE_KB
            pinned += cell.pinned_cpus
            pages[size_kb] += cell.memory_mb * KIB_PER_MIB // size_kb
    return Holding(pinned, tuple(sorted(pages.items())), devices)


def holding_in(leaves: Mapping[str, Leaf]) -> Holding:
    """The resources in use on a board, according to its leaves."""
    pinned, devices, pages = 0, 0, {SMALL_PAGE_KB: 0, HUGE_PAGE_KB: 0}
    cells: Any = [leaves[f"{names.NUMA}{cell['id']}"] for cell in _static(leaves)]
    for _, _, cpus, used in cells:
        pinned += len(cpus_of(cpus))
        for size_kb in pages:
            pages[size_kb] += used[str(size_kb)]
    devices = sum(n for name, n in leaves.items() if is_pool(name) and isinstance(n, int))
    return Holding(pinned, tuple(sorted(pages.items())), -devices)


def over_given(leaves: Mapping[str, Leaf]) -> list[str]:
    """The cells and pools that are over-committed."""
    over = [name for name, n in leaves.items() if is_pool(name) and isinstance(n, int) and n < 0]
    for cell in _static(leaves):
        name = f"{names.NUMA}{cell['id']}"
        dynamic: Any = leaves[name]
        _, _, pinned, used = dynamic
        has = {str(size_kb): total for size_kb, total, _ in cell["mempages"]}
        if not cpus_of(pinned) <= set(cell["pcpuset"]) or any(used[kb] > has[kb] for kb in has):
            over.append(name)
    return over


def _static(leaves: Mapping[str, Leaf]) -> Any:
    return leaves.get(names.NUMA_STATIC) or ()
