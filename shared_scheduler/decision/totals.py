# SPDX-License-Identifier: Apache-2.0
"""Weights that outlive a decision.

A host's weight follows from its own numbers and from the smallest and greatest number among the
survivors (the *span* of each weigher).  Between two decisions few hosts change, and the spans mostly
stay: then only the hosts that changed are weighed again, by the same operations in the same order, so
that the bits are those of weighing all (``weigh.py``).

Only where every weigher that has a say reads a column and has one multiplier for all hosts, and where
many hosts survive; otherwise all survivors are weighed as ever.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shared_scheduler.decision.look import Look
from shared_scheduler.decision.weigh import Weigher, normalised, weigh
from shared_scheduler.decision.weighers.base import ColumnWeigher, NativeWeigher
from shared_scheduler.state.columns import FloatArray, IntArray

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


class Totals:
    """The weights of one table's hosts by one list of weighers."""

    def __init__(self, weighers: Sequence[Weigher]) -> None:
        self._weighers = weighers
        self._columns = [one for one in weighers if isinstance(one, ColumnWeigher)]
        rest = [one for one in weighers if not isinstance(one, ColumnWeigher)]
        self._others = [one for one in rest if isinstance(one, NativeWeigher)]
        self._has_foreign = len(self._others) < len(rest)
        self._kept: OrderedDict[Spans, _Kept] = OrderedDict()

    def weigh(self, look: Look, slots: IntArray | None, count: int) -> FloatArray:
        """As ``weigh.weigh``: the weight of each slot; ``slots`` None stands for all ``count``."""
        narrow = count * WIDE_PART < look.high or count < 2
        spans = None if narrow or self._has_more(look) else self._spans(look, slots)
        if spans is None:
            return weigh(look, self._weighers, slots, count)
        every = self._up_to_date(look, spans)
        return every.copy() if slots is None else every.take(slots)

    def _has_more(self, look: Look) -> bool:
        """Whether a weigher has a say that is no column."""
        return self._has_foreign or not all(one.tells_nothing(look) for one in self._others)

    def _spans(self, look: Look, slots: IntArray | None) -> Spans | None:
        """None where a multiplier differs from host to host."""
        spans = []
        for weigher in self._columns:
            if weigher.tells_nothing(look):
                continue
            multiplier = weigher.multiplier(look, slots)
            if not isinstance(multiplier, float):
                return None
            if multiplier != 0:
                raw = look.columns.numbers(weigher.column, slots)
                low = float(raw.min()) if weigher.minval is None else float(weigher.minval)
                spans.append((weigher.column, low, float(raw.max()), multiplier))
        return tuple(spans)

    def _up_to_date(self, look: Look, spans: Spans) -> FloatArray:
        """The weights of all slots.  The array is kept: read only."""
        kept, changes = self._kept.get(spans), look.table.changes
        if kept is None or len(kept.weights) != look.high:
            kept = self._keep(spans, _Kept(_sum(look, spans, None), changes.generation))
        elif kept.generation != changes.generation:
            changed = changes.since(kept.generation)
            if changed is None:
                kept.weights = _sum(look, spans, None)
            else:
                kept.weights[changed] = _sum(look, spans, changed)
            kept.generation = changes.generation
        return kept.weights

    def _keep(self, spans: Spans, kept: _Kept) -> _Kept:
        self._kept[spans] = kept
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return kept


def _sum(look: Look, spans: Spans, slots: IntArray | None) -> FloatArray:
    total: FloatArray | None = None
    for column, low, high, multiplier in spans:
        raw = look.columns.numbers(column, slots)
        score = normalised(raw, low, high, multiplier)
        if score is not None:
            total = score if total is None else np.add(total, score, out=total)
    return np.zeros(look.high if slots is None else len(slots)) if total is None else total
