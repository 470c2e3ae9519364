# SPDX-License-Identifier: Apache-2.0
"""The weigher for soft constraints of spreading, which Nova does not have."""

from __future__ import annotations

import numpy as np

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.request import SpreadMode
from shared_scheduler.decision.spreading import Counted, constraints_of, count, places_of
from shared_scheduler.decision.weighers.base import NativeWeigher
from shared_scheduler.table.columns import FloatArray, IntArray


class SpreadWeigher(NativeWeigher):
    """A smaller skew is better; ``decision/spreading.py`` has the semantics.  Several constraints are added."""

    name, option = "SpreadWeigher", "spread_weight_multiplier"

    def is_constant(self, context: DecisionContext) -> bool:
        return not constraints_of(context, SpreadMode.SOFT)

    def raw(self, context: DecisionContext, slots: IntArray | None) -> FloatArray | None:
        total: FloatArray = np.zeros(context.high)
        for counted in count(context, constraints_of(context, SpreadMode.SOFT), places_of(context)):
            total -= _excess(counted).take(counted.domains)
        return total if slots is None else total.take(slots)


def _excess(counted: Counted) -> IntArray:
    """By domain, the skew above ``max_skew``; domains without an eligible host have the largest one."""
    excess: IntArray = np.maximum(counted.skews() - counted.constraint.max_skew, 0)
    of_eligible = excess.take(counted.eligible)
    found: IntArray = np.full(len(excess), of_eligible.max(initial=0))
    found[counted.eligible] = of_eligible
    return found
