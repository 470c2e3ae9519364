# SPDX-License-Identifier: Apache-2.0
"""Compares what several sources report about the same nodes, and finds differences and over-commit.

Each source is a ``SourceView``: facts by node; a fact is a family, a key and a value.  A family has one authority (see
the design page); every other source that covers the family must report the same value for each node that both know.
A source that covers a family covers all of it, so a missing fact is a difference too.

=============  =======================================  ============================================
family         key                                      authority
=============  =======================================  ============================================
``node``       () is its host, ("name",) its name       Nova's database
``service``    (flag,)                                  Nova's database
``member``     (instance or migrated instance uuid,)    the agent, else Nova's database
``number``     (leaf,)                                  the agent, else Nova's database
``allocation`` (consumer, provider, resource class)     Placement
``inventory``  (provider, resource class)               Placement
``traits``     (provider,)                              Placement
``aggregates`` (provider,)                              Placement
``position``   ("epoch",) and ("sequence",)             the agent
=============  =======================================  ============================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Fact = tuple[str, ...]  # family and key

DATABASE = "nova database"
PLACEMENT = "placement"
AGENT = "agent"

AUTHORITIES: Mapping[str, tuple[str, ...]] = {
    "node": (DATABASE,),
    "service": (DATABASE,),
    "member": (AGENT, DATABASE),
    "number": (AGENT, DATABASE),
    "allocation": (PLACEMENT,),
    "inventory": (PLACEMENT,),
    "traits": (PLACEMENT,),
    "aggregates": (PLACEMENT,),
    "position": (AGENT,),
}


@dataclass(frozen=True, slots=True)
class SourceView:
    """The facts of one source.  ``whole`` families: a node that is missing here does not exist."""

    source: str
    families: frozenset[str]
    nodes: Mapping[str, Mapping[Fact, Any]]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class SourceDifference:
    """``source`` has ``value``, and ``authority`` has ``expected``; None: the fact is missing."""

    node: str
    fact: Fact
    authority: str
    expected: Any
    source: str
    value: Any

    def __str__(self) -> str:
        return (
            f"{self.node}: {' '.join(self.fact)}: {self.source} says {_in_words(self.value)}, "
            f"{self.authority} says {_in_words(self.expected)}"
        )


def _in_words(value: Any) -> str:
    """A value as an operator reads it; None is a missing fact."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "nothing" if value is None else repr(value)


def hosts_of(views: Iterable[SourceView]) -> dict[str, str]:
    """Node -> the name of its host, of the nodes of which a source has it."""
    facts = ((node, known.get(("node",))) for view in views for node, known in view.nodes.items())
    return {node: str(host) for node, host in facts if host}


def with_hosts(lines: Iterable[str], hosts: Mapping[str, str]) -> list[str]:
    """Lines that begin with a node and a colon, with the name of its host before it."""
    nodes = ((line.partition(":")[0], line) for line in lines)
    return [f"{hosts[node]} ({node}){line[len(node) :]}" if node in hosts else line for node, line in nodes]


def differences(views: Sequence[SourceView]) -> list[SourceDifference]:
    """All facts on which a source and the authority differ, in a stable order."""
    found = [
        difference
        for family in AUTHORITIES
        for difference in _of_family(family, [p for p in views if family in p.families])
    ]
    return sorted(found, key=lambda d: (d.node, d.fact, d.source))


def _of_family(family: str, views: Sequence[SourceView]) -> Iterator[SourceDifference]:
    for node in sorted({node for view in views for node in view.nodes}):
        speakers = [p for p in views if node in p.nodes or p.whole]
        truth = _authority(family, node, speakers)
        if truth is None:
            continue
        for view in speakers:
            if view is not truth:
                yield from _between(family, node, truth, view)


def _authority(family: str, node: str, speakers: Iterable[SourceView]) -> SourceView | None:
    """The first authority of the family that knows the node."""
    by_source = {view.source: view for view in speakers}
    return next((by_source[s] for s in AUTHORITIES[family] if s in by_source), None)


def _between(family: str, node: str, truth: SourceView, other: SourceView) -> Iterator[SourceDifference]:
    expected, said = _facts(family, truth, node), _facts(family, other, node)
    for fact in sorted(expected.keys() | said.keys()):
        if expected.get(fact) != said.get(fact):
            yield SourceDifference(node, fact, truth.source, expected.get(fact), other.source, said.get(fact))


def _facts(family: str, view: SourceView, node: str) -> dict[Fact, Any]:
    return {f: v for f, v in view.nodes.get(node, {}).items() if f[0] == family}


def overcommitted(placement: SourceView) -> list[str]:
    """One sentence for each provider and resource class with more allocations than capacity."""
    used: dict[tuple[str, str], int] = {}
    rooms: dict[tuple[str, str], Sequence[Any]] = {}
    for facts in placement.nodes.values():
        for fact, value in facts.items():
            if fact[0] == "allocation":
                used[fact[2], fact[3]] = used.get((fact[2], fact[3]), 0) + value
            elif fact[0] == "inventory":
                rooms[fact[1], fact[2]] = value
    return [
        f"{provider}: {amount} {resource_class} allocated, the capacity is {capacity}"
        for (provider, resource_class), amount in sorted(used.items())
        if amount > (capacity := _capacity(rooms.get((provider, resource_class))))
    ]


def _capacity(inventory: Sequence[Any] | None) -> int:
    if inventory is None:
        return 0
    total, reserved, _min, _max, _step, ratio = inventory
    return int((total - reserved) * ratio)


def orphans(placement: SourceView, owners: frozenset[str]) -> list[str]:
    """One sentence for each consumer that neither an instance nor a migration under way owns."""
    consumers = {fact[1]: node for node, facts in placement.nodes.items() for fact in facts if fact[0] == "allocation"}
    return [
        f"{node}: consumer {consumer} has an allocation, and no instance or migration under way owns it"
        for consumer, node in sorted(consumers.items())
        if consumer not in owners
    ]
