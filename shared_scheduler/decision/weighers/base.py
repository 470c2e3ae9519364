# SPDX-License-Identifier: Apache-2.0
"""What weighers have in common: raw values, and a multiplier that aggregates may set."""

from __future__ import annotations

from abc import ABC, abstractmethod

from shared_scheduler.decision.filters.base import least_of, values_of
from shared_scheduler.decision.look import Look
from shared_scheduler.decision.masks import RowNumber
from shared_scheduler.state.columns import FloatArray, IntArray


class NativeWeigher(ABC):
    """One of Nova's weighers over columns.

    ``option`` is the multiplier's name, in the settings and in the metadata of aggregates;
    ``sign`` is -1 where Nova negates it.
    """

    name = ""
    option = ""
    sign = 1.0
    minval: float | None = None
    #: raw values are wanted even where the multiplier is 0 (it may refuse the request)
    always = False

    def tells_nothing(self, look: Look) -> bool:
        """Known at once: raw values of all hosts are equal."""
        return False

    @abstractmethod
    def raw(self, look: Look, slots: IntArray | None) -> FloatArray | None:
        """Raw weights of ``slots`` (None: of all slots), clamped at ``minval``; None: all equal."""

    def multiplier(self, look: Look, slots: IntArray | None) -> float | FloatArray:
        """One for all, or one a host where an aggregate sets it."""
        default = self.configured(look)
        if not look.table.aggregates.has_key(self.metadata_key):
            return self.sign * default
        every = look.masks.numbers_of_kinds(
            look.table,
            ("multiplier", self.name),
            look.columns.host_aggregates,
            lambda: self._of_row(look, default),
        )
        of_slots = every[: look.high] if slots is None else every.take(slots)
        return self.sign * of_slots

    @property
    def metadata_key(self) -> str:
        """The key in the metadata of aggregates."""
        return self.option

    def configured(self, look: Look) -> float:
        """The option's value."""
        value: float = getattr(look.settings, self.option)
        return value

    def _of_row(self, look: Look, default: float) -> RowNumber:
        table, key = look.table, self.metadata_key
        return lambda row: least_of(values_of(table.aggregates.of(row.host), key), default, float)


class ColumnWeigher(NativeWeigher):
    """Raw values are a column."""

    column = ""

    def tells_nothing(self, look: Look) -> bool:
        return look.columns.is_uniform(self.column)

    def raw(self, look: Look, slots: IntArray | None) -> FloatArray | None:
        return look.columns.numbers(self.column, slots)
