# SPDX-License-Identifier: Apache-2.0
"""The decision: filters hosts, weighs them, and orders them.

The stages of a decision for one instance run in Nova's order: hosts that are considered at all; Placement's answer
(``candidates.py``); hosts that the request names (``targets.py``); the enabled filters; hard constraints of spreading
(``spreading.py``), which Nova does not have; then the weighers.  Each stage is a mask over columns.  The number of
hosts that it rejects is the difference of two counts, so reasons cost nothing.

Filters and weighers of a site are passed in as ``ForeignFilter`` and ``ForeignWeigher`` and run on views of the
survivors.  A foreign one with the name of a native one replaces it; this is how a site requests Nova's own NUMA fit on
all survivors.  Filters that ``screen`` may pass a host that Nova refuses: the caller verifies each host that it tries
with Nova's own objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random

import numpy as np

from shared_scheduler.decision.candidates import placement_stages
from shared_scheduler.decision.context import DecisionContext, ForeignFilter, ForeignWeigher, Stage
from shared_scheduler.decision.decision_settings import DecisionSettings, SpreadImages
from shared_scheduler.decision.errors import UnknownFilterError, UnknownWeigherError
from shared_scheduler.decision.filtering import FilterRun, run_stages
from shared_scheduler.decision.filtering import OncePerRequestFilters as OncePerRequestFilters
from shared_scheduler.decision.filters import NATIVE_FILTERS
from shared_scheduler.decision.filters.base import NativeFilter
from shared_scheduler.decision.host_restrictions import OpenStage, skips_filters, target_stages
from shared_scheduler.decision.masks import MaskCache
from shared_scheduler.decision.outcome import Decision as Decision
from shared_scheduler.decision.pick import Slices
from shared_scheduler.decision.request import Request
from shared_scheduler.decision.spreading import spread_stages
from shared_scheduler.decision.weigh import Weigher, WeightCache
from shared_scheduler.decision.weighers import NATIVE_WEIGHERS
from shared_scheduler.decision.weighers.spread import SpreadWeigher
from shared_scheduler.protocol.messages import GroupPolicy
from shared_scheduler.table.columns import BoolArray, FloatArray, IntArray
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import CLOSED_CODES

NOVA_DEFAULTS = DecisionSettings()
#: policies that place all members on one host
TOGETHER = frozenset({GroupPolicy.AFFINITY, GroupPolicy.SOFT_AFFINITY})
#: policies that weigh hosts by their members
SOFT = frozenset({GroupPolicy.SOFT_AFFINITY, GroupPolicy.SOFT_ANTI_AFFINITY})


class Decider:
    """Decides over one table.  ``rng`` serves Nova's options ``host_subset_size`` and ``shuffle_best``."""

    def __init__(
        self,
        table: HostTable,
        settings: DecisionSettings = NOVA_DEFAULTS,
        *,
        rng: Random | None = None,
        foreign_filters: Mapping[str, ForeignFilter] | None = None,
        foreign_weighers: Mapping[str, ForeignWeigher] | None = None,
    ) -> None:
        self._table = table
        self._rng = rng
        self._slices = Slices()
        self._all: IntArray = np.arange(0)
        self.configure(settings, foreign_filters, foreign_weighers)

    def configure(
        self,
        settings: DecisionSettings,
        foreign_filters: Mapping[str, ForeignFilter] | None = None,
        foreign_weighers: Mapping[str, ForeignWeigher] | None = None,
        exact: ForeignFilter | None = None,
    ) -> None:
        """Replace the settings.

        ``exact`` stands for all of Nova's filters together (``DecisionSettings.exact_hosts_max``).

        :raises UnknownFilterError: when a filter is not known; nothing is changed then
        :raises UnknownWeigherError: when a weigher is not known; nothing is changed then
        """
        filters = filters_of(settings.enabled_filters, foreign_filters or {})
        weighers = weighers_of(settings.weighers, foreign_weighers or {})
        if settings.spread_keys:
            weighers.append(SpreadWeigher())
        self._settings, self._filters, self._weighers = settings, filters, weighers
        self._exact = exact
        self._selecting = [one for one in filters if isinstance(one, NativeFilter) and one.selects]
        self._masks = MaskCache()
        self._totals = WeightCache(weighers)

    def set_schedulers(self, cell: str, names: tuple[str, ...], own: str) -> None:
        """Compute the slices again for the live schedulers of a cell, which include ``own``."""
        self._slices.set(cell, names, own)

    def prefer_slices_of(self, other: Decider) -> None:
        """Know the live schedulers that ``other`` knows."""
        self._slices.set_all(other._slices)

    def decide(
        self,
        request: Request,
        index: int = 0,
        excluded: Iterable[str] = (),
        narrowing: OncePerRequestFilters | None = None,
        natives: bool = True,
    ) -> Decision:
        """Rank the hosts for instance ``index``.  ``excluded`` are nodes that were tried already.

        Without ``natives``, the caller's judge applies Nova's filters.

        :raises DecisionError: when the request cannot be decided on any host
        """
        context = self.context(request, index)
        mask, left, reasons = self._open(context)
        early = [*placement_stages(context), *target_stages(context, excluded)]
        left = run_stages(context, early, mask, left, reasons)
        if left and not skips_filters(request):
            filters = self._filters if natives else [f for f in self._filters if not isinstance(f, NativeFilter)]
            run = FilterRun(context, mask, left, reasons, narrowing)
            left = _filter(run, filters, self._exact if natives else None, self._exact_max(request))
        if left and request.spread:
            left = run_stages(context, spread_stages(context), mask, left, reasons)
        slots = None if left == context.high else np.flatnonzero(mask)
        weights = self._totals.weigh(context, slots, left)
        if slots is None:
            slots = self._every(context.high)
        sliced = left > 1 and self._settings.near_tie is not None and self._slices.active
        meets = sliced and request.group is not None and request.group.policy in TOGETHER
        own = self._slices.own(self._table).take(slots) if sliced and not meets else None
        meeting = self._meeting(request, slots) if meets else None
        members = _members(context, slots) if sliced else None
        return Decision(context, len(self._table), reasons, slots, weights, own, self._rng, meeting, members)

    def _exact_max(self, request: Request) -> int:
        """The bound for exact filters; 0 if the request is not root-only, because they need its candidates."""
        return self._settings.exact_hosts_max if request.root_only else 0

    def _every(self, high: int) -> IntArray:
        if len(self._all) != high:
            self._all = np.arange(high)
        return self._all

    def context(self, request: Request, index: int = 0) -> DecisionContext:
        """Create the context for stages and weighers."""
        return DecisionContext(self._table, request, index, self._settings, self._masks, self._selecting)

    @property
    def spread_keys(self) -> tuple[str, ...]:
        """The keys over which servers may be spread."""
        return self._settings.spread_keys

    @property
    def spread_images(self) -> SpreadImages:
        """Whether properties of images may ask for spreading."""
        return self._settings.spread_images

    @property
    def reads_images(self) -> bool:
        """Whether a request may only be decided when the properties of its image were asked for."""
        return bool(self.spread_keys) and self.spread_images != SpreadImages.IGNORED

    @property
    def weighers(self) -> Sequence[Weigher]:
        """The weighers in the order in which their weights are added."""
        return self._weighers

    def stages(self, context: DecisionContext, excluded: Iterable[str] = ()) -> list[Stage]:
        """Every native stage of a decision, in order."""
        early: list[Stage] = [*placement_stages(context), *target_stages(context, excluded)]
        if skips_filters(context.request):
            return early
        natives = [f for f in self._filters if isinstance(f, NativeFilter)]
        enabled = [f for f in natives if f.on_rebuild or not context.request.is_rebuild]
        return [*early, *enabled, *spread_stages(context)]

    def _meeting(self, request: Request, slots: IntArray) -> IntArray | None:
        assert request.group is not None
        return self._slices.meeting_points(self._table, request.group.uuid).take(slots)

    def _open(self, context: DecisionContext) -> tuple[BoolArray, int, dict[str, int]]:
        """The hosts that are considered, their number, and the reasons that exclude others."""
        mask = OpenStage(context.request).mask(context)
        hosts, left = len(self._table), int(np.count_nonzero(mask))
        reasons: dict[str, int] = {}
        if left < hosts:
            counts = context.columns.closed_counts
            reasons = {
                closed.value: counts[code]
                for code, closed in enumerate(CLOSED_CODES)
                if closed is not None and counts[code]
            }
            extra = left + sum(reasons.values()) - hosts
            if extra:  # hosts of a disabled cell that the request names
                reasons["cell_disabled"] -= extra
        return mask, left, reasons


