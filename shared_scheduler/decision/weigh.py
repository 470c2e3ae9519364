# SPDX-License-Identifier: Apache-2.0
"""Weights of the survivors, by Nova's arithmetic (nova/weights.py).

The raw values of each weigher are clamped, normalised to 0..1 (from its ``minval`` if it has one, otherwise from the
smallest survivor; 0 if all are equal), multiplied, and added in the order of the weighers, in doubles.  The operations
and their order are Nova's, so the bits of the results are equal.  A single survivor is not weighed.

``WeightCache`` keeps weights from one decision to the next.  The weight of a host follows from its own numbers and from
the smallest and the largest number among the survivors (the *span* of each weigher).  Between two decisions few hosts
change, and the spans usually stay equal; then only the changed hosts are weighed again, by the same operations in the
same order.  The cache is used only if each weigher that has an effect reads a column and has one multiplier for all
hosts, and if many hosts survive; otherwise all survivors are weighed.  Weighers behind the last column are added to the
cached weights, because they are added last in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from cachetools import FIFOCache

from shared_scheduler.decision.context import DecisionContext, ForeignWeigher
from shared_scheduler.decision.weighers.base import ColumnWeigher, NativeWeigher
from shared_scheduler.table.columns import FloatArray, IntArray

Weigher = NativeWeigher | ForeignWeigher


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of the survivors, in their order.

    ``shares_at`` gives the share of each weigher that distinguishes hosts, by its name, for the survivors at some
    positions.  It is valid until the table changes.
    """

    total: FloatArray
    shares_at: Callable[[IntArray], dict[str, FloatArray]]


def weigh(context: DecisionContext, weighers: Sequence[Weigher], slots: IntArray | None, count: int) -> Weights:
    """Weigh each slot; ``slots`` None means all ``count`` slots."""
    shares = dict(scores(context, weighers, slots)) if count > 1 else {}
    total: FloatArray | None = None
    for share in shares.values():
        total = share.copy() if total is None else np.add(total, share, out=total)
    return Weights(
        np.zeros(count) if total is None else total,
        lambda positions: {name: share.take(positions) for name, share in shares.items()},
    )


def scores(
    context: DecisionContext, weighers: Sequence[Weigher], slots: IntArray | None
) -> Iterator[tuple[str, FloatArray]]:
    """The name and the share (a new array) of each weigher that is not constant over the hosts."""
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


def normalised(raw: FloatArray, low: float, high: float, multiplier: float | FloatArray) -> FloatArray | None:
    """The share of a weigher in the weights, as a new array; None if it is equal for all hosts."""
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


#: sets of spans whose weights are kept; each takes 8 bytes per host
KEPT_MAX = 16
#: if fewer than one host in this many survives, it is cheaper to weigh only the survivors
WIDE_PART = 4

#: (name, column, smallest, greatest, multiplier) of each weigher that has an effect, in their order
Spans = tuple[tuple[str, str, float, float, float], ...]


@dataclass(slots=True)
class _Kept:
    weights: FloatArray
    generation: int


class WeightCache:
    """The weights of one table's hosts by one list of weighers."""

    def __init__(self, weighers: Sequence[Weigher]) -> None:
        self._weighers = weighers
        self._columns = [one for one in weighers if isinstance(one, ColumnWeigher)]
        backwards = takewhile(lambda one: isinstance(one, NativeWeigher), reversed(weighers))
        self._last = list(takewhile(lambda one: not isinstance(one, ColumnWeigher), backwards))[::-1]
        rest = [one for one in weighers if not isinstance(one, ColumnWeigher) and one not in self._last]
        self._others = [one for one in rest if isinstance(one, NativeWeigher)]
        self._has_foreign = len(self._others) < len(rest)
        self._kept: FIFOCache[Spans, _Kept] = FIFOCache(KEPT_MAX)

    def weigh(self, context: DecisionContext, slots: IntArray | None, count: int) -> Weights:
        """Like ``weigh.weigh``; ``slots`` None means all ``count`` slots."""
        narrow = count * WIDE_PART < context.high or count < 2
        spans = None if narrow or self._has_more(context) else self._spans(context, slots)
        if spans is None:
            return weigh(context, self._weighers, slots, count)
        every = self._up_to_date(context, spans)
        total = every.copy() if slots is None else every.take(slots)
        last = dict(scores(context, self._last, slots))
        for share in last.values():
            total += share

        def shares_at(positions: IntArray) -> dict[str, FloatArray]:
            at = positions if slots is None else slots.take(positions)
            behind = {name: share.take(positions) for name, share in last.items()}
            return dict(_shares(context, spans, at)) | behind

        return Weights(total, shares_at)

    def _has_more(self, context: DecisionContext) -> bool:
        """Whether a weigher that is neither a column nor behind the last column has an effect."""
        return self._has_foreign or not all(one.is_constant(context) for one in self._others)

    def _spans(self, context: DecisionContext, slots: IntArray | None) -> Spans | None:
        """The spans of the weighers; None if a multiplier differs between hosts."""
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
                high = float(raw[raw.argmax()])  # the same as max(), in two thirds of its time
                spans.append((weigher.name, weigher.column, low, high, multiplier))
        return tuple(spans)

    def _up_to_date(self, context: DecisionContext, spans: Spans) -> FloatArray:
        """The weights of all slots.  The array is cached: do not change it."""
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


def _shares(context: DecisionContext, spans: Spans, slots: IntArray | None) -> Iterator[tuple[str, FloatArray]]:
    for name, column, low, high, multiplier in spans:
        share = normalised(context.columns.numbers(column, slots), low, high, multiplier)
        if share is not None:
            yield name, share


def _sum(context: DecisionContext, spans: Spans, slots: IntArray | None) -> FloatArray:
    total: FloatArray | None = None
    for _, share in _shares(context, spans, slots):
        total = share if total is None else np.add(total, share, out=total)
    return np.zeros(context.high if slots is None else len(slots)) if total is None else total
