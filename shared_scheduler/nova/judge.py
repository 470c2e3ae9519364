# SPDX-License-Identifier: Apache-2.0
"""Runs Nova's own filter objects on the selected host before it is claimed.

All enabled filters run in their order on a HostState of the row.  NUMATopologyFilter and PciPassthroughFilter check the
host's allocation candidates with their provider mappings and keep those that fit; the first remaining one is claimed.
A filter that raises refuses the host, because one host with unexpected data must not fail the request.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from shared_scheduler.core.events import Candidate
from shared_scheduler.core.planner import NO_CANDIDATE, Approval
from shared_scheduler.decision.host_restrictions import skips_filters
from shared_scheduler.decision.request import Request
from shared_scheduler.model.leaves import NUMA_STATIC
from shared_scheduler.model.topology import TopologyUsage
from shared_scheduler.nova.host_manager import HostManager
from shared_scheduler.nova.host_state import HostStates, RowHostState
from shared_scheduler.nova.request_spec import ATTRIBUTE_PREFIX, topology_text
from shared_scheduler.nova.selection import allocation_request
from shared_scheduler.novalib import topology
from shared_scheduler.protocol.messages import Leaf, Reason
from shared_scheduler.table.host_view import HostView
from shared_scheduler.transport.rate_limited_log import RateLimitedLog

LOG = logging.getLogger(__name__)

#: Reason codes of this judge; ``detail["filter"]`` names the filter.
FILTERED = "filter"
FILTER_FAILED = "filter_failed"
#: the leaves of NUMA cells or devices do not have Nova's format
UNREADABLE = "unreadable"
#: Nova would need too long to find out whether the NUMA cells and devices fit
TOO_MANY_ARRANGEMENTS = "too_many_arrangements"


class NovaJudge:
    """The ``HostJudge`` of the service.  Called by one thread at a time."""

    def __init__(self, host_manager: HostManager, states: HostStates) -> None:
        self._host_manager = host_manager
        self._states = states
        #: a host that looks best is tried by every request
        self._log = RateLimitedLog(LOG)

    def verify(
        self, request: Request, index: int, view: HostView, candidates: Sequence[Candidate]
    ) -> Approval | Reason:
        """See ``core.planner.HostJudge``."""
        spec = request.spec
        endless = takes_too_long(spec, view)
        if endless is not None:
            return endless
        point_at(spec, request, index)
        state = self._states.make(view)
        bodies = [allocation_request(each) for each in candidates]
        state.allocation_candidates = list(bodies)
        if not skips_filters(request):
            refusal = self._filter(state, spec)
            if refusal is not None:
                return refusal
        if not candidates:
            return Approval(None, "", dict(state.limits))
        left = state.allocation_candidates
        if not left:
            return Reason(NO_CANDIDATE, {"candidates": len(bodies)})
        chosen = candidates[bodies.index(left[0])]
        try:
            return self._approve(spec, state, chosen)
        except Exception as error:  # Nova's objects raise on unexpected leaves
            line = "NUMA cells or devices of host %s cannot be read; host refused"
            self._log.write(logging.ERROR, (UNREADABLE, state.host), line, state.host, exc_info=True)
            return Reason(UNREADABLE, {"error": str(error)})

    def _filter(self, state: RowHostState, spec: Any) -> Reason | None:
        """The reason why a filter refuses; None when all pass."""
        for each in self._host_manager.enabled_filters:
            name = type(each).__name__
            try:
                passed = each.filter_all([state], spec)
                if passed is None or not list(passed):
                    return _refusal(name, spec, state)
            except Exception as error:  # a plug-in, or a filter of Nova with unexpected data
                line = "Filter %s failed on host %s; host refused"
                self._log.write(logging.ERROR, (name, state.host), line, name, state.host, exc_info=True)
                return Reason(FILTER_FAILED, {"filter": name, "error": str(error)})
        return None

    @staticmethod
    def _approve(spec: Any, state: RowHostState, chosen: Candidate) -> Approval:
        limits = dict(state.limits)
        text = topology_text(
            spec,
            {suffix: list(given) for suffix, given in chosen.mappings.items()},
            limits.get("numa_topology"),
        )
        return Approval(chosen, text, limits, take_of(state, text))


def takes_too_long(spec: Any, view: HostView) -> Reason | None:
    """The reason to refuse a host with so many cells that Nova would try their arrangements for minutes."""
    asked = _asked_cells(spec)
    if asked < 2 or topology.arrangements(view.leaves, asked) <= topology.ARRANGEMENTS_MAX:
        return None
    return _too_many_arrangements(asked, view.leaves)


def _refusal(name: str, spec: Any, state: RowHostState) -> Reason:
    """The reason when this filter refuses the host."""
    asked = _asked_cells(spec)
    if asked > 1 and state.pci_stats.exhausted:
        return _too_many_arrangements(asked, state._parts.leaves)
    return Reason(FILTERED, {"filter": name})


def _asked_cells(spec: Any) -> int:
    return len(spec.numa_topology) if spec.numa_topology is not None else 0


def _too_many_arrangements(asked_cells: int, leaves: Mapping[str, Leaf]) -> Reason:
    host_cells: Any = leaves.get(NUMA_STATIC) or ()
    return Reason(TOO_MANY_ARRANGEMENTS, {"host_cells": len(host_cells), "asked_cells": asked_cells})


def point_at(spec: Any, request: Request, index: int) -> None:
    """Set the fields of the spec for one instance, with the others of its request as members of the group."""
    uuid = request.instance_uuids[index]
    if uuid and getattr(spec, f"{ATTRIBUTE_PREFIX}instance_uuid", None) != uuid:  # its check costs as much as a filter
        spec.instance_uuid = uuid
        spec.obj_reset_changes(["instance_uuid"])
    group = request.group
    if group is not None and "instance_group" in spec and spec.instance_group is not None:
        found = spec.instance_group
        found.hosts = sorted(group.hosts)
        found.members = sorted(group.members)
        if "policies" not in found:  # missing in legacy dicts; ServerGroupAffinityFilter reads it
            found.policies = [group.policy] if group.policy else []
        found.obj_reset_changes(["hosts", "members", "policies"])


def take_of(state: RowHostState, text: str) -> TopologyUsage | None:
    """The usage of NUMA cells and PCI pools by the claim, which the next decision subtracts."""
    if not text:
        return None
    leaves = state._parts.leaves
    changed = topology.consume(leaves, text)
    return None if isinstance(changed, Reason) else TopologyUsage.between(leaves, changed)
