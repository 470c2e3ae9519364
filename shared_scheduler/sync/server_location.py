# SPDX-License-Identifier: Apache-2.0
"""Where a server is according to Nova's databases, and whether it has a task under way.

``placement.reconciler`` asks this before it deletes an allocation.  Nova-api sets ``task_state`` before it casts a
move, and nova-compute clears it with or after the record of the new host (nova/compute/manager.py), with two
exceptions: an evacuation clears it first, so its migration record counts as well, and a build has none for a moment, so
``vm_state`` counts.  While a server moves to another cell, the records of both cells count as under way: one by
``task_state``, the other as hidden.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing

from shared_scheduler.placement.reconciler import ServerActivity, ServerLocation
from shared_scheduler.sync.bounded_reads import BoundedReads
from shared_scheduler.sync.databases import CELL0, ApiDatabase, Cell, CellDatabase, DatabaseError, ServerFacts

LOG = logging.getLogger(__name__)

BUILDING = "building"


class Locator:
    """``open_cell`` opens the database of any cell, including disabled ones."""

    def __init__(self, api: ApiDatabase, open_cell: Callable[[Cell], CellDatabase]) -> None:
        self._api = api
        self._open_cell = open_cell
        self._reads = BoundedReads()

    def locate(self, server: str) -> ServerLocation:
        """The present location; ``UNREAD`` if a database cannot be read, or does not answer soon: writers ask this, and
        have other servers to write."""
        try:
            uuid, deleted = self._reads.read(self._api, lambda: self._api.mapping_of(server))
            if uuid is None or uuid == CELL0:
                return ServerLocation(ServerActivity.NO_OWNER, deleted=deleted or uuid == CELL0)
            return location_of(self._reads.read(f"the database of cell {uuid}", lambda: self._read(uuid, server)))
        except DatabaseError as error:
            LOG.warning("Cannot read the host of server %s: %s", server, error)
            return ServerLocation(ServerActivity.UNREAD)

    def _read(self, uuid: str, server: str) -> ServerFacts | None:
        for cell in self._api.cells():
            if cell.uuid == uuid:
                with closing(self._open_cell(cell)) as database:
                    return database.server(server)
        raise DatabaseError(f"cell {uuid}, to which it is mapped, does not exist any more")


def location_of(facts: ServerFacts | None) -> ServerLocation:
    """The location of a server that is mapped to a cell; None: the cell has deleted it."""
    if facts is None:
        return ServerLocation(ServerActivity.NO_OWNER, deleted=True)
    begun = facts.task_state is not None or facts.vm_state == BUILDING
    lost = facts.host is not None and facts.node is None  # its compute node is unknown
    if begun or lost or facts.hidden or facts.evacuating:
        return ServerLocation(ServerActivity.UNDER_WAY, move=facts.move or "", migration=facts.migration or "")
    return ServerLocation(ServerActivity.AT_REST, facts.node)
