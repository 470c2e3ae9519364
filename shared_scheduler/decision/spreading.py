# SPDX-License-Identifier: Apache-2.0
"""Spreads the servers of a group over domains, with the semantics of Kubernetes' ``topologySpreadConstraints``.

A *domain* of a constraint is a value of its key in the metadata of host aggregates, with all hosts that have it.  A
host without the key, or with several values of it, is in no domain.

**Eligible hosts** have a domain for every constraint of the same mode, and are *selected* by the request: they have
its traits and aggregates of Placement, are in its cell, and pass the filters that compare it with lasting properties of
a host (``NativeFilter.selects``).  This is ``nodeAffinityPolicy: Honor``, the default of Kubernetes: a domain in which
the server may never be placed does not count, because it would stay empty and block all others.  As in Kubernetes, a
host that is full, disabled, down or tried already stays eligible (``nodeTaintsPolicy: Ignore``): otherwise an outage of
a rack would let the others fill without a limit, and the spread would be wrong when it returns.

**Counts.** ``count(domain)`` is the number of servers of the group on eligible hosts of the domain, without the server
of the request itself.  It includes claims of all schedulers that the agents have accepted, and own claims.  A server
on several hosts of a domain, as while it moves, counts once there.

**Skew.** ``skew(domain) = count(domain) + 1 - minimum``, where ``minimum`` is the smallest count of all domains with an
eligible host.

==========  ===========================================================================================================
mode        effect
==========  ===========================================================================================================
``hard``    a host without a domain is rejected, and a host whose domain has a skew above ``max_skew``
``soft``    the weigher ``SpreadWeigher`` prefers domains with a small skew; skews up to ``max_skew`` are equally good,
            and a host in no domain with an eligible host is as bad as the worst domain
==========  ===========================================================================================================

Forced hosts skip hard constraints like all filters.  Servers that are deleted, moved or fail to build leave the others
where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from shared_scheduler.decision.candidates import selects_by_placement
from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.filters.base import values_of
from shared_scheduler.decision.host_restrictions import skips_filters, wanted_cell
from shared_scheduler.decision.masks import RowNumber
from shared_scheduler.decision.request import SpreadConstraint, SpreadMode
from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.columns import BoolArray, IntArray
from shared_scheduler.table.host_view import HostView
from shared_scheduler.table.row import CODE_OF_CLOSED, Exclusion

#: the reason for a host that a hard constraint rejects
SPREAD = "spread"
#: the code of "no domain"; domains have the codes from 1
NO_DOMAIN = 0


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts of one constraint.

    ``domains``: the domain of each slot; ``counts``: servers by domain; ``eligible``: the domains with an eligible
    host; ``minimum``: the smallest count of these, None if there is none.
    """

    constraint: SpreadConstraint
    domains: IntArray
    counts: IntArray
    eligible: IntArray
    minimum: int | None

    def skews(self) -> IntArray:
        """The skew of each domain with one more server."""
        found: IntArray = self.counts + (1 - (self.minimum or 0))
        return found

    def minima(self) -> IntArray:
        """By domain, the smallest count of all domains with an eligible host."""
        return np.full_like(self.counts, self.minimum or 0)

    def minimum_after(self) -> IntArray:
        """By domain, the smallest count of all domains with an eligible host after one more server in this domain."""
        least = np.sort(self.counts.take(self.eligible))[:2]
        found: IntArray = self.counts + 1
        return np.minimum(found, np.where(self.counts == least[0], least[-1], least[0])) if len(least) > 1 else found


@dataclass(frozen=True, slots=True)
class _Domains:
    """The domains of one key for one selection of hosts.

    ``all``: the domain of each slot; ``counted``: the same for eligible hosts, ``NO_DOMAIN`` for others; ``eligible``:
    the domains with an eligible host; ``end``: above every domain.
    """

    all: IntArray
    counted: IntArray
    eligible: IntArray
    end: int


