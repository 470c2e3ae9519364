# SPDX-License-Identifier: Apache-2.0
"""Everything that reads databases and Placement, as one part: start-up, polling, reads on demand."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from shared_scheduler.core.effects import RefreshNode
from shared_scheduler.core.events import (
    AggregatesRead,
    NodeRead,
    NodesGone,
    ServicesRead,
    SharingRead,
)
from shared_scheduler.placement.mirror import PlacementMirror
from shared_scheduler.service.bootstrap import Bootstrap, Loaded, fill
from shared_scheduler.service.databases import ApiDatabase, Cell, CellDatabase
from shared_scheduler.service.node_reads import NodeReads
from shared_scheduler.service.poller import CellPoll, Intervals, Poller
from shared_scheduler.service.rounds import Round

LOG = logging.getLogger(__name__)

Event = ServicesRead | AggregatesRead | SharingRead | NodeRead | NodesGone


class Reading:
    """The ``Reader`` of the engine."""

    def __init__(
        self,
        api: ApiDatabase,
        open_cell: Callable[[Cell], CellDatabase],
        mirror: PlacementMirror,
        submit: Callable[[Event], None],
        agent_speaks_for: Callable[[str], bool],
        intervals: Intervals,
        clock: Callable[[], float] = time.monotonic,
        also: Sequence[Round] = (),
    ) -> None:
        """``also``: what else is asked of Placement now and then."""
        self._api = api
        self._open_cell = open_cell
        self._agent_speaks_for = agent_speaks_for
        self._bootstrap = Bootstrap(api, open_cell, mirror, submit, clock)
        self._reads = NodeReads(mirror, submit, clock, agent_speaks_for=agent_speaks_for)
        self._poller = Poller(
            api, mirror, self._reads, submit, agent_speaks_for, intervals=intervals, clock=clock,
            also=also,
        )  # fmt: skip
        self._databases: dict[str, CellDatabase] = {}
        self._stopped = threading.Event()
        self._fill: threading.Thread | None = None

    def start(self) -> None:
        """Begin to read; nothing is polled before ``load``."""
        self._reads.start()
        self._poller.start()

    def load(self) -> tuple[Cell, ...]:
        """The start-up: returns all cells when the table can be chosen from.

        :raises DatabaseError: the API database, or every cell, cannot be read
        """
        loaded = self._bootstrap.load()
        self._databases = dict(loaded.databases)
        self._poller.use(self._databases, loaded.nodes)
        self._fill = threading.Thread(
            target=self._fill_in, args=(loaded,), name="fill", daemon=True
        )
        self._fill.start()
        return loaded.cells

    def polls(self) -> Mapping[str, CellPoll]:
        """What the poller asks of each cell, by cell uuid."""
        return self._poller.polls()

    def cells(self) -> tuple[Cell, ...]:
        """Read the cells again.

        :raises DatabaseError: the API database cannot be read
        """
        return self._api.cells()

    def use(self, cells: tuple[Cell, ...]) -> None:
        """Poll those of these cells that are new or have moved, leave those that are gone or disabled."""
        before = self._databases
        self._databases = {cell.uuid: self._database(cell) for cell in cells if cell.schedulable}
        self._poller.use(self._databases, {})
        for uuid, database in before.items():
            if self._databases.get(uuid) is not database:
                database.close()

    def _database(self, cell: Cell) -> CellDatabase:
        known = self._databases.get(cell.uuid)
        if known is not None and known.cell.database_url == cell.database_url:
            return known
        return self._open_cell(cell)

    def submit(self, effect: RefreshNode) -> None:
        """Read one node; never blocks."""
        self._poller.refresh(effect)

    def stop(self) -> None:
        """End all threads."""
        self._stopped.set()
        self._poller.stop()
        self._reads.stop()
        if self._fill is not None:
            self._fill.join()
        for database in self._databases.values():
            database.close()
        self._api.close()

    def _fill_in(self, loaded: Loaded) -> None:
        try:
            fill(loaded, self._reads, self._agent_speaks_for, self._stopped)
        except Exception:
            LOG.exception("reading the hosts without an agent failed; the poller goes on")
