# SPDX-License-Identifier: Apache-2.0
"""The filters that limit instances and I/O operations of a host."""

from __future__ import annotations

from collections.abc import Mapping

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.filters.base import NativeFilter, least_of, values_of
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.columns import BoolArray, FloatArray
from shared_scheduler.table.host_view import HostView


class _Below(NativeFilter):
    """A number of the host is below the limit ``option``; metadata of aggregates with this name may override it."""

    option = ""
    by_aggregate = False

    def mask(self, context: DecisionContext) -> BoolArray | None:
        below: BoolArray = self._column(context) < self._limit(context)
        return below

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        limit: float = self._default(context)
        if self.by_aggregate:
            limit = least_of(values_of(view.aggregates, self.option), limit, int)
        return {self._number: self._of_view(view), self.option: limit}

    def _limit(self, context: DecisionContext) -> float | FloatArray:
        default, option, table = self._default(context), self.option, context.table
        if not self.by_aggregate or not table.aggregates.has_key(option):
            return default
        return context.masks.numbers_of_kinds(
            table,
            ("limit", option),
            table.columns.host_aggregates,
            lambda: lambda row: least_of(values_of(table.aggregates.of(row.host), option), default, int),
        )

    _number = ""

    def _default(self, context: DecisionContext) -> int:
        value: int = getattr(context.settings, self.option)
        return value

    def _column(self, context: DecisionContext) -> FloatArray:
        column: FloatArray = getattr(context.columns, self._number).array[: context.high]
        return column

    def _of_view(self, view: HostView) -> Leaf:
        return 0 if view.numbers is None else getattr(view.numbers, self._number)


class IoOpsFilter(_Below):
    """The host has fewer I/O operations than ``max_io_ops_per_host``."""

    code = "IoOpsFilter"
    option = "max_io_ops_per_host"
    _number = "num_io_ops"


class AggregateIoOpsFilter(IoOpsFilter):
    """The same, with the limit of the host's aggregates."""

    code = "AggregateIoOpsFilter"
    by_aggregate = True


class NumInstancesFilter(_Below):
    """The host has fewer instances than ``max_instances_per_host``."""

    code = "NumInstancesFilter"
    option = "max_instances_per_host"
    _number = "num_instances"


class AggregateNumInstancesFilter(NumInstancesFilter):
    """The same, with the limit of the host's aggregates."""

    code = "AggregateNumInstancesFilter"
    by_aggregate = True
