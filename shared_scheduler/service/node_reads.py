# SPDX-License-Identifier: Apache-2.0
"""Reads single nodes from the databases and Placement: the source of provisional rows.

Whoever wants a node read puts it into the queue: the core's ``RefreshNode``, the poller that saw a
change, the slow audit, the start-up.  A node waits at most once, and is read by one thread at a time.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shared_scheduler.core.events import AggregateFacts, NodeRead, NodesGone, ServicesRead
from shared_scheduler.placement.client import PlacementError
from shared_scheduler.placement.mirror import PlacementMirror, Tree
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.service.databases import CellDatabase, DatabaseError
from shared_scheduler.service.outages import Outages
from shared_scheduler.state import leaves
from shared_scheduler.state.compute_node import leaves_from_compute_node

LOG = logging.getLogger(__name__)

#: Nodes that may wait to be read.
MAX_WAITING = 50_000
#: Threads that read.  Placement has other things to do.
WORKERS = 2
#: Wait after a database or Placement did not answer, before that node is tried again.
AGAIN_S = 5.0
#: How long ``stop`` waits for a thread in the middle of a call.
JOIN_S = 12.0


class ReadQueue:
    """Nodes to read, each at most once, soonest first.  Pure."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self._max_waiting = max_waiting
        self._waiting: dict[str, tuple[float, str]] = {}  # node: when due, cell
        self._heap: list[tuple[float, str]] = []  # with entries that ``_waiting`` has overruled
        self._reading: set[str] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def due(self, now: float) -> int:
        """How many should have been read by now."""
        return sum(due_s <= now for due_s, _ in self._waiting.values())

    def put(self, cell: str, node: str, due_s: float) -> bool:
        """Read this node at ``due_s`` or before; False if too many wait."""
        waiting = self._waiting.get(node)
        if waiting is None and len(self._waiting) >= self._max_waiting:
            return False
        if waiting is None or due_s < waiting[0]:
            self._waiting[node] = (due_s, cell)
            if node not in self._reading:
                heapq.heappush(self._heap, (due_s, node))
        return True

    def take(self, now: float) -> tuple[str, str] | None:
        """(cell, node) of one that is due and that nobody is reading."""
        due_s = self.next_due_s()
        if due_s is None or due_s > now:
            return None
        _, node = heapq.heappop(self._heap)
        _, cell = self._waiting.pop(node)
        self._reading.add(node)
        return cell, node

    def done(self, node: str) -> None:
        """It has been read; it may have been wanted again in the meantime."""
        self._reading.discard(node)
        if node in self._waiting:
            heapq.heappush(self._heap, (self._waiting[node][0], node))

    def next_due_s(self) -> float | None:
        """When the next one may be taken."""
        while self._heap:
            due_s, node = self._heap[0]
            waiting = self._waiting.get(node)
            if waiting is not None and waiting[0] == due_s and node not in self._reading:
                return due_s
            heapq.heappop(self._heap)
        return None


def nobody(_node: str) -> bool:
    """There are no agents."""
    return False


