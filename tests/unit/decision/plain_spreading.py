# SPDX-License-Identifier: Apache-2.0
"""The semantics of spreading in plain Python, host by host, as the oracle of the decision over columns."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from shared_scheduler.decision.request import SpreadConstraint, SpreadMode


@dataclass(frozen=True)
class PlainHost:
    """``values``: the values of its aggregates for each key; ``selected``: the request could be placed here in general;
    ``free``: it has room now."""

    name: str
    values: dict[str, frozenset[str]] = field(default_factory=dict)
    servers: tuple[str, ...] = ()
    selected: bool = True
    free: bool = True

    def domain(self, key: str) -> str | None:
        values = self.values.get(key, frozenset())
        return next(iter(values)) if len(values) == 1 else None


def skews(
    hosts: list[PlainHost], constraints: list[SpreadConstraint], one: SpreadConstraint, own: str
) -> dict[str, int]:
    """The skew of each domain of ``one`` with an eligible host."""
    eligible = [host for host in hosts if host.selected and all(host.domain(each.key) for each in constraints)]
    counts = Counter[str]({host.domain(one.key) or "": 0 for host in eligible})
    for host in eligible:
        counts[host.domain(one.key) or ""] += sum(server != own for server in host.servers)
    return {domain: count + 1 - min(counts.values()) for domain, count in counts.items()}


def passing(hosts: list[PlainHost], constraints: tuple[SpreadConstraint, ...], own: str) -> set[str]:
    """The hosts that pass the hard constraints."""
    hard = [one for one in constraints if one.mode == SpreadMode.HARD]
    by_constraint = [(one, skews(hosts, hard, one, own)) for one in hard]
    return {
        host.name
        for host in hosts
        if host.selected and host.free
        if all(found.get(host.domain(one.key) or "", one.max_skew + 1) <= one.max_skew for one, found in by_constraint)
    }


def penalties(hosts: list[PlainHost], constraints: tuple[SpreadConstraint, ...], own: str) -> dict[str, int]:
    """By host, the sum of the skews beyond ``max_skew`` of the soft constraints."""
    soft = [one for one in constraints if one.mode == SpreadMode.SOFT]
    found = {host.name: 0 for host in hosts}
    for one in soft:
        excess = {domain: max(skew - one.max_skew, 0) for domain, skew in skews(hosts, soft, one, own).items()}
        worst = max(excess.values(), default=0)
        for host in hosts:
            found[host.name] += excess.get(host.domain(one.key) or "", worst)
    return found