def _members(context: DecisionContext, slots: IntArray) -> FloatArray | None:
    """The number of members of a soft group at each position; None without such a group, or without members."""
    group = context.request.group
    members = context.group_members() if group is not None and group.policy in SOFT else None
    return None if members is None else members.take(slots)


def _filter(
    run: FilterRun,
    filters: Iterable[NativeFilter | ForeignFilter],
    exact: ForeignFilter | None,
    exact_max: int,
) -> int:
    few = exact is not None and 1 < run.left <= exact_max  # a single one is not weighed
    passes = run.ask(exact) if exact is not None and few else None
    for one in filters:
        if not run.left:
            break
        run.filter(one)
    if exact is not None and passes is not None:
        run.drop(passes, exact.name)
    run.finish()
    return run.left


def filters_of(names: Sequence[str], foreign: Mapping[str, ForeignFilter]) -> list[NativeFilter | ForeignFilter]:
    """The enabled filters in order; foreign ones replace native ones of the same name."""
    for name in names:
        if name not in foreign and name not in NATIVE_FILTERS:
            raise UnknownFilterError(
                f"[filter_scheduler] enabled_filters names {name!r}, which is not a filter of Nova and "
                "none of available_filters; correct the name, or add its class to available_filters"
            )
    return [foreign[name] if name in foreign else NATIVE_FILTERS[name]() for name in names]


def weighers_of(names: Sequence[str], foreign: Mapping[str, ForeignWeigher]) -> list[Weigher]:
    """The weighers in order; foreign ones replace native ones of the same name."""
    for name in names:
        if name not in foreign and name not in NATIVE_WEIGHERS:
            raise UnknownWeigherError(
                f"[filter_scheduler] weight_classes names {name!r}, which is not a weigher of Nova and "
                "was not loaded; correct the name"
            )
    return [foreign[name] if name in foreign else NATIVE_WEIGHERS[name]() for name in names]
