# SPDX-License-Identifier: Apache-2.0
"""The base classes of weighers: raw values, and a multiplier that aggregates may set."""

from __future__ import annotations

from abc import abstractmethod

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.filters.base import least_of, values_of
from shared_scheduler.decision.masks import RowNumber
from shared_scheduler.table.columns import FloatArray, IntArray


class NativeWeigher:
    """One of Nova's weighers over columns.

    ``option`` is the name of the multiplier in the settings and in the metadata of aggregates;
    ``sign`` is -1 if Nova negates it.  Like ``NativeFilter``, it is not an ``ABC``.
    """

    name = ""
    option = ""
    sign = 1.0
    minval: float | None = None
    #: raw values are computed even if the multiplier is 0, because the weigher may refuse the request
    always = False

    def is_constant(self, context: DecisionContext) -> bool:
        """Whether the raw values of all hosts are known to be equal without computing them."""
        return False

    @abstractmethod
    def raw(self, context: DecisionContext, slots: IntArray | None) -> FloatArray | None:
        """Raw weights of ``slots`` (None: of all slots), clamped at ``minval``; None: all equal."""

    def multiplier(self, context: DecisionContext, slots: IntArray | None) -> float | FloatArray:
        """The multiplier: one number, or one for each slot if an aggregate sets it."""
        default = self.configured(context)
        if not context.table.aggregates.has_key(self.metadata_key):
            return self.sign * default
        every = context.masks.numbers_of_kinds(
            context.table,
            ("multiplier", self.name),
            context.columns.host_aggregates,
            lambda: self._of_row(context, default),
        )
        of_slots = every[: context.high] if slots is None else every.take(slots)
        return self.sign * of_slots

    @property
    def metadata_key(self) -> str:
        """The key in the metadata of aggregates."""
        return self.option

    def configured(self, context: DecisionContext) -> float:
        """The value of the option."""
        value: float = getattr(context.settings, self.option)
        return value

    def _of_row(self, context: DecisionContext, default: float) -> RowNumber:
        table, key = context.table, self.metadata_key
        return lambda row: least_of(values_of(table.aggregates.of(row.host), key), default, float)


class ColumnWeigher(NativeWeigher):
    """A weigher whose raw values are a column."""

    column = ""

    def is_constant(self, context: DecisionContext) -> bool:
        return context.columns.is_uniform(self.column)

    def raw(self, context: DecisionContext, slots: IntArray | None) -> FloatArray | None:
        return context.columns.numbers(self.column, slots)
