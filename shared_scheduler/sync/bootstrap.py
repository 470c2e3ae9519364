# SPDX-License-Identifier: Apache-2.0
"""The start-up: fills the empty table with hosts that can be selected within seconds, with a bounded number of reads.

::

    API database     cells, aggregates
    each cell        services, compute nodes, instances: three queries, cells in parallel
    Placement        one call that returns every node with free capacity: inventories, usages, traits;
                     and a small one for the providers that share with other trees
    ------------------------------------------------------------------ the service is usable here
    agents           answer the Hello, each with its snapshot, spread over some seconds
    Placement        then the exact tree of every node without an agent, a few at a time (source "fill")

The call over all nodes costs Placement about 0.35 ms for each node, once in each start.  If it fails, the rows wait for
their agents or for the exact read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from shared_scheduler.core.events import AggregateFacts, AggregatesRead, NodeRead, ServicesRead, SharingRead
from shared_scheduler.model.providers import Provider
from shared_scheduler.placement.connection import PlacementError
from shared_scheduler.placement.mirror import PlacementMirror, Tree
from shared_scheduler.sync.bounded_reads import begin
from shared_scheduler.sync.databases import ApiDatabase, Cell, CellDatabase, DatabaseError
from shared_scheduler.sync.node_reads import node_read, with_host_aggregates

LOG = logging.getLogger(__name__)

#: The name of its threads.
THREAD = "bootstrap"
#: Cells that are read in parallel.
CELLS_AT_ONCE = 4
#: The start goes on without a cell that has not been read for so long since its read began, as Nova does.
ANSWERS_WITHIN_S = 60.0
#: What a read of Placement raises: there was no answer, or one of another shape.
UNREADABLE = (PlacementError, AttributeError, LookupError, TypeError, ValueError)
Submit = Callable[[ServicesRead | AggregatesRead | SharingRead | NodeRead], None]
#: Services and nodes of one cell.
CellFound = tuple[ServicesRead, list[NodeRead]]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of the start-up.  ``unread`` cells did not answer; the polls read them later."""

    cells: tuple[Cell, ...]
    databases: Mapping[str, CellDatabase] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    nodes: Mapping[str, str] = field(default_factory=dict)  # node uuid: cell uuid


class Bootstrap:
    """One start-up.  ``open_cell`` creates the database object of a cell, without a connection."""

    def __init__(
        self,
        api: ApiDatabase,
        open_cell: Callable[[Cell], CellDatabase],
        mirror: PlacementMirror,
        submit: Submit,
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._open_cell = open_cell
        self._mirror = mirror
        self._submit = submit
        self._clock = clock

    def load(self) -> Loaded:
        """Read everything in bulk and submit it.

        :raises DatabaseError: when the API database cannot be read, or no cell can be read
        """
        started_s = self._clock()
        cells = self._api.cells()
        aggregates = self._api.aggregates()
        self._submit(AggregatesRead(aggregates, complete=True))
        databases = {cell.uuid: self._open_cell(cell) for cell in cells if cell.schedulable}
        nodes = self._nodes_of_all(databases, aggregates)
        unread = {uuid: error for uuid, error in nodes.items() if isinstance(error, DatabaseError)}
        if unread and len(unread) == len(databases):
            raise next(iter(unread.values()))
        found = {
            node: uuid
            for uuid, part in nodes.items() if not isinstance(part, DatabaseError)
            for node in part
        }  # fmt: skip
        LOG.info(
            "read %d compute nodes of %d cells and %d aggregates in %.1f s", len(found),
            len(databases) - len(unread), len(aggregates), self._clock() - started_s,
        )  # fmt: skip
        return Loaded(cells, databases, frozenset(unread), found)

    def _nodes_of_all(
        self, databases: Mapping[str, CellDatabase], aggregates: Sequence[AggregateFacts]
    ) -> dict[str, list[str] | DatabaseError]:
        """Read Placement and all cells, and submit what is found; returns the nodes of each cell, or the error."""
        trees, sharing = begin(THREAD, self._overview), begin(THREAD, self._sharing)
        turns = threading.Semaphore(CELLS_AT_ONCE)
        parts = {uuid: self._begin(database, trees.result, aggregates, turns) for uuid, database in databases.items()}
        trees.result()
        nodes = {uuid: self._nodes_of(part, turns) for uuid, part in parts.items()}
        self._share(sharing.result())
        return nodes

    def _overview(self) -> dict[str, Tree]:
        try:
            return self._mirror.overview()
        except UNREADABLE as error:
            LOG.warning("starting without an overview of Placement: %r", error)
            return {}

    def _sharing(self) -> Mapping[str, Provider] | None:
        try:
            return self._mirror.sharing()
        except UNREADABLE as error:
            LOG.warning("starting without the providers that share: %r", error)
            return None

    def _share(self, providers: Mapping[str, Provider] | None) -> None:
        if providers is not None:
            self._submit(SharingRead(providers))

    def _begin(
        self,
        database: CellDatabase,
        trees: Callable[[], Mapping[str, Tree]],
        aggregates: Sequence[AggregateFacts],
        turns: threading.Semaphore,
    ) -> _Part:
        """Read one cell when it is its turn."""
        began_s: Future[float] = Future()

        def read() -> CellFound:
            with turns:
                known = trees()
                began_s.set_result(self._clock())
                return read_cell(database, known, aggregates, self._clock)

        return _Part(database, began_s, begin(THREAD, read))

    def _nodes_of(self, part: _Part, turns: threading.Semaphore) -> list[str] | DatabaseError:
        """Submit one cell; returns the uuids of its nodes, or the error.

        One that hangs gives its turn to another.  Its thread goes on, and what it finds is dropped: by then, the polls
        have read what is newer."""
        try:
            until_s = part.began_s.result(ANSWERS_WITHIN_S) + ANSWERS_WITHIN_S
            services, nodes = part.found.result(max(0.0, until_s - self._clock()))
        except TimeoutError:
            turns.release()
            unread = DatabaseError(f"its database has not answered for {ANSWERS_WITHIN_S:.0f} s")
        except DatabaseError as error:
            unread = error
        else:
            self._submit(services)
            for event in nodes:
                self._submit(event)
            return [event.node for event in nodes]
        LOG.error("starting without cell %s: %s", part.database.cell.name, unread)
        return unread


@dataclass(frozen=True, slots=True)
class _Part:
    """The read of one cell; ``began_s``: when it was its turn."""

    database: CellDatabase
    began_s: Future[float]
    found: Future[CellFound]


def read_cell(
    database: CellDatabase,
    trees: Mapping[str, Tree],
    aggregates: Sequence[AggregateFacts],
    clock: Callable[[], float],
) -> CellFound:
    """:raises DatabaseError: when the cell cannot be read"""
    cell, read_at_s = database.cell.uuid, clock()
    services, rows, members = database.services(), database.nodes(), database.instances()
    nodes = []
    for row in rows:
        tree = trees.get(row["uuid"], Tree())
        event = node_read(cell, row, members.get(row["host"], frozenset()), tree, read_at_s)
        if event is not None:
            nodes.append(with_host_aggregates(event, aggregates))
    return ServicesRead(cell, services, complete=True), nodes
