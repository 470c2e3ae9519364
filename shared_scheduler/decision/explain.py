# SPDX-License-Identifier: Apache-2.0
"""Why not this host?  For each host the first stage that it fell to, with the numbers compared.

A decision only counts; this looks at every host again, so it is asked for, not kept.  Foreign filters
are not run here: hosts that only they would drop are shown as passing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from shared_scheduler.decision.look import Look
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import Request
from shared_scheduler.decision.targets import OpenStage
from shared_scheduler.decision.weigh import scores
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.state.columns import BoolArray
from shared_scheduler.state.row import CLOSED_CODES, Row


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """One host.  ``code`` is empty where it passes; then ``weights`` tells each weigher's share."""

    node: str
    host: str
    code: str = ""
    detail: Mapping[str, Leaf] = field(default_factory=dict)
    weight: float = 0.0
    weights: Mapping[str, float] = field(default_factory=dict)


def explain(
    decider: Decider, request: Request, index: int = 0, excluded: Iterable[str] = ()
) -> list[HostAnswer]:
    """Every host: those that pass first, by weight; then the others by host name."""
    look = decider.look(request, index)
    mask = OpenStage(request).mask(look)
    found = [_closed(look, row) for row in look.table.rows() if not mask[row.slot]]
    for stage in decider.stages(look, excluded):
        passes = stage.mask(look)
        if passes is None:
            continue
        for slot in np.flatnonzero(mask & ~passes).tolist():
            view = look.view(slot)
            found.append(
                HostAnswer(view.node, view.host, stage.code, dict(stage.detail(look, view)))
            )
        mask &= passes
    found.sort(key=lambda answer: (answer.host, answer.node))
    return sorted(_passing(decider, look, mask), key=lambda one: -one.weight) + found


def _closed(look: Look, row: Row) -> HostAnswer:
    why = CLOSED_CODES[int(look.columns.closed.array[row.slot])]
    return HostAnswer(row.node, row.host, why.value if why else "")


def _passing(decider: Decider, look: Look, mask: BoolArray) -> Iterator[HostAnswer]:
    slots = np.flatnonzero(mask)
    shares = dict(scores(look, decider.weighers, slots)) if len(slots) > 1 else {}
    for position, slot in enumerate(slots.tolist()):
        view = look.view(slot)
        weights = {name: float(share[position]) for name, share in shares.items()}
        yield HostAnswer(
            view.node, view.host, weight=float(sum(weights.values())), weights=weights
        )
