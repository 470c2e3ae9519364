# SPDX-License-Identifier: Apache-2.0
"""Orders hosts by weight.

As in Nova, the host with the highest weight comes first, and equal hosts are in the order of the table.
``shuffle_best`` shuffles the hosts that are equal to the first.  ``host_subset_size`` (n) moves a random one of the
first n to the front.

If several schedulers select the same host, its agent refuses all but one of their claims.  Therefore each scheduler has
a *slice* of the hosts: a host belongs to the live scheduler for which a hash of both names is greatest (rendezvous
hashing: when a scheduler is added or removed, only its own hosts move).  Among hosts whose weight is at most
``near_tie`` below the best, those of the own slice come first.

With slices, schedulers would select different hosts for the members of an affinity group.  For such a request the same
hosts are ordered by a hash of group and host instead, so that all schedulers try the same host first.

Hosts with more or fewer members of a soft group than the best one are no near ties of it: what the soft policy adds to
a weight may be less than ``near_tie`` when other weighers add the contrary.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from random import Random

import numpy as np

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.table.columns import BoolArray, FloatArray, IntArray
from shared_scheduler.table.host_table import HostTable

#: up to this number of hosts, repeated selection of the greatest is cheaper than sorting
ARGMAX_UP_TO = 32


class Slices:
    """The hosts in the slice of this scheduler, by cell."""

    def __init__(self) -> None:
        self._live: dict[str, tuple[tuple[str, ...], str]] = {}
        self._own: BoolArray | None = None
        self._generation = -1

    def set(self, cell: str, names: tuple[str, ...], own: str) -> None:
        """Set the live schedulers of a cell; ``own`` is the name of this scheduler."""
        if self._live.get(cell) != (names, own):
            self._live[cell] = (names, own)
            self._own = None

    def set_all(self, other: Slices) -> None:
        """Set the live schedulers of all cells to those of ``other``."""
        self._live, self._own = dict(other._live), None

    @property
    def active(self) -> bool:
        """Whether another scheduler is alive."""
        return any(len(names) > 1 for names, _ in self._live.values())

    def own(self, table: HostTable) -> BoolArray:
        """The mask of the slots in the own slice; computed again when a node or a scheduler is added or removed."""
        if self._own is None or self._generation != table.membership_generation:
            self._generation = table.membership_generation
            self._own = self._draw(table)
        return self._own

    def _draw(self, table: HostTable) -> BoolArray:
        high = table.columns.high
        own: BoolArray = np.ones(high, dtype=np.bool_)
        for cell, (names, me) in self._live.items():
            if len(names) < 2 or me not in names:
                continue
            in_cell = table.columns.cell.array[:high] == table.columns.cell_code(cell)
            own &= ~in_cell | self._mine(table.columns.identity.array[:high], names, me)
        return own

    @staticmethod
    def meeting_points(table: HostTable, group: str) -> IntArray:
        """For each slot its place in the order for members of this group, which is equal in every scheduler."""
        identities: IntArray = table.columns.identity.array[: table.columns.high]
        return _mixed(identities ^ np.uint64(_hash(group)))

    @staticmethod
    def _mine(hosts: IntArray, names: tuple[str, ...], me: str) -> BoolArray:
        scores = [_mixed(hosts ^ np.uint64(_hash(name))) for name in names]
        best = scores[0]
        for score in scores[1:]:
            best = np.maximum(best, score)
        mine: BoolArray = scores[names.index(me)] == best
        return mine


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")


def _mixed(values: IntArray) -> IntArray:
    """The finisher of splitmix64: every bit of the input affects every bit of the output."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: IntArray = values ^ (values >> np.uint64(31))
    return mixed


def order(
    weights: FloatArray,
    settings: DecisionSettings,
    own: BoolArray | None,
    rng: Random | None,
    meeting: IntArray | None = None,
    members: FloatArray | None = None,
) -> Iterator[int]:
    """Positions, best first.

    ``own``: mask of the positions in the own slice; ``meeting``: see ``meeting_points``; ``members``: the number of
    members of a soft group at each position; None: without effect.
    """
    if not len(weights):
        return
    first = _order_near_ties(weights, settings, own, rng, meeting, members) or [int(weights.argmax())]
    yield first[0]
    left = weights.copy()
    left[first] = -np.inf
    yield from first[1:]
    yield from _descending(left, len(weights) - len(first))


def _order_near_ties(
    weights: FloatArray,
    settings: DecisionSettings,
    own: BoolArray | None,
    rng: Random | None,
    meeting: IntArray | None,
    members: FloatArray | None,
) -> list[int]:
    """The first positions: those of near ties, whose order does not follow from the weights alone."""
    if meeting is not None and settings.near_tie is not None:
        near = np.flatnonzero(_near_ties(weights, settings.near_tie, members))
        where: list[int] = near[np.argsort(meeting[near])[::-1]].tolist()
        return where
    if own is not None and settings.near_tie is not None:
        return _of_own_slice(weights, settings, own & _near_ties(weights, settings.near_tie, members), rng)
    if rng is None:
        return []
    if settings.shuffle_best_same_weighed_hosts:
        best = np.flatnonzero(weights == weights.max()).tolist()
        rng.shuffle(best)
        return _drawn(best, weights, settings, rng)
    return _drawn([], weights, settings, rng)


def _drawn(best: list[int], weights: FloatArray, settings: DecisionSettings, rng: Random) -> list[int]:
    """The order with a random one of the first ``host_subset_size`` positions moved to the front."""
    size = min(max(settings.host_subset_size, 1), len(weights))
    if size == 1:
        return best
    left = weights.copy()
    left[best] = -np.inf
    head = (best + list(_descending(left, size - len(best))))[:size]
    chosen = rng.choice(head)
    rest = best if len(best) > size else head
    return [chosen, *(one for one in rest if one != chosen)]


def _near_ties(weights: FloatArray, near_tie: float, members: FloatArray | None) -> BoolArray:
    """The mask of the hosts that are equally good: little below the best, and with as many members of a soft group."""
    near: BoolArray = weights >= weights.max() - near_tie
    return near if members is None else near & (members == members[weights.argmax()])


def _of_own_slice(weights: FloatArray, settings: DecisionSettings, own: BoolArray, rng: Random | None) -> list[int]:
    """Near-best hosts of the own slice, best first."""
    near = np.flatnonzero(own)
    by_weight: list[int] = near[np.argsort(-weights[near], kind="stable")].tolist()
    size = min(max(settings.host_subset_size, 1), len(by_weight))
    if rng is None or size < 2:
        return by_weight
    chosen = rng.choice(by_weight[:size])
    return [chosen, *(one for one in by_weight if one != chosen)]


def _descending(weights: FloatArray, count: int) -> Iterator[int]:
    """Up to ``count`` positions by weight, the first of equal ones first; overwrites ``weights``."""
    for _ in range(min(count, ARGMAX_UP_TO)):
        position = int(weights.argmax())
        weights[position] = -np.inf
        yield position
    if count > ARGMAX_UP_TO:
        rest = np.argsort(-weights, kind="stable")[: count - ARGMAX_UP_TO]
        yield from rest.tolist()
