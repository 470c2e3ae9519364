# SPDX-License-Identifier: Apache-2.0
"""Nova's debug lines of weights, by host: raw, normalised, and with their multiplier.

Operators know these lines of ``nova/weights.py`` from finding the reason of a weight.  They are written when
its logger is at DEBUG.  The values are those of our decision: native weighers compute them again for the
hosts that passed, and site weighers log when they are called.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import numpy as np
from nova import weights

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.filtering import OncePerRequestFilters
from shared_scheduler.decision.outcome import Decision
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import Request
from shared_scheduler.decision.weighers.base import ColumnWeigher, NativeWeigher
from shared_scheduler.table.columns import IntArray
from shared_scheduler.table.host_view import HostView

#: For more hosts no lines are written, because they would take longer than the decision.  ``why`` shows any host.
HOSTS_MAX = 1000


def is_wanted(hosts: int) -> bool:
    """Whether the weights of so many hosts are logged; a single host is not weighed."""
    return 1 < hosts <= HOSTS_MAX and bool(weights.LOG.isEnabledFor(logging.DEBUG))


def log_weights(
    weigher: str,
    views: Sequence[HostView],
    raw: Sequence[float],
    multipliers: Sequence[float],
    minval: float | None = None,
    maxval: float | None = None,
) -> None:
    """Log one weigher's three lines with Nova's wording."""
    names = [(view.host, view.nodename) for view in views]
    normal = list(weights.normalize(list(raw), minval=minval, maxval=maxval))
    scores = [f"{by} * {each}" for by, each in zip(multipliers, normal, strict=True)]
    told = {
        "%s: raw weights %s": raw,
        "%s: normalized weights %s": normal,
        "%s: score (multiplier * weight) %s": scores,
    }
    for line, values in told.items():
        weights.LOG.debug(line, weigher, dict(zip(names, values, strict=True)))


class LoggingDecider(Decider):
    """A Decider that also logs the weights of the hosts that passed."""

    def decide(
        self,
        request: Request,
        index: int = 0,
        excluded: Iterable[str] = (),
        narrowing: OncePerRequestFilters | None = None,
        natives: bool = True,
    ) -> Decision:
        """See ``Decider``."""
        decision = super().decide(request, index, excluded, narrowing, natives)
        if is_wanted(decision.survivors):
            self._log(self.context(request, index), decision)
        return decision

    def _log(self, context: DecisionContext, decision: Decision) -> None:
        slots = np.array([context.table.slot_of(node) for node in decision.weights()])
        views = [context.view(slot) for slot in slots.tolist()]
        for weigher in self.weighers:
            if isinstance(weigher, NativeWeigher):
                raw, multiplier = _raw(context, weigher, slots), weigher.multiplier(context, slots)
                multipliers = np.broadcast_to(multiplier, len(slots)).tolist()
                log_weights(weigher.name, views, raw, multipliers, weigher.minval)


def _raw(context: DecisionContext, weigher: NativeWeigher, slots: IntArray) -> list[float]:
    """Raw weights.  A weigher that does not distinguish the hosts has 0 for all, as in Nova."""
    is_asked = isinstance(weigher, ColumnWeigher) or not weigher.is_constant(context)
    raw = weigher.raw(context, slots) if is_asked else None
    values: list[float] = [0.0] * len(slots) if raw is None else raw.tolist()
    return values
