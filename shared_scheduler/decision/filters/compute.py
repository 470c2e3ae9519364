# SPDX-License-Identifier: Apache-2.0
"""The filter for the state of nova-compute."""

from __future__ import annotations

from collections.abc import Mapping

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.filters.base import NativeFilter
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.columns import BoolArray
from shared_scheduler.table.host_view import HostView


class ComputeFilter(NativeFilter):
    """The service is enabled, not forced down, and up."""

    code = "ComputeFilter"
    once = True

    def mask(self, context: DecisionContext) -> BoolArray | None:
        if not context.columns.down_count:
            return None
        up: BoolArray = context.columns.up.array[: context.high]
        return up

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        service = view.service
        if service is None:
            return {"service": None}
        return {
            "disabled": service.disabled,
            "disabled_reason": str(service.record.get("disabled_reason") or ""),
            "forced_down": service.forced_down,
            "up": service.up,
        }


class AllHostsFilter(NativeFilter):
    """Every host passes."""

    code = "AllHostsFilter"
    once = True

    def mask(self, context: DecisionContext) -> BoolArray | None:
        return None

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        return {}
