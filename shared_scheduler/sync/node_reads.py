# SPDX-License-Identifier: Apache-2.0
"""One node as Nova's databases and Placement describe it: the data of provisional rows."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from shared_scheduler.core.events import AggregateFacts, NodeNotFound, NodeRead, NodesGone, ServiceFacts, ServicesRead
from shared_scheduler.model import leaves
from shared_scheduler.model.compute_node import leaves_from_compute_node
from shared_scheduler.placement.mirror import PlacementMirror, Tree
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.sync.bounded_reads import BoundedReads
from shared_scheduler.sync.cell_reads import CellReads
from shared_scheduler.sync.databases import CellDatabase, DatabaseError
from shared_scheduler.sync.flight import Key

LOG = logging.getLogger(__name__)

#: Time for which a read of a node waits for the database of a cell: others wait for its thread.
CELL_READ_WITHIN_S = 10.0
#: Trees that are read from Placement at once, because each cell has threads of its own.  A read that has waited for so
#: long for its turn goes on without: Placement may hang, and one time-out is enough.
TREES_AT_ONCE, TURN_WITHIN_S = 4, 3.0


class NodeReads:
    """Reads nodes without an agent.  A node that has an agent by the time of its read is skipped: after a start with
    agents, all nodes wait for a second or two until their snapshots have arrived.

    Each read may raise ``DatabaseError``, also if the cell does not answer soon, and ``PlacementError``.
    """

    def __init__(
        self,
        mirror: PlacementMirror,
        cells: Callable[[], Mapping[str, CellReads]],
        agent_speaks_for: Callable[[str], bool],
        is_away: Callable[[str], bool],
    ) -> None:
        """``is_away``: whether the database of a cell is known not to answer; it is not searched then."""
        self._mirror = mirror
        self._cells = cells
        self._agent_speaks_for = agent_speaks_for
        self._is_away = is_away
        self._bounded_reads = BoundedReads(CELL_READ_WITHIN_S)
        self._turns = threading.Semaphore(TREES_AT_ONCE)

    def node(self, key: Key, began_s: float) -> Iterator[NodeRead | NodesGone | NodeNotFound | ServicesRead]:
        """``key``: cell and node; if the cell is empty, it is searched for."""
        cell, node = key
        if not cell:
            yield from self._new(node, began_s)
            return
        reads = self._cells().get(cell)
        if reads is None or self._agent_speaks_for(node):
            return
        found = False
        for event in self._of_cell(reads, node, began_s):
            found = True
            yield event
        if not found and self._cells().get(cell) is reads:
            yield NodesGone(cell, frozenset([node]))

    def _new(self, node: str, began_s: float) -> Iterator[NodeRead | NodeNotFound | ServicesRead]:
        """A node that is not known yet: finds its cell, and yields its service first."""
        unread: DatabaseError | None = None
        for reads in [reads for uuid, reads in self._cells().items() if not self._is_away(uuid)]:
            try:
                found = self._with_service(reads, node, began_s)
            except DatabaseError as error:
                unread = error
                continue
            if found:
                yield from found
                return
        if unread is not None:  # it may be there
            raise unread
        yield NodeNotFound(node, began_s)

    def _with_service(self, reads: CellReads, node: str, began_s: float) -> tuple[ServicesRead, NodeRead] | None:
        for event in self._of_cell(reads, node, began_s):
            services = self._bounded_reads.read(reads.database, partial(_service_of, reads.database, event.host))
            return ServicesRead(reads.cell, services, complete=False), event
        return None

    def _of_cell(self, reads: CellReads, node: str, began_s: float) -> Iterator[NodeRead]:
        was_listed = node in reads.nodes
        for seen in self._bounded_reads.read(reads.database, lambda: reads.seen([node])):
            event = node_read(reads.cell, *seen, self._tree(node), began_s)
            is_removed = (was_listed and node not in reads.nodes) or self._cells().get(reads.cell) is not reads
            if event is not None and not is_removed:  # the core was told that already, and is not told again
                yield event
            reads.was_read(seen)  # only after Placement has answered and the core has the event

    def _tree(self, node: str) -> Tree:
        has_turn = self._turns.acquire(timeout=TURN_WITHIN_S)
        try:
            return self._mirror.read(node)
        finally:
            if has_turn:
                self._turns.release()


def _service_of(database: CellDatabase, host: str) -> tuple[ServiceFacts, ...]:
    return database.service_exceptions(also=(host,))


def read_node(
    database: CellDatabase, mirror: PlacementMirror, node: str, clock: Callable[[], float]
) -> NodeRead | None:
    """One node as the databases and Placement describe it; None if its cell does not have it.

    :raises DatabaseError: when the database cannot be read
    :raises PlacementError: when Placement cannot be read
    """
    read_at_s = clock()
    rows = database.nodes([node])
    if not rows:
        return None
    members = database.instances([rows[0]["host"]]).get(rows[0]["host"], frozenset())
    return node_read(database.cell.uuid, rows[0], members, mirror.read(node), read_at_s)


def node_read(
    cell: str, row: Mapping[str, Any], members: frozenset[str], tree: Tree, read_at_s: float
) -> NodeRead | None:
    """Create the event; None, and an error in the log, for a record that cannot be parsed."""
    try:
        own = leaves_from_compute_node(row)
    except ValueError as error:
        LOG.error("compute node %s of host %s is skipped: %s", row["uuid"], row["host"], error)
        return None
    return NodeRead(
        cell, row["uuid"], row["host"], row["hypervisor_hostname"] or "",
        own | tree.leaves, tree.consumers, members, read_at_s, tree.generations,
    )  # fmt: skip


def with_host_aggregates(event: NodeRead, aggregates: Sequence[AggregateFacts]) -> NodeRead:
    """Add the aggregates that nova-api mirrors to Placement to the root provider.

    Used for a tree from the overview, which does not contain them.
    """
    name = leaves.PROVIDER + event.node
    root = event.leaves.get(name)
    if not isinstance(root, dict):
        return event
    own = sorted(one.uuid for one in aggregates if event.host in one.hosts)
    return replace(event, leaves={**event.leaves, name: {**root, "aggregates": list[Leaf](own)}})
