# SPDX-License-Identifier: Apache-2.0
"""Why not this host?  For each host the first stage that it fell to, with the numbers compared.

A decision only counts; this looks at every host again, so it is asked for, not kept.  All hosts are
counted, ``each_max`` of a reason are told: at any size it costs little more than the masks.  Foreign
filters are not run here: hosts that only they would drop are shown as passing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from shared_scheduler.decision.look import Look
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import Request
from shared_scheduler.decision.targets import OpenStage
from shared_scheduler.decision.weigh import scores
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.state.columns import BoolArray, FloatArray
from shared_scheduler.state.row import CLOSED_CODES, Closed

#: Hosts of one reason that are told where the caller does not say.
EACH_MAX = 1000

#: What is told of the host in a slot.
_Answered = Callable[[int], "HostAnswer"]


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """One host.  ``code`` is empty where it passes; then ``weights`` tells each weigher's share."""

    node: str
    host: str
    code: str = ""
    detail: Mapping[str, Leaf] = field(default_factory=dict)
    weight: float = 0.0
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """``told``: those that pass first, by weight; then the others by host name.  ``counts``: hosts by
    code, told or not; the code is empty for those that pass."""

    told: tuple[HostAnswer, ...]
    counts: Mapping[str, int]


def explain(
    decider: Decider,
    request: Request,
    index: int = 0,
    excluded: Iterable[str] = (),
    only: frozenset[str] = frozenset(),
    each_max: int = EACH_MAX,
) -> Explanation:
    """Of each reason so many hosts, or those that ``only`` names (as host or as node)."""
    look = decider.look(request, index)
    counts: dict[str, int] = {}
    fell: list[HostAnswer] = []
    mask = OpenStage(request).mask(look)
    for code, slots, answered in _fallen(decider, look, mask, excluded):
        counts[code] = counts.get(code, 0) + len(slots)
        fell += map(answered, _picked(look, slots, only, each_max))
    slots, weights, shares = _by_weight(decider, look, np.flatnonzero(mask))
    counts[""] = len(slots)
    passed = [
        _passing(look, slots[at], weights[at], {name: share[at] for name, share in shares.items()})
        for at in _places(look, slots, only, each_max)
    ]
    fell.sort(key=lambda answer: (answer.host, answer.node))
    return Explanation((*passed, *fell), counts)


def _fallen(
    decider: Decider, look: Look, mask: BoolArray, excluded: Iterable[str]
) -> Iterator[tuple[str, list[int], _Answered]]:
    """Each reason with the slots that fell to it.  In the end ``mask`` is true for those that did not."""
    closed = look.columns.closed.array[: look.high]
    for number, reason in enumerate(CLOSED_CODES):
        if reason is not None and reason is not Closed.NO_SLOT:
            slots = np.flatnonzero(~mask & (closed == number)).tolist()
            yield reason.value, slots, partial(_answer, look, reason.value, None)
    for stage in decider.stages(look, excluded):
        passes = stage.mask(look)
        if passes is not None:
            slots = np.flatnonzero(mask & ~passes).tolist()
            mask &= passes
            yield stage.code, slots, partial(_answer, look, stage.code, stage)


def _answer(look: Look, code: str, stage: Any, slot: int) -> HostAnswer:
    detail = {} if stage is None else dict(stage.detail(look, look.view(slot)))
    return HostAnswer(*_names(look, slot), code, detail)


def _names(look: Look, slot: int) -> tuple[str, str]:
    row = look.table.row(slot)
    assert row is not None, slot
    return row.node, row.host


def _picked(look: Look, slots: list[int], only: frozenset[str], each_max: int) -> list[int]:
    return [slots[place] for place in _places(look, slots, only, each_max)]


def _places(look: Look, slots: list[int], only: frozenset[str], each_max: int) -> list[int]:
    """Which of these slots are told."""
    places = range(len(slots))
    if not only:
        return list(places[:each_max])
    return [place for place in places if only.intersection(_names(look, slots[place]))]


def _by_weight(
    decider: Decider, look: Look, found: Any
) -> tuple[list[int], list[float], dict[str, list[float]]]:
    """Slots, weights and each weigher's shares, the best first."""
    shares = dict(scores(look, decider.weighers, found)) if len(found) > 1 else {}
    total: FloatArray = sum(shares.values(), np.zeros(len(found)))
    order = np.argsort(-total, kind="stable")
    ordered = {name: np.asarray(share)[order].tolist() for name, share in shares.items()}
    return found[order].tolist(), total[order].tolist(), ordered


def _passing(look: Look, slot: int, weight: float, shares: Mapping[str, float]) -> HostAnswer:
    return HostAnswer(*_names(look, slot), weight=weight, weights=shares)
