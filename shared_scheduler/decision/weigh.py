# SPDX-License-Identifier: Apache-2.0
"""Weights of the survivors, by Nova's arithmetic (nova/weights.py).

Each weigher's raw values are clamped, normalised to 0..1 (from ``minval`` where it has one, else from
the smallest survivor; all equal: 0), multiplied, and added in the order of the weighers, in doubles:
the same operations in the same order give the same bits.  A single survivor is not weighed at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from shared_scheduler.decision.look import ForeignWeigher, Look
from shared_scheduler.decision.weighers.base import NativeWeigher
from shared_scheduler.state.columns import FloatArray, IntArray

Weigher = NativeWeigher | ForeignWeigher


def weigh(
    look: Look, weighers: Sequence[Weigher], slots: IntArray | None, count: int
) -> FloatArray:
    """The weight of each slot; ``slots`` None stands for all ``count`` of them."""
    total: FloatArray | None = None
    if count > 1:
        for _, score in scores(look, weighers, slots):
            total = score if total is None else np.add(total, score, out=total)
    return np.zeros(count) if total is None else total


def scores(
    look: Look, weighers: Sequence[Weigher], slots: IntArray | None
) -> Iterator[tuple[str, FloatArray]]:
    """Name and share (a new array) of each weigher that tells hosts apart."""
    for weigher in weighers:
        if isinstance(weigher, NativeWeigher):
            score = _native(look, weigher, slots)
        else:
            score = _foreign(look, weigher, slots)
        if score is not None:
            yield weigher.name, score


def _native(look: Look, weigher: NativeWeigher, slots: IntArray | None) -> FloatArray | None:
    if weigher.tells_nothing(look):
        return None
    multiplier = weigher.multiplier(look, slots)
    nothing = isinstance(multiplier, float) and multiplier == 0
    if nothing and not weigher.always:
        return None
    raw = weigher.raw(look, slots)
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


def _foreign(look: Look, weigher: ForeignWeigher, slots: IntArray | None) -> FloatArray | None:
    every = range(look.high) if slots is None else slots.tolist()
    views = [look.view(slot) for slot in every]
    raw = np.array(weigher.weigh(look.request, views), dtype=np.float64)
    low = float(raw.min()) if weigher.minval is None else float(weigher.minval)
    high = float(raw.max()) if weigher.maxval is None else float(weigher.maxval)
    multipliers = np.array(weigher.multipliers(views), dtype=np.float64)
    return normalised(raw, low, high, multipliers)
