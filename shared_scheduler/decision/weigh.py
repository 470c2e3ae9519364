# SPDX-License-Identifier: Apache-2.0
"""Weights of the survivors, by Nova's arithmetic (nova/weights.py).

Each weigher's raw values are clamped, normalised to 0..1 (from ``minval`` where it has one, else from
the smallest survivor; all equal: 0), multiplied, and added in the order of the weighers, in doubles:
the same operations in the same order give the same bits.  A single survivor is not weighed at all.

``WeightCache`` keeps weights from one decision to the next.  The weight of a host follows from its own numbers and
from the smallest and the largest number among the survivors (the *span* of each weigher).  Between two decisions
few hosts change, and the spans mostly stay: then only the hosts that changed are weighed again, by the same
operations in the same order.  The cache serves only where each weigher that has an effect reads a column and has
one multiplier for all hosts, and where many hosts survive; otherwise all survivors are weighed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from cachetools import FIFOCache

from shared_scheduler.decision.context import DecisionContext, ForeignWeigher
from shared_scheduler.decision.weighers.base import ColumnWeigher, NativeWeigher
from shared_scheduler.table.columns import FloatArray, IntArray

Weigher = NativeWeigher | ForeignWeigher


def weigh(
    context: DecisionContext, weighers: Sequence[Weigher], slots: IntArray | None, count: int
) -> FloatArray:
    """The weight of each slot; ``slots`` None stands for all ``count`` of them."""
    total: FloatArray | None = None
    if count > 1:
        for _, score in scores(context, weighers, slots):
            total = score if total is None else np.add(total, score, out=total)
    return np.zeros(count) if total is None else total


def scores(
    context: DecisionContext, weighers: Sequence[Weigher], slots: IntArray | None
) -> Iterator[tuple[str, FloatArray]]:
    """Name and share (a new array) of each weigher that is not constant over the hosts."""
    for weigher in weighers:
        if isinstance(weigher, NativeWeigher):
            score = _native(context, weigher, slots)
        else:
            score = _foreign(context, weigher, slots)
        if score is not None:
            yield weigher.name, score


def _native(context: DecisionContext, weigher: NativeWeigher, slots: IntArray | None) -> FloatArray | None:
    if weigher.is_constant(context):
        return None
    multiplier = weigher.multiplier(context, slots)
    nothing = isinstance(multiplier, float) and multiplier == 0
    if nothing and not weigher.always:
        return None
    raw = weigher.raw(context, slots)
    if raw is None or nothing:
        return None
    low = float(raw.min()) if weigher.minval is None else weigher.minval
    return normalised(raw, low, float(raw.max()), multiplier)


def normalised(
    raw: FloatArray, low: float, high: float, multiplier: float | FloatArray
) -> FloatArray | None:
    """A weigher's share of the weights, a new array; None where all hosts are equal to it."""
    if low == high:
        return None
    share: FloatArray = raw / high if low == 0 else (raw - low) / (high - low)
    if not isinstance(multiplier, float) or multiplier != 1:
        share *= multiplier
    return share


def _foreign(context: DecisionContext, weigher: ForeignWeigher, slots: IntArray | None) -> FloatArray | None:
    every = range(context.high) if slots is None else slots.tolist()
    views = [context.view(slot) for slot in every]
    raw = np.array(weigher.weigh(context.request, views), dtype=np.float64)
    low = float(raw.min()) if weigher.minval is None else float(weigher.minval)
    high = float(raw.max()) if weigher.maxval is None else float(weigher.maxval)
    multipliers = np.array(weigher.multipliers(views), dtype=np.float64)
    return normalised(raw, low, high, multipliers)


#: sets of spans whose weights are kept; 8 bytes a host each
KEPT_MAX = 16
#: with fewer survivors than one host in so many, weighing just them is cheaper
WIDE_PART = 4

#: (column, smallest, greatest, multiplier) of each weigher that has a say, in their order
Spans = tuple[tuple[str, float, float, float], ...]


@dataclass(slots=True)
class _Kept:
    weights: FloatArray
    generation: int


class WeightCache:
    """The weights of one table's hosts by one list of weighers."""

    def __init__(self, weighers: Sequence[Weigher]) -> None:
        self._weighers = weighers
        self._columns = [one for one in weighers if isinstance(one, ColumnWeigher)]
        rest = [one for one in weighers if not isinstance(one, ColumnWeigher)]
        self._others = [one for one in rest if isinstance(one, NativeWeigher)]
        self._has_foreign = len(self._others) < len(rest)
        self._kept: FIFOCache[Spans, _Kept] = FIFOCache(KEPT_MAX)

    def weigh(self, context: DecisionContext, slots: IntArray | None, count: int) -> FloatArray:
        """As ``weigh.weigh``: the weight of each slot; ``slots`` None stands for all ``count``."""
        narrow = count * WIDE_PART < context.high or count < 2
        spans = None if narrow or self._has_more(context) else self._spans(context, slots)
        if spans is None:
            return weigh(context, self._weighers, slots, count)
        every = self._up_to_date(context, spans)
        return every.copy() if slots is None else every.take(slots)

    def _has_more(self, context: DecisionContext) -> bool:
        """Whether a weigher has a say that is no column."""
        return self._has_foreign or not all(one.is_constant(context) for one in self._others)

    def _spans(self, context: DecisionContext, slots: IntArray | None) -> Spans | None:
        """None where a multiplier differs from host to host."""
        spans = []
        for weigher in self._columns:
            if weigher.is_constant(context):
                continue
            multiplier = weigher.multiplier(context, slots)
            if not isinstance(multiplier, float):
                return None
            if multiplier != 0:
                raw = context.columns.numbers(weigher.column, slots)
                low = float(raw.min()) if weigher.minval is None else float(weigher.minval)
                spans.append((weigher.column, low, float(raw.max()), multiplier))
        return tuple(spans)

    def _up_to_date(self, context: DecisionContext, spans: Spans) -> FloatArray:
        """The weights of all slots.  The array is kept: read only."""
        kept, changes = self._kept.get(spans), context.table.changes
        if kept is None or len(kept.weights) != context.high:
            kept = self._kept[spans] = _Kept(_sum(context, spans, None), changes.generation)
        elif kept.generation != changes.generation:
            changed = changes.since(kept.generation)
            if changed is None:
                kept.weights = _sum(context, spans, None)
            else:
                kept.weights[changed] = _sum(context, spans, changed)
            kept.generation = changes.generation
        return kept.weights


def _sum(context: DecisionContext, spans: Spans, slots: IntArray | None) -> FloatArray:
    total: FloatArray | None = None
    for column, low, high, multiplier in spans:
        raw = context.columns.numbers(column, slots)
        score = normalised(raw, low, high, multiplier)
        if score is not None:
            total = score if total is None else np.add(total, score, out=total)
    return np.zeros(context.high if slots is None else len(slots)) if total is None else total
