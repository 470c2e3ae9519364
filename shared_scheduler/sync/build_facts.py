# SPDX-License-Identifier: Apache-2.0
"""What Nova's tables show of the builds of a server that was placed.  Pure.

A build that nova-compute hands back to nova-conductor leaves a fault on no node, and its event says Success.  If
nova-conductor then gives up, its own fault quotes the error of the last build; of the others Nova keeps none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared_scheduler.core.events import BuildFailure, BuildRead, BuildState
from shared_scheduler.records.store import NO_REASON

SHELVED_OFFLOADED = "shelved_offloaded"
#: The states of a server while it waits for its host, and of one whose request failed.
BEFORE_ITS_HOST, ERROR = ("building", SHELVED_OFFLOADED), "error"
#: Times of faults have whole seconds, and are those of the clocks of other machines.
CLOCKS_DIFFER_S = 5.0
#: The fault of nova-conductor when it tries no other host, and what it writes before the error of the last build.
GIVEN_UP, QUOTES = "Exceeded maximum number of retries", "Last exception: "


@dataclass(frozen=True, slots=True)
class BuildFacts:
    """The rows of a server, oldest first, with times that have a zone.

    ``since``: earlier rows are of earlier builds.  ``computes``: the hosts of compute nodes.  ``faults``: rows of
    ``instance_faults``.  ``tries``: ``host`` and ``start_time`` of each build that nova-compute has begun.
    """

    since: datetime
    computes: frozenset[str]
    faults: Iterable[Mapping[str, Any]]
    tries: Iterable[Mapping[str, Any]]

    def build(self, server: str, row: Mapping[str, Any] | None) -> BuildRead:
        """How the server stands.  ``row``: ``vm_state``, ``host`` and ``launched_at``; None: Nova does not have it."""
        failures = self._failures(ended=row is not None and row["vm_state"] == ERROR)
        if row is None:
            return BuildRead(server, BuildState.GONE, failures=failures)
        if row["vm_state"] in BEFORE_ITS_HOST:
            return BuildRead(server, BuildState.UNDER_WAY, failures=failures)
        if row["vm_state"] == ERROR:
            return BuildRead(server, BuildState.FAILED, failures=failures)
        launched_at = row["launched_at"]
        if launched_at is None or launched_at < self.since or not row["host"]:
            return BuildRead(server, BuildState.GONE)
        return BuildRead(server, BuildState.ACTIVE, row["host"], launched_at.timestamp(), failures)

    def _failures(self, ended: bool) -> tuple[BuildFailure, ...]:
        """Oldest first.  ``ended``: no build is under way, and none has succeeded."""
        found = [self._failure(one) for one in self.faults if one["created_at"] >= self.since]
        begun_s = self._begun_s()
        shown = {one.host for one in found if one.on_node}
        for host, reason in self._handed_back(found, [*begun_s], ended).items():
            if host not in shown:
                found.append(BuildFailure(host, reason, begun_s[host], on_node=True))
        return tuple(sorted(found, key=lambda one: begun_s.get(one.host, one.at_s) if one.on_node else one.at_s))

    def _begun_s(self) -> dict[str, float]:
        """Host -> when its last build began, in the order of the first ones."""
        mine = (one for one in self.tries if one["host"] and one["start_time"] >= self.since)
        return {one["host"]: one["start_time"].timestamp() for one in mine}

    @staticmethod
    def _handed_back(found: Iterable[BuildFailure], hosts: list[str], ended: bool) -> dict[str, str]:
        """Host -> why its build failed, if it was handed back to nova-conductor."""
        reasons = dict.fromkeys(hosts[:-1], NO_REASON)
        if ended and hosts:
            quoted = [one.reason.partition(QUOTES)[2] for one in found if not one.on_node and QUOTES in one.reason]
            reasons[hosts[-1]] = quoted[-1] if quoted else NO_REASON
        return reasons

    def _failure(self, fault: Mapping[str, Any]) -> BuildFailure:
        host, text = fault["host"] or "", fault["message"] or "no text"
        on_node = host in self.computes and not text.startswith(GIVEN_UP)
        return BuildFailure(host, text, fault["created_at"].timestamp(), on_node)
