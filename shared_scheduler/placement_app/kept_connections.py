# SPDX-License-Identifier: Apache-2.0
"""Connections to the database that the write path keeps between its transactions.

The pool of Placement asks a connection for a sign of life before it lends it, and rolls it back when it is returned:
two of the eight round trips of a write.  A connection whose transaction was committed needs neither.

A server or a load balancer may have closed an idle connection.  The transaction then failed at its first statement, and
is begun once more on a connection of the pool.  A connection whose transaction failed is returned to the pool.

A firewall drops an idle connection without closing it: the next statement waits.  So no connection is kept longer than
the pool itself would keep it (``[placement_database] connection_recycle_time``).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import sqlalchemy as sa
from oslo_db import exception as db_exception

#: At most this part of the pool is kept, because Placement's own handlers need connections as well.
KEPT_PART = 2


class Lent(NamedTuple):
    """A connection, and when the pool has lent it."""

    connection: sa.Connection
    at_s: float


class KeptConnections:
    """Threads may share it."""

    def __init__(
        self, engine: Callable[[], sa.Engine], recycle_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``recycle_s``: how long a connection may be kept; -1: without an end."""
        self._engine = engine
        self._recycle_s = recycle_s
        self._clock = clock
        self._idle: deque[Lent] = deque()

    def transaction(self, work: Callable[[sa.Connection], None]) -> None:
        """Do this in a transaction, which is committed, or rolled back with any exception.

        :raises Exception: when ``work`` raises it, or the database fails
        """
        engine = self._engine()
        kept = self._take(engine)
        if kept is not None:
            try:
                return self._carry_out(work, kept)
            except db_exception.DBConnectionError:
                pass  # what was not committed is undone; if it was, the repetition finds the consumers
        return self._carry_out(work, Lent(engine.connect(), self._clock()))

    def _take(self, engine: sa.Engine) -> Lent | None:
        """The connection that was used last, if there is any."""
        while self._idle:
            try:
                lent = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if lent.connection.engine is engine and not self._is_old(lent):
                return lent
            lent.connection.close()
        return None

    def _is_old(self, lent: Lent) -> bool:
        return 0 <= self._recycle_s < self._clock() - lent.at_s

    def _carry_out(self, work: Callable[[sa.Connection], None], lent: Lent) -> None:
        connection = lent.connection
        try:
            with connection.begin():
                work(connection)
        except BaseException:
            connection.close()
            raise
        pool = connection.engine.pool
        # other pools lend a connection to one thread only, or always the same one
        if isinstance(pool, sa.QueuePool) and len(self._idle) < pool.size() // KEPT_PART:
            self._idle.append(lent)
        else:
            connection.close()
