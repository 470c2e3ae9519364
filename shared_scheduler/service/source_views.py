# SPDX-License-Identifier: Apache-2.0
"""Creates the views of the sources that ``service.source_differences`` compares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shared_scheduler.core.events import NodeRead
from shared_scheduler.model import leaves as names
from shared_scheduler.protocol.messages import Snapshot
from shared_scheduler.service.source_differences import AGENT, DATABASE, PLACEMENT, Fact, SourceView

#: what nova-compute counts and a claim changes; its other numbers do not concern capacity
NUMBERS = (
    "cn.vcpus_used",
    "cn.memory_mb_used",
    "cn.free_ram_mb",
    "cn.local_gb_used",
    "cn.free_disk_gb",
    "stats.num_instances",
)

IN_PLACEMENT = frozenset({"allocation", "inventory", "traits", "aggregates"})
OF_A_ROW = IN_PLACEMENT | {"number", "member"}

Row = Mapping[str, Any]  # as ``table.host_view.described`` returns it, plus ``service``


def of_table(scheduler: str, rows: Iterable[Row]) -> SourceView:
    """The facts of one scheduler's table; its own outstanding claims are not part of a row's base."""
    nodes = {row["node"]: dict(_of_row(row)) for row in rows}
    families = OF_A_ROW | {"node", "service", "position"}
    return SourceView(f"table of {scheduler}", families, nodes, whole=True)


def _of_row(row: Row) -> Iterator[tuple[Fact, Any]]:
    yield from _of_node(row["host"], row["nodename"])
    for flag, value in (row["service"] or {}).items():
        yield ("service", flag), value
    if row["epoch"]:
        yield from _position(row["epoch"], row["sequence"])
    members = {uuid for uuid, consumer in row["consumers"].items() if consumer["member"]}
    allocations = {uuid: consumer["allocations"] for uuid, consumer in row["consumers"].items()}
    yield from _of_state(row["leaves"], allocations, members)


def of_agents(snapshots: Iterable[Snapshot]) -> SourceView:
    """The facts of the agents that answered."""
    nodes = {snapshot.node: dict(_of_snapshot(snapshot)) for snapshot in snapshots}
    return SourceView(AGENT, OF_A_ROW | {"position"}, nodes)


def _of_snapshot(snapshot: Snapshot) -> Iterator[tuple[Fact, Any]]:
    yield from _position(snapshot.epoch, snapshot.sequence)
    members = {uuid for uuid, consumer in snapshot.consumers.items() if consumer.member}
    allocations = {uuid: c.allocations for uuid, c in snapshot.consumers.items()}
    yield from _of_state(snapshot.leaves, allocations, members)


def of_placement(reads: Iterable[NodeRead]) -> SourceView:
    """The facts of Placement about the nodes' provider trees."""
    nodes = {
        read.node: {
            fact: value
            for fact, value in _of_state(read.leaves, read.consumers, frozenset())
            if fact[0] in IN_PLACEMENT
        }
        for read in reads
    }
    return SourceView(PLACEMENT, IN_PLACEMENT, nodes)


def of_database(
    reads: Iterable[NodeRead], services: Mapping[str, Mapping[str, bool]], moving: frozenset[str]
) -> list[SourceView]:
    """The facts of Nova's databases.  ``services`` are flags by host.  ``moving`` nodes have no ``member`` facts,
    because both nodes of a moving instance count it in ways that the instances table does not show.
    """
    reads = list(reads)
    facts = {read.node: dict(_of_database_row(read, services)) for read in reads}
    members: dict[str, dict[Fact, Any]] = {
        read.node: {("member", uuid): True for uuid in read.members} for read in reads if read.node not in moving
    }
    return [
        SourceView(DATABASE, frozenset({"node", "service", "number"}), facts, whole=True),
        SourceView(DATABASE, frozenset({"member"}), members),
    ]


def _of_database_row(read: NodeRead, services: Mapping[str, Mapping[str, bool]]) -> Iterator[tuple[Fact, Any]]:
    yield from _of_node(read.host, read.nodename)
    for flag, value in services.get(read.host, {}).items():
        yield ("service", flag), value
    yield from _numbers(read.leaves)


def _of_node(host: str, name: str) -> Iterator[tuple[Fact, Any]]:
    yield ("node",), host
    if name:
        yield ("node", "name"), name


def _position(epoch: int, sequence: int) -> Iterator[tuple[Fact, Any]]:
    yield ("position", "epoch"), epoch
    yield ("position", "sequence"), sequence


def _of_state(
    leaves: Mapping[str, Any], allocations: Mapping[str, Any], members: Iterable[str]
) -> Iterator[tuple[Fact, Any]]:
    yield from _numbers(leaves)
    for name, value in leaves.items():
        if name.startswith(names.PROVIDER):
            yield from _of_provider(name[len(names.PROVIDER) :], value)
    for consumer, providers in allocations.items():
        for provider, amounts in providers.items():
            for resource_class, amount in amounts.items():
                yield ("allocation", consumer, provider, resource_class), amount
    for uuid in members:
        yield ("member", uuid), True


def _numbers(leaves: Mapping[str, Any]) -> Iterator[tuple[Fact, Any]]:
    for name, value in leaves.items():
        if name in NUMBERS or _is_dynamic_topology(name):
            yield ("number", name), int(value) if isinstance(value, str) else value


def _is_dynamic_topology(name: str) -> bool:
    if name == names.NUMA_STATIC or name.startswith(names.PCI_STATIC):
        return False
    return name.startswith((names.NUMA, names.PCI))


def _of_provider(uuid: str, provider: Mapping[str, Any]) -> Iterator[tuple[Fact, Any]]:
    for resource_class, inventory in provider["inventories"].items():
        yield ("inventory", uuid, resource_class), list(inventory)
    yield ("traits", uuid), list(provider["traits"])
    yield ("aggregates", uuid), list(provider["aggregates"])
