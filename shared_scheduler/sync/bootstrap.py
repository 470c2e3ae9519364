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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shared_scheduler.core.events import AggregateFacts, AggregatesRead, NodeRead, ServicesRead, SharingRead
from shared_scheduler.model.providers import Provider
from shared_scheduler.placement.connection import PlacementError
from shared_scheduler.placement.mirror import PlacementMirror, Tree
from shared_scheduler.sync.databases import ApiDatabase, Cell, CellDatabase, DatabaseError
from shared_scheduler.sync.node_reads import node_read, with_host_aggregates

LOG = logging.getLogger(__name__)

#: Cells that are read in parallel.
CELLS_AT_ONCE = 4
#: What a read of Placement raises: there was no answer, or one of another shape.
UNREADABLE = (PlacementError, AttributeError, LookupError, TypeError, ValueError)
Found = TypeVar("Found")
Submit = Callable[[ServicesRead | AggregatesRead | SharingRead | NodeRead], None]


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
        with ThreadPoolExecutor(CELLS_AT_ONCE + 2, "bootstrap") as pool:
            trees, sharing = _begin(pool, self._overview), _begin(pool, self._sharing)
            parts = {
                uuid: _begin(pool, self._cell, database, trees.result, aggregates)
                for uuid, database in databases.items()
            }
            nodes = {uuid: part.result() for uuid, part in parts.items()}
            self._share(sharing.result())
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

    def _cell(
        self,
        database: CellDatabase,
        trees: Callable[[], Mapping[str, Tree]],
        aggregates: Sequence[AggregateFacts],
    ) -> list[str] | DatabaseError:
        """Submit one cell; returns the uuids of its nodes, or the error."""
        try:
            return load_cell(database, trees(), aggregates, self._submit, self._clock)
        except DatabaseError as error:
            LOG.error("starting without cell %s: %s", database.cell.name, error)
            return error


def _begin(pool: ThreadPoolExecutor, function: Callable[..., Found], *arguments: Any) -> Future[Found]:
    """Start the function in a thread of the pool; its queries are added to the cost of this read."""
    return pool.submit(copy_context().run, function, *arguments)


def load_cell(
    database: CellDatabase,
    trees: Mapping[str, Tree],
    aggregates: Sequence[AggregateFacts],
    submit: Submit,
    clock: Callable[[], float],
) -> list[str]:
    """Submit services and nodes of one cell; returns the uuids of its nodes.

    :raises DatabaseError: when the cell cannot be read
    """
    cell, read_at_s = database.cell.uuid, clock()
    services, rows, members = database.services(), database.nodes(), database.instances()
    submit(ServicesRead(cell, services, complete=True))
    nodes = []
    for row in rows:
        tree = trees.get(row["uuid"], Tree())
        event = node_read(cell, row, members.get(row["host"], frozenset()), tree, read_at_s)
        if event is not None:
            submit(with_host_aggregates(event, aggregates))
            nodes.append(row["uuid"])
    return nodes