@dataclass(frozen=True, slots=True)
class Places:
    """Where servers are.  ``slots``: of those that are on one node each; ``several``: for each other one, the slots
    where it may be.  It counts once in a domain, however many of them are there."""

    slots: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    several: Sequence[Sequence[int]] = ()

    @classmethod
    def of(cls, servers: Iterable[Sequence[int]]) -> Places:
        """The places of servers, each with its slots."""
        every = list(servers)
        alone = np.array([slots[0] for slots in every if len(slots) == 1], dtype=np.int64)
        return cls(alone, [slots for slots in every if len(slots) > 1])


class SpreadStage:
    """One hard constraint.  ``settled``: the counts without what may still leave: ``Request.unsettled``, and servers
    of ``Request.beside`` in a domain for which this is not their only one."""

    code = SPREAD

    def __init__(self, counted: Counted, settled: Counted | None = None) -> None:
        self._counted = counted
        # by domain: the count that its own is compared with
        self._minima = counted.minima() if settled is None else settled.minimum_after()

    def mask(self, context: DecisionContext) -> BoolArray | None:
        """Slots whose domain may take one more server."""
        counted = self._counted
        passes: BoolArray = counted.counts + 1 - self._minima <= counted.constraint.max_skew
        passes[NO_DOMAIN] = False
        return passes.take(counted.domains)

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        """The domain of the host, the numbers that were compared, and where the request has the constraint."""
        counted = self._counted
        key = counted.constraint.key
        domain, values = int(counted.domains[view.slot]), values_of(view.aggregates, key)
        if domain == NO_DOMAIN:
            return {"key": key, "values": list(sorted(values)), "source": counted.constraint.source}
        return {
            "key": key,
            "domain": next(iter(values)),
            "count": int(counted.counts[domain]),
            "minimum": int(self._minima[domain]),
            "max_skew": counted.constraint.max_skew,
            "source": counted.constraint.source,
        }


def spread_stages(context: DecisionContext) -> list[SpreadStage]:
    """The stages of the hard constraints; none if the request has none or skips the filters."""
    hard = constraints_of(context, SpreadMode.HARD)
    if not hard or skips_filters(context.request):
        return []
    counted = count(context, hard, places_of(context))
    if not (context.request.unsettled or context.request.beside):
        return [SpreadStage(one) for one in counted]
    return list(map(SpreadStage, counted, count(context, hard, _settled_places(context), surely=True)))


def constraints_of(context: DecisionContext, mode: SpreadMode) -> list[SpreadConstraint]:
    """The constraints of the request with this mode."""
    return [one for one in context.request.spread if one.mode == mode]


def count(
    context: DecisionContext, constraints: Sequence[SpreadConstraint], places: Places, surely: bool = False
) -> list[Counted]:
    """Count servers by domain.  ``constraints`` have one mode; ``surely``: one that may be in several domains does not
    count in any, and otherwise in each of them."""
    selected, keys = _selected(context), tuple(one.key for one in constraints)
    # everything on which the domains depend; a selection of 10,000 hosts has 10,000 bytes
    depends = (SPREAD, keys, context.table.static_generation, selected.tobytes())
    found = context.masks.derived(depends, lambda: _eligible_domains(context, keys, selected))
    return [_count(*each, places, surely) for each in zip(constraints, found, strict=True)]


def _eligible_domains(context: DecisionContext, keys: Sequence[str], eligible: BoolArray) -> list[_Domains]:
    every = [_domains(context, key) for key in keys]
    for domains in every:
        eligible &= domains != NO_DOMAIN
    return [_domains_of_key(each, eligible) for each in every]


def _domains_of_key(domains: IntArray, eligible: BoolArray) -> _Domains:
    end = int(domains.max(initial=NO_DOMAIN)) + 1
    return _Domains(domains, domains * eligible, np.flatnonzero(np.bincount(domains[eligible])), end)


def _count(constraint: SpreadConstraint, domains: _Domains, places: Places, surely: bool) -> Counted:
    counts = np.bincount(domains.counted.take(places.slots), minlength=domains.end)
    for slots in places.several:
        there = frozenset[int](domains.counted.take(slots).tolist())
        if len(there) == 1 or not surely:
            counts[list(there)] += 1
    found = counts.take(domains.eligible)
    return Counted(constraint, domains.all, counts, domains.eligible, int(found.min()) if len(found) else None)


