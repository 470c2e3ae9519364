# SPDX-License-Identifier: Apache-2.0
"""Narrows survivors down, stage by stage, and counts who fell to what."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shared_scheduler.decision.filters.base import NativeFilter
from shared_scheduler.decision.look import ForeignFilter, Look, Stage
from shared_scheduler.decision.masks import mask_of_slots
from shared_scheduler.state.columns import BoolArray
from shared_scheduler.state.table import HostTable

#: what a host fell to that a filter dropped for the first instance of the request
FIRST_INSTANCE = "first_instance"


class Narrowing:
    """What must be remembered between the instances of one request.

    Nova runs some filters (``run_filter_once_per_request``) for the first instance only: what they
    dropped stays dropped, what they let pass is not asked again.  Pass the same object to each
    decision of a request.
    """

    __slots__ = ("dropped", "generation", "passed")

    def __init__(self) -> None:
        self.generation = -1
        self.passed: BoolArray = np.zeros(0, dtype=np.bool_)
        self.dropped: BoolArray = np.zeros(0, dtype=np.bool_)

    def begins(self, table: HostTable) -> bool:
        """Whether this is the first decision, or nodes came or went since it."""
        return self.generation != table.membership_generation


class FilterRun:
    """One pass of the filters over the survivors."""

    def __init__(
        self,
        look: Look,
        mask: BoolArray,
        left: int,
        reasons: dict[str, int],
        narrowing: Narrowing | None,
    ) -> None:
        self._look = look
        self._mask = mask
        self.left = left
        self._reasons = reasons
        self._narrowing = narrowing
        self._first = narrowing is None or narrowing.begins(look.table)
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
        """Whom it would let pass of those that are left; nobody is dropped."""
        return _foreign(self._look, one, self._mask, None)

    def drop(self, passes: BoolArray, code: str) -> None:
        """Drop all others."""
        self.left = _narrow(self._mask, passes, self.left, self._reasons, code)

    def _passes(self, one: NativeFilter | ForeignFilter) -> BoolArray | None:
        known = None
        if one.once and not self._first and self._narrowing is not None:
            known = self._narrowing.passed
        if not isinstance(one, NativeFilter):
            return _foreign(self._look, one, self._mask, known)
        if self._look.request.is_rebuild and not one.on_rebuild:
            return None
        passes = one.mask(self._look)
        return passes if passes is None or known is None else passes | known

    def finish(self) -> None:
        """Remember for the next instances."""
        narrowing = self._narrowing
        if narrowing is None or not self._first:
            return
        narrowing.generation = self._look.table.membership_generation
        narrowing.passed = self._mask.copy()
        nobody: BoolArray = np.zeros(self._look.high, dtype=np.bool_)
        narrowing.dropped = nobody if self._dropped is None else self._dropped


def run_stages(
    look: Look,
    stages: Iterable[Stage],
    mask: BoolArray,
    left: int,
    reasons: dict[str, int],
) -> int:
    """Narrow ``mask`` down by stages until nobody is left; returns how many are."""
    for stage in stages:
        if not left:
            break
        passes = stage.mask(look)
        if passes is not None:
            left = _narrow(mask, passes, left, reasons, stage.code)
    return left


def _narrow(
    mask: BoolArray, passes: BoolArray, left: int, reasons: dict[str, int], code: str
) -> int:
    np.logical_and(mask, passes, out=mask)
    now = int(np.count_nonzero(mask))
    if now != left:
        reasons[code] = reasons.get(code, 0) + left - now
    return now


def _foreign(
    look: Look, one: ForeignFilter, mask: BoolArray, known: BoolArray | None
) -> BoolArray:
    """Run it on views of the survivors, but those of ``known`` pass unasked."""
    asked = mask if known is None else mask & ~known
    views = [look.view(slot) for slot in np.flatnonzero(asked).tolist()]
    passing = one.passing(look.request, look.index, views) if views else ()
    passes = mask_of_slots(look.high, (view.slot for view in passing or ()))
    return passes if known is None else passes | known
