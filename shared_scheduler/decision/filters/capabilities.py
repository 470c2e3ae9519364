# SPDX-License-Identifier: Apache-2.0
"""The filter for extra specs of a flavor that name capabilities of a host (``capabilities:*``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.filters.base import NativeFilter
from shared_scheduler.decision.host_attributes import OPAQUE, capability, is_attribute
from shared_scheduler.decision.masks import RowTest
from shared_scheduler.decision.operators import satisfies
from shared_scheduler.model.leaves import STATS
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.columns import BoolArray
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.host_view import HostView
from shared_scheduler.table.row import Row

SCOPE = "capabilities"
#: attributes with the same value on all hosts of one kind of hypervisor
OF_ITS_KIND = frozenset({"hypervisor_type", "hypervisor_version", "supported_instances", "cpu_info"})
#: statistics that own claims change, even if the node does not report them
COUNTED = frozenset({"num_instances", "io_workload"})
ADDRESS_BITS = "hw:maxphysaddr_bits"


@dataclass(frozen=True, slots=True)
class WantedCapability:
    """One extra spec.  ``optional``: a key without a scope applies only to hosts that have it."""

    path: tuple[str, ...]
    requirement: str
    optional: bool

    def refused_with(self, view: HostView) -> str | None:
        """None if the host satisfies the extra spec, otherwise the value of the host."""
        if self.optional and not self._named_by(view):
            return None
        found = capability(view, self.path)
        if found is OPAQUE or (found is not None and satisfies(str(found), self.requirement)):
            return None
        return "" if found is None else str(found)

    def _named_by(self, view: HostView) -> bool:
        return is_attribute(self.path[0]) or self.path[0] in view.stats


def wanted_by(extra_specs: Mapping[str, str]) -> tuple[WantedCapability, ...]:
    """The extra specs of a flavor that concern this filter."""
    return tuple(one for key, value in extra_specs.items() if (one := _wanted(key, value)))


def _wanted(key: str, value: str) -> WantedCapability | None:
    if key == ADDRESS_BITS:
        return WantedCapability(("cpu_info", "maxphysaddr", "bits"), f">= {value}", False)
    path = tuple(key.split(":"))
    if len(path) == 1:
        return WantedCapability(path, value, True)
    return WantedCapability(path[1:], value, False) if path[0] == SCOPE else None


class ComputeCapabilitiesFilter(NativeFilter):
    """Every extra spec in scope is satisfied by an attribute or statistic of the host."""

    code = "ComputeCapabilitiesFilter"
    once = True
    selects = True

    def mask(self, context: DecisionContext) -> BoolArray | None:
        wanted = wanted_by(context.request.flavor.extra_specs)
        if not wanted:
            return None
        alike = tuple(one for one in wanted if one.path[0] in OF_ITS_KIND)
        others = tuple(one for one in wanted if one.path[0] not in OF_ITS_KIND and not _is_nowhere(context.table, one))
        of_kind = self._by_kind(context, alike) if alike else None
        of_row = self._by_row(context, others) if others else None
        if of_kind is None or of_row is None:
            return of_row if of_kind is None else of_kind
        return of_kind & of_row

    def _by_kind(self, context: DecisionContext, wanted: tuple[WantedCapability, ...]) -> BoolArray:
        kinds, key = context.columns.hypervisors, (self.code, wanted)
        return context.masks.kinds(context.table, key, kinds, lambda: _test(context.table, wanted))

    def _by_row(self, context: DecisionContext, wanted: tuple[WantedCapability, ...]) -> BoolArray:
        key, table = (self.code, wanted), context.table
        return context.masks.rows(table, key, lambda: _test_named(table, wanted), static=False)

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        for one in wanted_by(context.request.flavor.extra_specs):
            has = one.refused_with(view)
            if has is not None:
                return {"key": ":".join(one.path), "required": one.requirement, "host": has}
        return {}


def _is_nowhere(table: HostTable, one: WantedCapability) -> bool:
    """Whether an optional extra spec is an attribute or statistic of no host.

    Flavors have extra specs for aggregates, which this filter also looks up on hosts.
    """
    name = one.path[0]
    if not one.optional or is_attribute(name) or name in COUNTED:
        return False
    return not table.may_have_leaf(STATS + name)


def _test_named(table: HostTable, wanted: tuple[WantedCapability, ...]) -> RowTest:
    """Like ``_test``, but without views of hosts that have none of the optional keys."""
    test = _test(table, wanted)
    if not all(one.optional and not is_attribute(one.path[0]) for one in wanted):
        return test
    names = {STATS + one.path[0] for one in wanted}
    return lambda row: (row.extra is None and row.leaves.keys().isdisjoint(names)) or test(row)


def _test(table: HostTable, wanted: tuple[WantedCapability, ...]) -> RowTest:
    def test(row: Row) -> bool:
        view = table.view_at(row.slot)
        return all(one.refused_with(view) is None for one in wanted)

    return test