def places_of(context: DecisionContext, besides: frozenset[str] = frozenset()) -> Places:
    """Where each server of the group is, except ``besides`` and the server of the request.

    Members that only the request knows are added to those that agents and own claims show.  Members that were looked
    up in Placement (``Request.placed``) are counted where it had them, and where they have gone since.
    """
    table, group, without = context.table, context.request.group, {context.instance_uuid, *besides}
    if group is None:
        return Places()
    placed = context.request.placed.keys()
    untold = _untold(context, group.members - placed - without)
    apart = (table.groups.moving(group.uuid) | untold) - placed - without
    told = table.groups.slots(group.uuid, without | placed | apart)
    looked_up = (_places_of_one(context, uuid) + _besides_of_one(context, uuid) for uuid in placed - without)
    found = Places.of(chain(map(table.members.slots, apart), looked_up))
    # a copy of 10,000 slots takes several us
    return Places(np.concatenate((told, found.slots)) if len(found.slots) else told, found.several)


def _untold(context: DecisionContext, members: frozenset[str]) -> frozenset[str]:
    """Those of these members that a row shows without their group."""
    table, group = context.table, context.request.group
    assert group is not None
    places = ((uuid, slot) for uuid in members for slot in table.members.slots(uuid))
    return frozenset(uuid for uuid, slot in places if not table.groups.has(group.uuid, uuid, slot))


def _settled_places(context: DecisionContext) -> Places:
    """The same of the servers whose requests had an answer, and of those that hold several nodes where they are."""
    request = context.request
    others = places_of(context, request.unsettled | request.beside.keys())
    beside = request.beside.keys() - request.unsettled - {context.instance_uuid}
    found = Places.of(_places_of_one(context, uuid) or _besides_of_one(context, uuid) for uuid in beside)
    return Places(np.concatenate((others.slots, found.slots)), (*others.several, *found.several))


def _places_of_one(context: DecisionContext, server: str) -> list[int]:
    """The slots of a server that was looked up: where the table has it, if not in vain; or where Placement had it."""
    table, request = context.table, context.request
    now = [slot for slot in table.members.slots(server) if (server, table.node_at(slot)) not in request.vacated]
    return now or _slots(context, request.placed[server])


def _besides_of_one(context: DecisionContext, server: str) -> list[int]:
    """The slots where it holds something besides."""
    return _slots(context, context.request.beside.get(server, ()))


def _slots(context: DecisionContext, nodes: Iterable[str]) -> list[int]:
    return [slot for node in nodes if (slot := context.table.slot_of(node)) is not None]


def domain_of(aggregates: tuple[AggregateFacts, ...], key: str) -> str | None:
    """The value of a key in a host's aggregates; None if they have none or several."""
    values = values_of(aggregates, key)
    return next(iter(values)) if len(values) == 1 else None


def _domains(context: DecisionContext, key: str) -> IntArray:
    """The domain of each slot."""
    table = context.table
    if not table.aggregates.has_key(key):
        return np.zeros(context.high, dtype=np.int64)
    kinds = context.columns.host_aggregates
    numbers = context.masks.numbers_of_kinds(table, (SPREAD, key), kinds, lambda: _numbering(context, key))
    return numbers[: context.high].astype(np.int64)


def _numbering(context: DecisionContext, key: str) -> RowNumber:
    """Numbers the domains in the order in which they are found."""
    aggregates, codes = context.table.aggregates, dict[str, int]()

    def code(domain: str | None) -> int:
        return NO_DOMAIN if domain is None else codes.setdefault(domain, len(codes) + 1)

    return lambda row: code(domain_of(aggregates.of(row.host), key))


def _selected(context: DecisionContext) -> BoolArray:
    """The hosts on which the request may be placed as far as lasting properties say, as a new array."""
    columns, high = context.columns, context.high
    selected: BoolArray = columns.closed.array[:high] != CODE_OF_CLOSED[Exclusion.NO_SLOT]
    cell = wanted_cell(context.request)
    if cell is not None:
        selected &= columns.cell.array[:high] == columns.cell_code(cell)
    placement = selects_by_placement(context)
    if placement is not None:
        selected &= placement
    for each in context.selecting:
        mask = each.mask(context)
        if mask is not None:
            selected &= mask[:high]
    return selected