class NodeReads:
    """The queue and the threads that work it off.

    A node whose agent speaks for it by the time of its turn is not read: at a start with agents all nodes
    wait here for the second or two until their snapshots have come.
    """

    def __init__(
        self,
        mirror: PlacementMirror,
        submit: Callable[[NodeRead | NodesGone | ServicesRead], None],
        clock: Callable[[], float],
        *,
        agent_speaks_for: Callable[[str], bool] = nobody,
        workers: int = WORKERS,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._mirror = mirror
        self._submit = submit
        self._clock = clock
        self._agent_speaks_for = agent_speaks_for
        self._queue = ReadQueue(max_waiting)
        self._changed = threading.Condition()
        self._stopping = False
        self._databases: Mapping[str, CellDatabase] = {}
        self._outages = Outages(LOG, clock)
        self._threads = [
            threading.Thread(target=self._work, name=f"node-reads-{number}", daemon=True)
            for number in range(workers)
        ]

    def use(self, databases: Mapping[str, CellDatabase]) -> None:
        """The databases of all cells, by cell uuid."""
        self._databases = dict(databases)

    def start(self) -> None:
        """Begin to read."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads; what waits is forgotten."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(JOIN_S)

    def put(self, cell: str, node: str, in_s: float = 0.0) -> None:
        """Read this node in so many seconds; never blocks."""
        with self._changed:
            taken = self._queue.put(cell, node, self._clock() + in_s)
            self._changed.notify()
        if not taken:
            self._outages.failed("node reads", "too many nodes wait to be read, some are not")

    def due(self) -> int:
        """Nodes that should have been read by now; others wait for their time."""
        with self._changed:
            return self._queue.due(self._clock())

    # -- threads -----------------------------------------------------------------------------

    def _work(self) -> None:
        while (found := self._next()) is not None:
            cell, node = found
            try:
                self._read(cell, node)
            except Exception:
                LOG.exception("reading node %s failed in an unforeseen way", node)
            finally:
                with self._changed:
                    self._queue.done(node)
                    self._changed.notify()

    def _next(self) -> tuple[str, str] | None:
        with self._changed:
            while not self._stopping:
                found = self._queue.take(self._clock())
                if found is not None:
                    return found
                due_s = self._queue.next_due_s()
                self._changed.wait(None if due_s is None else max(due_s - self._clock(), 0.01))
        return None

    def _read(self, cell: str, node: str) -> None:
        try:
            event = self._read_new(node) if not cell else self._read_known(cell, node)
        except (DatabaseError, PlacementError) as error:
            self._outages.failed(_reading(cell), f"node {node} cannot be read: {error}")
            self.put(cell, node, AGAIN_S)
            return
        self._outages.recovered(_reading(cell))
        if event is not None:
            self._submit(event)

    def _read_known(self, cell: str, node: str) -> NodeRead | NodesGone | None:
        database = self._databases.get(cell)
        if database is None or self._agent_speaks_for(node):
            return None
        event = read_node(database, self._mirror, node, self._clock)
        return event or NodesGone(cell, frozenset([node]))

    def _read_new(self, node: str) -> NodeRead | None:
        """A node that nobody told of: the cell that has it, with its service before it."""
        for uuid, database in self._databases.items():
            event = read_node(database, self._mirror, node, self._clock)
            if event is not None:
                services = database.service_exceptions(also=(event.host,))
                self._submit(ServicesRead(uuid, services, complete=False))
                return event
        return None


def _reading(cell: str) -> str:
    return f"reading nodes of cell {cell}"


def read_node(
    database: CellDatabase, mirror: PlacementMirror, node: str, clock: Callable[[], float]
) -> NodeRead | None:
    """One node as databases and Placement see it; None if its cell does not have it (any more).

    Raises ``DatabaseError`` or ``PlacementError``.
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
    """Make the event; None for a record that does not parse (said in the log)."""
    try:
        own = leaves_from_compute_node(row)
    except ValueError as error:
        LOG.error("compute node %s of host %s is left out: %s", row["uuid"], row["host"], error)
        return None
    return NodeRead(
        cell, row["uuid"], row["host"], row["hypervisor_hostname"] or "",
        own | tree.leaves, tree.consumers, members, read_at_s,
    )  # fmt: skip


def with_host_aggregates(event: NodeRead, aggregates: Sequence[AggregateFacts]) -> NodeRead:
    """Give the root provider the aggregates that nova-api mirrors to Placement.

    For a tree that was only seen in an overview, which does not tell them.
    """
    name = leaves.PROVIDER + event.node
    root = event.leaves.get(name)
    if not isinstance(root, dict):
        return event
    own = sorted(one.uuid for one in aggregates if event.host in one.hosts)
    return replace(event, leaves={**event.leaves, name: {**root, "aggregates": list[Leaf](own)}})
