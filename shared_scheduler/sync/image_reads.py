# SPDX-License-Identifier: Apache-2.0
"""What the images of servers ask of spreading, from Nova's databases.

Nova sends a scheduler only the properties of an image that it knows itself.  It keeps all of them with the server: for
a new one in the API database, then in the database of its cell, until the server is deleted or rebuilt with another
image.  Moves and unshelving leave them as they are.

A request reads them once, for all of its servers, because these have the same image: one query of the API database,
and one of the cell if the server is there already.  No decision goes on with what an earlier one has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from shared_scheduler.core.effects import AskGroup
from shared_scheduler.sync.bounded_reads import BoundedReads
from shared_scheduler.sync.databases import ApiDatabase, Cell, CellDatabase, DatabaseError

Found = TypeVar("Found")

#: A read of a cell has this time at least, whatever the API database needed: it does not count as one that hangs.
LEAST_S = 1.0


class ImageReads:
    """Any thread may use it."""

    def __init__(
        self,
        api: ApiDatabase,
        open_now: Callable[[str], CellDatabase | None],
        open_cell: Callable[[Cell], CellDatabase],
        reads: BoundedReads,
        clock: Callable[[], float],
    ) -> None:
        """``open_now``: the database of a cell that is polled.  ``open_cell`` opens that of any other one: cell 0, or a
        disabled cell, which servers may leave.  ``reads``: of its own, because other tables may be readable while these
        are locked."""
        self._api = api
        self._open_now = open_now
        self._open_cell = open_cell
        self._reads = reads
        self._clock = clock

    def properties(self, servers: Sequence[str], within_s: float) -> Mapping[str, str]:
        """The properties that ask for spreading of the image of these servers, which have the same one.

        :raises DatabaseError: when they cannot be read, or not in this time
        """
        until_s, named = self._clock() + within_s, [server for server in servers if server]
        if not named:
            raise DatabaseError("the request names no server")
        found = self._reads.read(self._api, lambda: self._api.image_of(named), within_s)
        if found is None:
            raise DatabaseError("[api_database]: Nova knows no server of the request any more; they may be deleted")
        if found.cell is None:
            return found.properties
        server, left_s = found.server, max(LEAST_S, until_s - self._clock())
        return self._of_cell(found.cell, lambda cell: cell.image_properties(server), left_s)

    def labelled(self, question: AskGroup) -> dict[str, str | None]:
        """The servers of a project whose image has a label, as ``ApiDatabase.members_of`` returns them.

        The order of the reads misses none: a server has its build request until the conductor has mapped it to its
        cell, which has it then.

        :raises DatabaseError: when a database that may have such servers cannot be read in time
        """
        project, label = question.project_id, question.label
        new = self._reads.read(self._api, lambda: self._api.new_with_image_label(project, label))
        cells = self._reads.read(self._api, lambda: self._api.cells_of_project(project))
        built = (self._of_cell(uuid, lambda cell: cell.with_image_label(project, label)) for uuid in sorted(cells))
        servers = new.union(*built)
        return self._reads.read(self._api, lambda: self._api.members_among(servers)) if servers else {}

    def _of_cell(self, uuid: str, read: Callable[[CellDatabase], Found], within_s: float | None = None) -> Found:
        def reading() -> Found:
            with self._opened(uuid) as database:
                return read(database)

        return self._reads.read(self._open_now(uuid) or f"the database of cell {uuid}", reading, within_s)

    @contextmanager
    def _opened(self, uuid: str) -> Iterator[CellDatabase]:
        polled = self._open_now(uuid)
        if polled is not None:
            yield polled
            return
        found = next((cell for cell in self._api.cells() if cell.uuid == uuid), None)
        if found is None:
            raise DatabaseError(f"cell {uuid}, to which a server is mapped, does not exist any more")
        database = self._open_cell(found)
        try:
            yield database
        finally:
            database.close()
