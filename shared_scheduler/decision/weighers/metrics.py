# SPDX-License-Identifier: Apache-2.0
"""The weigher for metrics that monitors report."""

from __future__ import annotations

import numpy as np

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.errors import DecisionError
from shared_scheduler.decision.host_attributes import metrics_of
from shared_scheduler.decision.masks import RowNumber
from shared_scheduler.decision.weighers.base import NativeWeigher
from shared_scheduler.table.columns import FloatArray, IntArray
from shared_scheduler.table.row import Row

#: the value in the column if a metric of the setting is missing
MISSING = float("nan")


class MetricsWeigher(NativeWeigher):
    """The sum of value * ratio over ``[metrics] weight_setting``.

    As in Nova, a missing metric fails the request if ``[metrics] required`` is set.  Otherwise the host gets
    ``weight_of_unavailable``, unless the metric cannot matter because a factor is 0.
    """

    name, option = "MetricsWeigher", "metrics_weight_multiplier"
    always = True

    def is_constant(self, context: DecisionContext) -> bool:
        return not context.settings.metrics_weight_setting

    def raw(self, context: DecisionContext, slots: IntArray | None) -> FloatArray | None:
        settings = context.settings
        key = (self.name, settings.metrics_weight_setting)
        every = context.masks.numbers(context.table, key, lambda: self._sum(context), static=False)
        values = every[: context.high] if slots is None else every.take(slots)
        missing = np.isnan(values)
        if not missing.any():
            return values
        if settings.metrics_required:
            raise DecisionError(self._complaint(context, slots, int(np.argmax(missing))))
        return np.where(missing, settings.metrics_weight_of_unavailable, values)

    def _sum(self, context: DecisionContext) -> RowNumber:
        settings = context.settings

        def value(row: Row) -> float:
            metrics, total = metrics_of(row.leaves), 0.0
            for name, ratio in settings.metrics_weight_setting:
                if name in metrics:
                    total += metrics[name] * ratio
                elif settings.metrics_required or ratio * multiplier(row) != 0:
                    return MISSING
            return total

        multiplier = self._of_row(context, self.configured(context))
        return value

    @staticmethod
    def _complaint(context: DecisionContext, slots: IntArray | None, position: int) -> str:
        slot = position if slots is None else int(slots[position])
        view = context.view(slot)
        names = [name for name, _ in context.settings.metrics_weight_setting]
        missing = sorted(set(names) - metrics_of(view.leaves).keys())
        return (
            f"host {view.host} ({view.nodename}) reports no metric {', '.join(missing)}: enable its "
            "monitor there, or MetricsFilter, or set [metrics] required to false"
        )
