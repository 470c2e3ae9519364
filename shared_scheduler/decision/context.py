# SPDX-License-Identifier: Apache-2.0
"""The context of one decision: the table, one instance of one request, and data that stages and weighers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.masks import MaskCache
from shared_scheduler.decision.request import Request
from shared_scheduler.decision.topology_request import TopologyAsk, topology_ask
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.columns import BoolArray, FloatArray
from shared_scheduler.table.host_columns import HostColumns
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.host_view import HostView


class DecisionContext:
    """The table as it is now, and the request.  ``high`` is the length of every mask."""

    __slots__ = (
        "_ask",
        "_views",
        "columns",
        "high",
        "index",
        "masks",
        "request",
        "selecting",
        "settings",
        "table",
    )

    def __init__(
        self,
        table: HostTable,
        request: Request,
        index: int,
        settings: DecisionSettings,
        masks: MaskCache,
        selecting: Sequence[Stage] = (),
    ) -> None:
        """``selecting``: the enabled filters with ``NativeFilter.selects``."""
        self.table = table
        self.columns: HostColumns = table.columns
        self.high = table.columns.high
        self.request = request
        self.index = index
        self.settings = settings
        self.masks = masks
        self.selecting = selecting
        self._views: dict[int, HostView] = {}
        self._ask: TopologyAsk | None = None

    @property
    def ask(self) -> TopologyAsk:
        """NUMA and PCI of the request."""
        if self._ask is None:
            self._ask = self.masks.parsed(self.request.topology, topology_ask)
        return self._ask

    @property
    def instance_uuid(self) -> str:
        """The instance of this decision; empty if the caller named none."""
        uuids = self.request.instance_uuids
        return uuids[self.index] if self.index < len(uuids) else ""

    def group_members(self) -> FloatArray | None:
        """The number of members of the request's group on the host of each slot; None if there are none.

        As in Nova, the instance itself counts where nova-compute has it, but a claim of it that has failed does not."""
        group = self.request.group
        own = self.instance_uuid
        counts = {} if group is None else self.table.members_at(group.members - {own})
        for slot in self.table.slots_where_built(own) if group is not None and own in group.members else ():
            counts[slot] = counts.get(slot, 0) + 1
        if not counts:
            return None
        members: FloatArray = np.zeros(self.high)
        members[list(counts)] = list(counts.values())
        return members

    def view(self, slot: int) -> HostView:
        """The view of one host, created once for each decision."""
        found = self._views.get(slot)
        if found is None:
            found = self._views[slot] = self.table.view_at(slot)
        return found


class Stage(Protocol):
    """A step of a decision that rejects hosts."""

    #: the reason under which rejected hosts are counted
    code: str

    def mask(self, context: DecisionContext) -> BoolArray | None:
        """The mask of the slots that pass; None: all.  The array may be cached: do not change it."""

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        """The values that were compared, for a host that did not pass."""


class ForeignFilter(Protocol):
    """A filter that is not native (a plug-in of a site), run on views of the survivors."""

    name: str
    once: bool

    def passing(self, request: Request, index: int, views: Sequence[HostView]) -> Sequence[HostView] | None:
        """The hosts that pass, in any order; None ends the decision without a host (``filter_all``)."""


class ForeignWeigher(Protocol):
    """A weigher that is not native (a plug-in of a site), run on views of the survivors."""

    name: str
    minval: float | None
    maxval: float | None

    def weigh(self, request: Request, views: Sequence[HostView]) -> Sequence[float]:
        """Raw weights, clamped, as Nova's ``weigh_objects`` returns them."""

    def multipliers(self, views: Sequence[HostView]) -> Sequence[float]:
        """``weight_multiplier`` of each host."""
