# SPDX-License-Identifier: Apache-2.0
"""The filters for server groups with the policies affinity and anti-affinity."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.filters.base import NativeFilter, listed
from shared_scheduler.decision.masks import mask_of_slots
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.columns import BoolArray
from shared_scheduler.table.host_view import HostView


class ServerGroupAntiAffinityFilter(NativeFilter):
    """Fewer than ``max_server_per_host`` other members are on the host, or the instance itself is built on it.

    A claim of the instance there may be an earlier one, which was given up."""

    code = "ServerGroupAntiAffinityFilter"

    def mask(self, context: DecisionContext) -> BoolArray | None:
        group = context.request.group
        if group is None or group.policy != "anti-affinity":
            return None
        counts = context.table.members_at(group.members - {context.instance_uuid})
        full = [slot for slot, count in counts.items() if count >= group.max_server_per_host]
        if group.max_server_per_host > 0 and not full:
            return None
        mask: BoolArray = np.full(context.high, group.max_server_per_host > 0, dtype=np.bool_)
        mask[full] = False
        mask[list(context.table.slots_where_built(context.instance_uuid))] = True
        return mask

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        group = context.request.group
        members = group.members if group else frozenset()
        return {
            "members_on_host": listed(view.instances & members),
            "max_server_per_host": group.max_server_per_host if group else 0,
        }


class ServerGroupAffinityFilter(NativeFilter):
    """Members are on this host, or on no host."""

    code = "ServerGroupAffinityFilter"

    def mask(self, context: DecisionContext) -> BoolArray | None:
        group = context.request.group
        if group is None or group.policy != "affinity" or not group.hosts:
            return None
        table = context.table
        return mask_of_slots(context.high, (slot for host in group.hosts for slot in table.slots_of_host(host)))

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        group = context.request.group
        return {"group_hosts": listed(group.hosts if group else frozenset())}
