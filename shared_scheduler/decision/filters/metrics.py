# SPDX-License-Identifier: Apache-2.0
"""The metrics that the metrics weigher wants are there."""

from __future__ import annotations

from collections.abc import Mapping

from shared_scheduler.decision.filters.base import NativeFilter, listed
from shared_scheduler.decision.look import Look
from shared_scheduler.decision.metrics import metrics_of
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.state.columns import BoolArray
from shared_scheduler.state.view import HostView


class MetricsFilter(NativeFilter):
    """Every metric of ``[metrics] weight_setting`` is reported."""

    code = "MetricsFilter"

    def mask(self, look: Look) -> BoolArray | None:
        names = _wanted(look)
        if not names:
            return None
        return look.masks.rows(
            look.table,
            (self.code, names),
            lambda: lambda row: names <= metrics_of(row.leaves).keys(),
            static=False,
        )

    def detail(self, look: Look, view: HostView) -> Mapping[str, Leaf]:
        return {"missing": listed(_wanted(look) - metrics_of(view.leaves).keys())}


def _wanted(look: Look) -> frozenset[str]:
    return frozenset(name for name, _ in look.settings.metrics_weight_setting)
