# SPDX-License-Identifier: Apache-2.0
"""Flavor extra specs that name what a host must be able to do (``capabilities:*``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shared_scheduler.decision.filters.base import NativeFilter
from shared_scheduler.decision.host_attributes import OPAQUE, capability, has_attribute
from shared_scheduler.decision.look import Look
from shared_scheduler.decision.masks import RowTest
from shared_scheduler.decision.operators import satisfies
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.state.columns import BoolArray
from shared_scheduler.state.row import Row
from shared_scheduler.state.view import HostView

SCOPE = "capabilities"
ADDRESS_BITS = "hw:maxphysaddr_bits"


@dataclass(frozen=True, slots=True)
class Wanted:
    """One extra spec.  ``optional``: a key without a scope counts only where the host has it."""

    path: tuple[str, ...]
    requirement: str
    optional: bool

    def refused_with(self, view: HostView) -> str | None:
        """None if the host has it, else what it has instead."""
        if self.optional and not self._named_by(view):
            return None
        found = capability(view, self.path)
        if found is OPAQUE or (found is not None and satisfies(str(found), self.requirement)):
            return None
        return "" if found is None else str(found)

    def _named_by(self, view: HostView) -> bool:
        return has_attribute(view, self.path[0]) or self.path[0] in view.stats


def wanted_by(extra_specs: Mapping[str, str]) -> tuple[Wanted, ...]:
    """What the extra specs of a flavor ask of this filter."""
    return tuple(one for key, value in extra_specs.items() if (one := _wanted(key, value)))


def _wanted(key: str, value: str) -> Wanted | None:
    if key == ADDRESS_BITS:
        return Wanted(("cpu_info", "maxphysaddr", "bits"), f">= {value}", False)
    path = tuple(key.split(":"))
    if len(path) == 1:
        return Wanted(path, value, True)
    return Wanted(path[1:], value, False) if path[0] == SCOPE else None


class ComputeCapabilitiesFilter(NativeFilter):
    """Every extra spec in scope is satisfied by an attribute or a statistic of the host."""

    code = "ComputeCapabilitiesFilter"
    once = True

    def mask(self, look: Look) -> BoolArray | None:
        wanted = wanted_by(look.request.flavor.extra_specs)
        if not wanted:
            return None
        return look.masks.rows(
            look.table, (self.code, wanted), lambda: _test(look, wanted), static=False
        )

    def detail(self, look: Look, view: HostView) -> Mapping[str, Leaf]:
        for one in wanted_by(look.request.flavor.extra_specs):
            has = one.refused_with(view)
            if has is not None:
                return {"key": ":".join(one.path), "required": one.requirement, "host": has}
        return {}


def _test(look: Look, wanted: tuple[Wanted, ...]) -> RowTest:
    table = look.table

    def test(row: Row) -> bool:
        view = table.view_at(row.slot)
        return all(one.refused_with(view) is None for one in wanted)

    return test
