# SPDX-License-Identifier: Apache-2.0
"""The outcome of one decision: survivors with their weights, and the reasons that rejected the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from random import Random

import numpy as np

from shared_scheduler.decision.candidates import forms_on, is_placement_reason, placement_stages
from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.decision_settings import plain_settings
from shared_scheduler.decision.filtering import run_stages
from shared_scheduler.decision.filters import NATIVE_FILTERS
from shared_scheduler.decision.pick import order
from shared_scheduler.decision.record import DecisionCounts, Weighed
from shared_scheduler.decision.request import PlacementForm
from shared_scheduler.decision.weigh import Weights
from shared_scheduler.decision.weighers import NATIVE_WEIGHERS
from shared_scheduler.table.columns import BoolArray, FloatArray, IntArray
from shared_scheduler.table.row import CODE_OF_CLOSED, Exclusion

#: hosts that the counts of a decision list
BEST_MAX = 5
#: the key of the settings as plain values, which are the same for all decisions
SETTINGS = ("plain settings",)
#: (key in the metadata of aggregates, setting) of each weigher
MULTIPLIERS = tuple((made.metadata_key, made.option) for made in (kind() for kind in NATIVE_WEIGHERS.values()))


class Decision:
    """The outcome of one decision.  Hosts are ranked on demand, best first.

    ``hosts`` = ``survivors`` + the sum of ``reasons``.  ``slots``: those of the survivors in the table, in order.
    ``own``, ``meeting`` and ``members`` are of the survivors: see ``pick.order``.
    """

    def __init__(
        self,
        context: DecisionContext,
        hosts: int,
        reasons: Mapping[str, int],
        slots: IntArray,
        weights: Weights,
        own: BoolArray | None,
        rng: Random | None,
        meeting: IntArray | None = None,
        members: FloatArray | None = None,
    ) -> None:
        self._meeting = meeting
        self._members = members
        self._context = context
        self._slots = slots
        self._weights = weights.total
        self._shares_at = weights.shares_at
        self._own = own
        self._rng = rng
        self.hosts = hosts
        self.survivors = len(slots)
        self.reasons = reasons

    def nodes(self, without: AbstractSet[str] = frozenset()) -> Iterator[str]:
        """Nodes, best first; near ties are those of the best one that is not in ``without``.

        The iterator is valid until the table changes."""
        table, kept = self._context.table, self._all_but(without) if without else slice(None)
        own = None if self._own is None else self._own[kept]
        meeting = None if self._meeting is None else self._meeting[kept]
        members = None if self._members is None else self._members[kept]
        slots = self._slots[kept]
        for position in order(self._weights[kept], self._context.settings, own, self._rng, meeting, members):
            row = table.row(int(slots[position]))
            if row is not None:
                yield row.node

    def _all_but(self, nodes: AbstractSet[str]) -> BoolArray:
        """The mask of the survivors that are not among these nodes."""
        slots = [slot for slot in map(self._context.table.slot_of, nodes) if slot is not None]
        kept: BoolArray = np.isin(self._slots, slots, invert=True)
        return kept

    def best(self, count: int = BEST_MAX) -> tuple[Weighed, ...]:
        """The survivors with the highest weights, regardless of the order in which they are tried."""
        return self._all_weighed(self._best_places(count))

    def _best_places(self, count: int) -> list[int]:
        table = self._context.table
        first = islice(order(self._weights, self._context.settings, None, None), count)
        return [place for place in first if table.row(int(self._slots[place])) is not None]

    def _place(self, node: str) -> int | None:
        """The place of a node among the survivors, whose slots are in order; None if it did not survive."""
        slot = self._context.table.slot_of(node)
        place = 0 if slot is None else int(np.searchsorted(self._slots, slot))
        return place if place < len(self._slots) and self._slots[place] == slot else None

    def _all_weighed(self, places: list[int]) -> tuple[Weighed, ...]:
        """All at once, because the shares of one host cost nearly as much as those of several."""
        shares = {name: share.tolist() for name, share in self._shares_at(np.array(places, dtype=np.intp)).items()}
        return tuple(
            self._weighed(place, {name: share[number] for name, share in shares.items()})
            for number, place in enumerate(places)
        )

    def _weighed(self, place: int, shares: Mapping[str, float]) -> Weighed:
        row = self._context.table.row(int(self._slots[place]))
        assert row is not None, place
        return Weighed(row.node, row.host, float(self._weights[place]), *row.version, shares)

    def weight(self, node: str) -> float | None:
        """The weight of one survivor; None if it did not survive."""
        place = self._place(node)
        return None if place is None else float(self._weights[place])

    def weights(self) -> dict[str, float]:
        """The weight of every survivor, by node."""
        table = self._context.table
        return {
            table.node_at(slot): weight
            for slot, weight in zip(self._slots.tolist(), self._weights.tolist(), strict=True)
        }

    def forms(self, node: str) -> tuple[PlacementForm, ...] | None:
        """The forms of the request that fit the root provider of the node, in order.

        None: other providers may be involved, so Placement must be asked for the candidates.
        """
        slot = self._context.table.slot_of(node)
        return () if slot is None else forms_on(self._context, slot)

    def form(self, node: str) -> PlacementForm | None:
        """The first of ``forms``; None if there is none or Placement must be asked."""
        return next(iter(self.forms(node) or ()), None)

    def asks_placement(self, node: str) -> bool:
        """Whether only Placement can name the candidates of this node."""
        return self.forms(node) is None

    @property
    def stale_mirror(self) -> bool:
        """Whether a new read may change the result.

        This is the case if a host was rejected because of mirrored data of Placement or because its row is stale, or
        if the table has no host.
        """
        codes = self.reasons
        return not self.hosts or Exclusion.STALE in codes or any(map(is_placement_reason, codes))

    @property
    def without_candidates(self) -> bool:
        """Whether Placement has no candidate on any host, according to its mirror.

        Hosts that the decision does not consider count as well, because Placement knows neither services nor cells."""
        context = self._context
        closed = context.columns.closed.array[: context.high]
        mask: BoolArray = closed != CODE_OF_CLOSED[Exclusion.NO_SLOT]
        stages = placement_stages(context)
        return bool(context.request.forms) and not run_stages(context, stages, mask, int(np.count_nonzero(mask)), {})

    @property
    def filtered(self) -> bool:
        """Whether a counterpart of one of Nova's filters rejected a host."""
        return not NATIVE_FILTERS.keys().isdisjoint(self.reasons)

    def counts(self, chosen: str | None = None) -> DecisionCounts:
        """The counts of the decision, for its record; ``chosen``: the node that was chosen."""
        context = self._context
        plain = context.masks.derived(SETTINGS, lambda: plain_settings(context.settings))
        has_key = context.table.aggregates.has_key
        by_aggregates = tuple(name for key, name in MULTIPLIERS if has_key(key))
        best = self._best_places(BEST_MAX)
        place = None if chosen is None else self._place(chosen)
        weighed = self._all_weighed(best if place is None or place in best else [*best, place])
        return DecisionCounts(
            context.index, self.hosts, self.survivors, dict(self.reasons), weighed[: len(best)],
            next(iter(weighed[len(best) :]), None), plain, by_aggregates,
        )  # fmt: skip

    def text(self) -> str:
        """One line for log messages."""
        fell = sorted(self.reasons.items(), key=lambda one: -one[1])
        passing = f"{self.survivors} of {self.hosts} hosts pass"
        return f"{passing}; rejected: {', '.join(f'{code}: {n}' for code, n in fell)}" if fell else passing
