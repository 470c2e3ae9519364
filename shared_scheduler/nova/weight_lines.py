# SPDX-License-Identifier: Apache-2.0
"""Nova's debug lines of weights, by host: raw, normalised, and with their multiplier.

Operators who look for the reason of a weight know these lines of ``nova/weights.py``.  They are written
where its logger is at debug, and cost a look at its level elsewhere.  Values are what we decide with:
native weighers are asked again for the hosts that passed, those of a site tell as they are asked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import numpy as np
from nova import weights

from shared_scheduler.decision.filtering import Narrowing
from shared_scheduler.decision.look import Look
from shared_scheduler.decision.outcome import Decision
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import Request
from shared_scheduler.decision.weighers.base import ColumnWeigher, NativeWeigher
from shared_scheduler.state.columns import IntArray
from shared_scheduler.state.view import HostView

#: With more, a decision would take as long as the lines, and nobody reads them: ``why`` tells of any host.
HOSTS_MAX = 1000


def is_wanted(hosts: int) -> bool:
    """Whether the weights of so many hosts are told; a single one is not weighed."""
    return 1 < hosts <= HOSTS_MAX and bool(weights.LOG.isEnabledFor(logging.DEBUG))


def tell(
    weigher: str,
    views: Sequence[HostView],
    raw: Sequence[float],
    multipliers: Sequence[float],
    minval: float | None = None,
    maxval: float | None = None,
) -> None:
    """One weigher's three lines, word for word Nova's."""
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


class TellingDecider(Decider):
    """Decides, and tells how the hosts that passed were weighed."""

    def decide(
        self,
        request: Request,
        index: int = 0,
        excluded: Iterable[str] = (),
        narrowing: Narrowing | None = None,
        natives: bool = True,
    ) -> Decision:
        """See ``Decider``."""
        decision = super().decide(request, index, excluded, narrowing, natives)
        if is_wanted(decision.survivors):
            self._tell(self.look(request, index), decision)
        return decision

    def _tell(self, look: Look, decision: Decision) -> None:
        slots = np.array([look.table.slot_of(node) for node in decision.weights()])
        views = [look.view(slot) for slot in slots.tolist()]
        for weigher in self.weighers:
            if isinstance(weigher, NativeWeigher):
                raw, multiplier = _raw(look, weigher, slots), weigher.multiplier(look, slots)
                multipliers = np.broadcast_to(multiplier, len(slots)).tolist()
                tell(weigher.name, views, raw, multipliers, weigher.minval)


def _raw(look: Look, weigher: NativeWeigher, slots: IntArray) -> list[float]:
    """Those that have nothing to say, or the same of all, say 0 in Nova too; a column has its number."""
    is_asked = isinstance(weigher, ColumnWeigher) or not weigher.tells_nothing(look)
    raw = weigher.raw(look, slots) if is_asked else None
    values: list[float] = [0.0] * len(slots) if raw is None else raw.tolist()
    return values
