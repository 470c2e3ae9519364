# SPDX-License-Identifier: Apache-2.0
"""A copy of a host table, made in parts while the table keeps changing.

A trial ("would 40 of these fit?") places servers, and the table of a running scheduler must not show them.  Copying
ten thousand rows at once would hold up decisions for a tenth of a second.  So the rows are copied in parts, and those
that changed meanwhile are copied again, as in the live migration of a virtual machine.  When few are left, they, the
columns and the indexes are copied in one last part, and the copy is the table at that moment.

=========  =========================================  ========  ======================================================
state      condition                                  next      work of the part
=========  =========================================  ========  ======================================================
COPYING    slots are left of this round               COPYING   copy ``ROWS_PER_PART`` of them
COPYING    none is left, many rows have changed       COPYING   begin a round with the changed rows
COPYING    none is left, few rows have changed        COMPLETE  copy these, columns, services, aggregates, members
COPYING    none is left after ``ROUNDS_MAX`` rounds   -         ``TableChangesTooFastError``
=========  =========================================  ========  ======================================================

Leaves, stored consumers and providers are replaced and never changed in place, so both tables share them.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import RootInventory, Row

#: Rows that are copied in one part, which takes about a millisecond.
ROWS_PER_PART = 128
#: Rounds after which the rows change faster than they are copied.
ROUNDS_MAX = 50


class TableChangesTooFastError(Exception):
    """More rows change than can be copied meanwhile."""


class TableCopy:
    """Call ``copy_part`` until it returns False, each time while the source does not change; then ``finish``."""

    def __init__(self, source: HostTable) -> None:
        self._source = source
        self._rows: dict[int, Row | None] = {}
        self._left: list[int] = []
        self._seen = -1  # the generation at which the round began
        self._rounds = 0
        self._table: HostTable | None = None

    def copy_part(self) -> bool:
        """Copy the next rows, or complete the copy.  Returns whether more parts are needed.

        :raises TableChangesTooFastError: when the copy cannot be completed
        """
        if not self._left:
            self._left = self._changed()
            self._seen = self._source.generation
            if len(self._left) <= ROWS_PER_PART:
                self._copy_rows(self._left)
                self._table = self._complete()
                return False
            self._rounds += 1
            if self._rounds > ROUNDS_MAX:
                raise TableChangesTooFastError("the rows of the hosts change faster than they can be copied; try again")
        part, self._left = self._left[:ROWS_PER_PART], self._left[ROWS_PER_PART:]
        self._copy_rows(part)
        return True

    def finish(self) -> HostTable:
        """The copy.  It does not read the source, so the source may change meanwhile."""
        assert self._table is not None, "copy_part has returned True"
        self._rows.clear()
        self._table.index_rows()
        return self._table

    def _changed(self) -> list[int]:
        columns = self._source.columns
        changed: list[int] = np.flatnonzero(columns.changed_at.array[: columns.high] > self._seen).tolist()
        return changed

    def _copy_rows(self, slots: list[int]) -> None:
        for slot in slots:
            row = self._source.row(slot)
            self._rows[slot] = None if row is None else _copied(row)

    def _complete(self) -> HostTable:
        memo: dict[int, Any] = {}
        columns = copy.deepcopy(self._source.columns, memo)
        rows = [self._rows.get(slot) for slot in range(columns.high)]
        roots: dict[RootInventory, RootInventory] = {}
        for row in filter(None, rows):
            if row.root not in roots:
                roots[row.root] = _root(row.root, memo)
            row.root = roots[row.root]
        return self._source.copy_with(columns, rows)


def _copied(row: Row) -> Row:
    found = copy.copy(row)
    found.leaves, found.consumers = dict(row.leaves), dict(row.consumers)
    found.groups, found.pending = dict(row.groups), dict(row.pending)
    found.claims = {claim_id: copy.copy(claim) for claim_id, claim in row.claims.items()}
    found.extra = copy.copy(row.extra)
    found.used = {provider: dict(amounts) for provider, amounts in row.used.items()}
    return found


def _root(root: RootInventory, memo: dict[int, Any]) -> RootInventory:
    """``root`` with the columns of the copy in its limits; ``memo``: see ``copy.deepcopy``."""
    limits = {rc: (capacity, most, memo[id(room)]) for rc, (capacity, most, room) in root.limits.items()}
    return RootInventory(root.inventories, limits)
