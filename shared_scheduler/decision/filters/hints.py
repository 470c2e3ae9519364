# SPDX-License-Identifier: Apache-2.0
"""The filters for scheduler hints that name other servers or an address."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.errors import DecisionError
from shared_scheduler.decision.filters.base import NativeFilter, listed
from shared_scheduler.decision.masks import RowTest, mask_of_slots
from shared_scheduler.decision.request import Request
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.columns import BoolArray
from shared_scheduler.table.host_view import HostView
from shared_scheduler.table.row import Row

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def hint_values(request: Request, name: str) -> tuple[str, ...]:
    """The values of a hint; a single empty one counts as none, as in Nova."""
    values = request.hints.get(name, ())
    return () if values == ("",) else values


class DifferentHostFilter(NativeFilter):
    """None of the servers of hint ``different_host`` is on the host."""

    code = "DifferentHostFilter"
    once = True

    def mask(self, context: DecisionContext) -> BoolArray | None:
        uuids = hint_values(context.request, "different_host")
        slots = {slot for uuid in uuids for slot in context.table.slots_with(uuid)}
        return ~mask_of_slots(context.high, slots) if slots else None

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        uuids = frozenset(hint_values(context.request, "different_host"))
        return {"on_host": listed(uuids & view.instances)}


class SameHostFilter(NativeFilter):
    """At least one of the servers of hint ``same_host`` is on the host."""

    code = "SameHostFilter"
    once = True

    def mask(self, context: DecisionContext) -> BoolArray | None:
        uuids = hint_values(context.request, "same_host")
        if not uuids:
            return None
        slots = {slot for uuid in uuids for slot in context.table.slots_with(uuid)}
        return mask_of_slots(context.high, slots)

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        return {"wanted": list(hint_values(context.request, "same_host"))}


class SimpleCIDRAffinityFilter(NativeFilter):
    """The host's address is in the network of hints ``build_near_host_ip`` and ``cidr``."""

    code = "SimpleCIDRAffinityFilter"
    once = True
    selects = True

    def mask(self, context: DecisionContext) -> BoolArray | None:
        network = _network(context.request)
        if network is None:
            return None
        return context.masks.rows(context.table, (self.code, network), lambda: _within(network))

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        return {
            "host_ip": view.leaves.get("cn.host_ip"),
            "network": str(_network(context.request)),
        }


def _network(request: Request) -> Network | None:
    address = hint_values(request, "build_near_host_ip")
    if not address:
        return None
    prefix = request.hints.get("cidr", ("/24",))
    text = address[0] + prefix[0]
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise DecisionError(f"hints build_near_host_ip and cidr: {error}") from error


def _within(network: Network) -> RowTest:
    def test(row: Row) -> bool:
        try:
            return ipaddress.ip_address(str(row.leaves.get("cn.host_ip"))) in network
        except ValueError:
            return False

    return test
