# SPDX-License-Identifier: Apache-2.0
"""The filter for hosts that report the metrics of the metrics weigher."""

from __future__ import annotations

from collections.abc import Mapping

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.filters.base import NativeFilter, listed
from shared_scheduler.decision.host_attributes import metrics_of
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.columns import BoolArray
from shared_scheduler.table.host_view import HostView


class MetricsFilter(NativeFilter):
    """The host reports every metric of ``[metrics] weight_setting``."""

    code = "MetricsFilter"

    def mask(self, context: DecisionContext) -> BoolArray | None:
        names = _wanted(context)
        if not names:
            return None
        return context.masks.rows(
            context.table,
            (self.code, names),
            lambda: lambda row: names <= metrics_of(row.leaves).keys(),
            static=False,
        )

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        return {"missing": listed(_wanted(context) - metrics_of(view.leaves).keys())}


def _wanted(context: DecisionContext) -> frozenset[str]:
    return frozenset(name for name, _ in context.settings.metrics_weight_setting)
