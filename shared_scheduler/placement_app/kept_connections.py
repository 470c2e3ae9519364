# SPDX-License-Identifier: Apache-2.0
"""Connections to the database that the write path keeps between its transactions.

The pool of Placement asks a connection for a sign of life before it lends it, and rolls it back when it is returned:
two of the eight round trips of a write.  A connection whose transaction was committed needs neither.

A server or a load balancer may have closed an idle connection.  The transaction then failed at its first statement, and
is begun once more on a connection of the pool.  A connection whose transaction failed is returned to the pool.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import sqlalchemy as sa
from oslo_db import exception as db_exception

#: At most this part of the pool is kept, because Placement's own handlers need connections as well.
KEPT_PART = 2


class KeptConnections:
    """Threads may share it."""

    def __init__(self, engine: Callable[[], sa.Engine]) -> None:
        self._engine = engine
        self._idle: deque[sa.Connection] = deque()

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
        return self._carry_out(work, engine.connect())

    def _take(self, engine: sa.Engine) -> sa.Connection | None:
        """The connection that was used last, if there is any."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if connection.engine is engine:
                return connection
            connection.close()
        return None

    def _carry_out(self, work: Callable[[sa.Connection], None], connection: sa.Connection) -> None:
        try:
            with connection.begin():
                work(connection)
        except BaseException:
            connection.close()
            raise
        pool = connection.engine.pool
        # other pools lend a connection to one thread only, or always the same one
        if isinstance(pool, sa.QueuePool) and len(self._idle) < pool.size() // KEPT_PART:
            self._idle.append(connection)
        else:
            connection.close()
