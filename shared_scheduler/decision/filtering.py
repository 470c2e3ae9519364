# SPDX-License-Identifier: Apache-2.0
"""Applies filters to the survivors, stage by stage, and counts the hosts that each one rejects."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shared_scheduler.decision.context import DecisionContext, ForeignFilter, Stage
from shared_scheduler.decision.filters.base import NativeFilter
from shared_scheduler.decision.masks import mask_of_slots
from shared_scheduler.table.columns import BoolArray
from shared_scheduler.table.host_table import HostTable

#: the reason for a host that a filter rejected for the first instance of the request
FIRST_INSTANCE = "first_instance"


class OncePerRequestFilters:
    """Results of filters that are valid for all instances of one request.

    Nova runs some filters (``run_filter_once_per_request``) for the first instance only.  Hosts that they reject stay
    rejected, and hosts that they pass are not judged again.  Pass the same object to each decision of a request.
    """

    __slots__ = ("dropped", "generation", "passed")

    def __init__(self) -> None:
        self.generation = -1
        self.passed: BoolArray = np.zeros(0, dtype=np.bool_)
        self.dropped: BoolArray = np.zeros(0, dtype=np.bool_)

    def begins(self, table: HostTable) -> bool:
        """Whether this is the first decision, or nodes were added or removed since then."""
        return self.generation != table.membership_generation


class FilterRun:
    """One pass of the filters over the survivors."""

    def __init__(
        self,
        context: DecisionContext,
        mask: BoolArray,
        left: int,
        reasons: dict[str, int],
        narrowing: OncePerRequestFilters | None,
    ) -> None:
        self._context = context
        self._mask = mask
        self.left = left
        self._reasons = reasons
        self._narrowing = narrowing
        self._first = narrowing is None or narrowing.begins(context.table)
        self._dropped: BoolArray | None = None
        if not self._first and narrowing is not None:
            self.left = _narrow(mask, ~narrowing.dropped, left, reasons, FIRST_INSTANCE)

    def filter(self, one: NativeFilter | ForeignFilter) -> None:
        """Run one filter."""
        before = self._mask.copy() if self._narrowing is not None and one.once else None
        passes = self._passes(one)
        if passes is not None:
            code = one.code if isinstance(one, NativeFilter) else one.name
            self.drop(passes, code)
        if before is not None:
            before &= ~self._mask
            self._dropped = before if self._dropped is None else self._dropped | before

    def ask(self, one: ForeignFilter) -> BoolArray:
        """The mask of the remaining hosts that the filter passes; no host is dropped."""
        return _foreign(self._context, one, self._mask, None)

    def drop(self, passes: BoolArray, code: str) -> None:
        """Drop the hosts outside ``passes``, and count them under ``code``."""
        self.left = _narrow(self._mask, passes, self.left, self._reasons, code)

    def _passes(self, one: NativeFilter | ForeignFilter) -> BoolArray | None:
        known = None
        if one.once and not self._first and self._narrowing is not None:
            known = self._narrowing.passed
        if not isinstance(one, NativeFilter):
            return _foreign(self._context, one, self._mask, known)
        if self._context.request.is_rebuild and not one.on_rebuild:
            return None
        passes = one.mask(self._context)
        return passes if passes is None or known is None else passes | known

    def finish(self) -> None:
        """Store the results for the next instances."""
        narrowing = self._narrowing
        if narrowing is None or not self._first:
            return
        narrowing.generation = self._context.table.membership_generation
        narrowing.passed = self._mask.copy()
        none: BoolArray = np.zeros(self._context.high, dtype=np.bool_)
        narrowing.dropped = none if self._dropped is None else self._dropped


def run_stages(
    context: DecisionContext,
    stages: Iterable[Stage],
    mask: BoolArray,
    left: int,
    reasons: dict[str, int],
) -> int:
    """Apply stages to ``mask`` until no host is left; returns how many are left."""
    for stage in stages:
        if not left:
            break
        passes = stage.mask(context)
        if passes is not None:
            left = _narrow(mask, passes, left, reasons, stage.code)
    return left


def _narrow(mask: BoolArray, passes: BoolArray, left: int, reasons: dict[str, int], code: str) -> int:
    np.logical_and(mask, passes, out=mask)
    now = int(np.count_nonzero(mask))
    if now != left:
        reasons[code] = reasons.get(code, 0) + left - now
    return now


def _foreign(context: DecisionContext, one: ForeignFilter, mask: BoolArray, known: BoolArray | None) -> BoolArray:
    """Run the filter on views of the survivors; hosts in ``known`` pass without a run."""
    asked = mask if known is None else mask & ~known
    views = [context.view(slot) for slot in np.flatnonzero(asked).tolist()]
    passing = one.passing(context.request, context.index, views) if views else ()
    passes = mask_of_slots(context.high, (view.slot for view in passing or ()))
    return passes if known is None else passes | known
