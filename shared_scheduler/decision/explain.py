# SPDX-License-Identifier: Apache-2.0
"""Explains why hosts were not chosen: the first stage that rejected each host, with the values that were compared.

A decision only counts hosts.  An explanation reads every host again, so it is made on request.  All hosts are counted,
and ``each_max`` of each reason are listed, so it costs little more than the masks at any size.  Foreign filters are
not run here: hosts that only a foreign filter would reject are shown as passing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from shared_scheduler.decision.candidates import missing_room
from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.host_restrictions import OpenStage
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import Request
from shared_scheduler.decision.weigh import scores
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.columns import BoolArray, FloatArray
from shared_scheduler.table.row import CLOSED_CODES, Exclusion, Row

#: Hosts that are listed for each reason by default.
EACH_MAX = 1000

#: The function that explains the host in a slot.
_Answered = Callable[[int], "ExplainedHost"]


@dataclass(frozen=True, slots=True)
class ExplainedHost:
    """One host, and the version of its row.  If it passes, ``code`` is empty, and ``weights`` has the share of each
    weigher."""

    node: str
    host: str
    code: str = ""
    detail: Mapping[str, Leaf] = field(default_factory=dict)
    weight: float = 0.0
    weights: Mapping[str, float] = field(default_factory=dict)
    epoch: int = 0
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """``listed``: first the hosts that pass, by weight, then the others by name.  ``counts``: the number of all hosts
    by code; the code of hosts that pass is empty.  ``missing``: for lack of room, the least and the most that the
    hosts of a code miss, in the unit of the resource class; hosts without an inventory of it do not count."""

    listed: tuple[ExplainedHost, ...]
    counts: Mapping[str, int]
    missing: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def explain(
    decider: Decider,
    request: Request,
    index: int = 0,
    excluded: Iterable[str] = (),
    only: frozenset[str] = frozenset(),
    each_max: int = EACH_MAX,
) -> Explanation:
    """Explain up to ``each_max`` hosts of each reason, or the hosts in ``only`` (names of hosts or nodes)."""
    context = decider.context(request, index)
    counts: dict[str, int] = {}
    missing: dict[str, tuple[int, int]] = {}
    fell: list[ExplainedHost] = []
    mask = OpenStage(request).mask(context)
    for code, slots, answered in _fallen(decider, context, mask, excluded):
        counts[code] = counts.get(code, 0) + len(slots)
        fell += map(answered, _picked(context, slots, only, each_max))
        if (span := missing_room(context, code, slots)) is not None:
            missing[code] = span
    slots, weights, shares = _by_weight(decider, context, np.flatnonzero(mask))
    counts[""] = len(slots)
    passed = [
        _passing(context, slots[at], weights[at], {name: share[at] for name, share in shares.items()})
        for at in _places(context, slots, only, each_max)
    ]
    fell.sort(key=lambda answer: (answer.host, answer.node))
    return Explanation((*passed, *fell), counts, missing)


def _fallen(
    decider: Decider, context: DecisionContext, mask: BoolArray, excluded: Iterable[str]
) -> Iterator[tuple[str, list[int], _Answered]]:
    """Each reason with the slots that it rejects.  Afterwards ``mask`` is true for the survivors."""
    closed = context.columns.closed.array[: context.high]
    for number, reason in enumerate(CLOSED_CODES):
        if reason is not None and reason is not Exclusion.NO_SLOT:
            slots = np.flatnonzero(~mask & (closed == number)).tolist()
            yield reason.value, slots, partial(_answer, context, reason.value, None)
    for stage in decider.stages(context, excluded):
        passes = stage.mask(context)
        if passes is not None:
            slots = np.flatnonzero(mask & ~passes).tolist()
            mask &= passes
            yield stage.code, slots, partial(_answer, context, stage.code, stage)


def _answer(context: DecisionContext, code: str, stage: Any, slot: int) -> ExplainedHost:
    detail = {} if stage is None else dict(stage.detail(context, context.view(slot)))
    row = _row(context, slot)
    return ExplainedHost(row.node, row.host, code, detail, epoch=row.epoch, sequence=row.sequence)


def _names(context: DecisionContext, slot: int) -> tuple[str, str]:
    row = _row(context, slot)
    return row.node, row.host


def _row(context: DecisionContext, slot: int) -> Row:
    row = context.table.row(slot)
    assert row is not None, slot
    return row


def _picked(context: DecisionContext, slots: list[int], only: frozenset[str], each_max: int) -> list[int]:
    return [slots[place] for place in _places(context, slots, only, each_max)]


def _places(context: DecisionContext, slots: list[int], only: frozenset[str], each_max: int) -> list[int]:
    """The positions of the slots that are listed."""
    places = range(len(slots))
    if not only:
        return list(places[:each_max])
    return [place for place in places if only.intersection(_names(context, slots[place]))]


def _by_weight(
    decider: Decider, context: DecisionContext, found: Any
) -> tuple[list[int], list[float], dict[str, list[float]]]:
    """Slots, weights and the shares of each weigher, best first."""
    shares = dict(scores(context, decider.weighers, found)) if len(found) > 1 else {}
    total: FloatArray = sum(shares.values(), np.zeros(len(found)))
    order = np.argsort(-total, kind="stable")
    ordered = {name: np.asarray(share)[order].tolist() for name, share in shares.items()}
    return found[order].tolist(), total[order].tolist(), ordered


def _passing(context: DecisionContext, slot: int, weight: float, shares: Mapping[str, float]) -> ExplainedHost:
    row = _row(context, slot)
    return ExplainedHost(row.node, row.host, weight=weight, weights=shares, epoch=row.epoch, sequence=row.sequence)
