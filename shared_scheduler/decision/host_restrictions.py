# SPDX-License-Identifier: Apache-2.0
"""Restrictions of a request to hosts: destination, ignored hosts, forced hosts (Nova's host_manager.py).

========================  =======================================================================
code                      the host was rejected because
========================  =======================================================================
``cell``                  the request is for another cell
``requested_destination`` the request is for another host (exact) or node
``ignore_hosts``          the request excludes it (names are compared without regard to case)
``force_hosts``           the request forces other hosts (without regard to case)
``force_nodes``           the request forces other nodes (exact)
``tried``                 it was tried for this instance already
========================  =======================================================================

Forced hosts skip every filter, unless the caller names a check type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.masks import mask_of_slots
from shared_scheduler.decision.request import Request
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.columns import BoolArray
from shared_scheduler.table.host_view import HostView
from shared_scheduler.table.row import CODE_OF_CLOSED, Exclusion


def skips_filters(request: Request) -> bool:
    """Whether forced hosts of the request skip the filters."""
    return bool(request.force_hosts or request.force_nodes) and not request.check_type


class TargetStage:
    """One restriction.  The mask is computed from few hosts, or from all hosts if names must be compared."""

    def __init__(self, code: str, mask: BoolArray, asked: Leaf) -> None:
        self.code = code
        self._mask = mask
        self._asked = asked

    def mask(self, context: DecisionContext) -> BoolArray | None:
        """The mask of the slots that pass."""
        return self._mask

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        """The requested values."""
        return {"asked": self._asked, "host": view.host, "node": view.nodename}


def target_stages(context: DecisionContext, tried: Iterable[str]) -> list[TargetStage]:
    """The restrictions of the request, in Nova's order."""
    request = context.request
    stages = []
    if request.destination is not None:
        stages += _destination(context)
    if request.ignore_hosts:
        slots = _slots_of_hosts(context, request.ignore_hosts)
        names: list[Leaf] = list(sorted(request.ignore_hosts))
        stages.append(TargetStage("ignore_hosts", ~mask_of_slots(context.high, slots), names))
    if request.force_hosts:
        slots = _slots_of_hosts(context, request.force_hosts)
        names = list(request.force_hosts)
        stages.append(TargetStage("force_hosts", mask_of_slots(context.high, slots), names))
    if request.force_nodes:
        stages.append(_forced_nodes(context))
    if tried:
        slots = [slot for node in tried if (slot := context.table.slot_of(node)) is not None]
        stages.append(TargetStage("tried", ~mask_of_slots(context.high, slots), list(sorted(tried))))
    return stages


def _destination(context: DecisionContext) -> list[TargetStage]:
    destination, table = context.request.destination, context.table
    assert destination is not None
    stages = []
    cell = wanted_cell(context.request)
    if cell is not None:
        code = context.columns.cell_code(cell)
        in_cell: BoolArray = context.columns.cell.array[: context.high] == code
        stages.append(TargetStage("cell", in_cell, cell))
    if destination.host is not None:
        slots = table.slots_of_host(destination.host)
        if destination.node:
            slots = tuple(s for s in slots if context.view(s).nodename == destination.node)
        mask = mask_of_slots(context.high, slots)
        asked: list[Leaf] = [destination.host, destination.node]
        stages.append(TargetStage("requested_destination", mask, asked))
    return stages


def wanted_cell(request: Request) -> str | None:
    """The cell to which the request is restricted, even if it is disabled."""
    destination = request.destination
    if destination is None or destination.allow_cross_cell_move:
        return None
    return destination.cell


def _forced_nodes(context: DecisionContext) -> TargetStage:
    nodes = frozenset(context.request.force_nodes)
    mask = context.masks.rows(context.table, ("force_nodes", nodes), lambda: lambda row: row.nodename in nodes)
    return TargetStage("force_nodes", mask, list(sorted(nodes)))


def _slots_of_hosts(context: DecisionContext, hosts: Iterable[str]) -> list[int]:
    """Slots of hosts by name, without regard to case."""
    index = context.masks.index(context.table, "hosts", lambda row: row.host.lower())
    return [slot for host in hosts for slot in index.get(host.lower(), ())]


class OpenStage:
    """The first stage: hosts that are not considered at all.  They are counted by reason, not by one mask."""

    def __init__(self, request: Request) -> None:
        self._cell = wanted_cell(request)

    def mask(self, context: DecisionContext) -> BoolArray:
        """The mask as a new array, which the caller changes."""
        closed = context.columns.closed.array[: context.high]
        mask: BoolArray = closed == 0
        if self._cell is not None:
            mask |= closed == CODE_OF_CLOSED[Exclusion.CELL_DISABLED]
        return mask
