# SPDX-License-Identifier: Apache-2.0
"""The weighers for soft server groups and for the cell of a move."""

from __future__ import annotations

import numpy as np

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.weighers.base import NativeWeigher
from shared_scheduler.table.columns import FloatArray, IntArray


class _SoftGroupWeigher(NativeWeigher):
    """Weighs by the number of members of the group on the host."""

    policy = ""
    towards = 1

    def is_constant(self, context: DecisionContext) -> bool:
        group = context.request.group
        return group is None or group.policy != self.policy

    def raw(self, context: DecisionContext, slots: IntArray | None) -> FloatArray | None:
        members = context.group_members()
        if members is None:
            return None
        values: FloatArray = self.towards * members
        return values if slots is None else values.take(slots)


class ServerGroupSoftAffinityWeigher(_SoftGroupWeigher):
    """More members are better."""

    name, option = "ServerGroupSoftAffinityWeigher", "soft_affinity_weight_multiplier"
    policy = "soft-affinity"


class ServerGroupSoftAntiAffinityWeigher(_SoftGroupWeigher):
    """Fewer members are better."""

    name, option = "ServerGroupSoftAntiAffinityWeigher", "soft_anti_affinity_weight_multiplier"
    policy, towards = "soft-anti-affinity", -1


class CrossCellWeigher(NativeWeigher):
    """Prefers hosts of the instance's current cell for a move between cells."""

    name, option = "CrossCellWeigher", "cross_cell_move_weight_multiplier"

    def is_constant(self, context: DecisionContext) -> bool:
        return context.request.preferred_cell is None

    def raw(self, context: DecisionContext, slots: IntArray | None) -> FloatArray | None:
        preferred = context.request.preferred_cell
        assert preferred is not None
        cells = context.columns.cell.array[: context.high]
        here = cells == context.columns.cell_code(preferred)
        values: FloatArray = np.where(here, 1.0, -1.0)
        return values if slots is None else values.take(slots)
