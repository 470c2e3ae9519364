# SPDX-License-Identifier: Apache-2.0
"""A connection to a database that is kept between queries.

A query on a connection of the pool takes several round trips and most of its time in SQLAlchemy: the connection is
taken, checked, given a transaction, rolled back and returned.  On a kept connection, where each statement is a
transaction of its own, a query is one round trip.  It is for one small query that every request needs.

A server or a load balancer may close an idle connection; the query is then repeated once on a new one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exception
from sqlalchemy import exc as sa_exc

#: A connection of this database is shared by all threads, or only of use to the one that opened it.
NOT_KEPT = "sqlite"


class KeptConnection:
    """Any thread may use it; one query at a time."""

    def __init__(self, engine: Callable[[], sa.Engine]) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._connection: sa.Connection | None = None
        self._closed = False

    def column(self, query: Any, parameters: Mapping[str, Any]) -> list[Any]:
        """The first column of all rows.

        :raises DBError: when the database cannot be read
        :raises SQLAlchemyError: when the connection cannot be used
        """
        with self._lock:
            is_new = self._connection is None
            try:
                return self._read(query, parameters)
            except (db_exception.DBError, sa_exc.DBAPIError) as error:
                if is_new or not _is_lost(error):
                    raise
            return self._read(query, parameters)

    def close(self) -> None:
        """Close it, after the query under way; does not wait for that, nor for the database, which may hang."""
        self._closed = True
        if self._lock.acquire(blocking=False):
            try:
                if self._connection is not None:
                    self._connection.invalidate()  # otherwise, it ends with a ROLLBACK
                self._drop()
            finally:
                self._lock.release()

    def _read(self, query: Any, parameters: Mapping[str, Any]) -> list[Any]:
        try:
            return [row[0] for row in self._open().execute(query, parameters)]
        except BaseException:
            self._drop()
            raise
        finally:
            if self._closed or (self._connection is not None and self._connection.dialect.name == NOT_KEPT):
                self._drop()

    def _open(self) -> sa.Connection:
        if self._connection is None:
            connection = self._engine().connect()
            if connection.dialect.name != NOT_KEPT:
                connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            self._connection = connection
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _is_lost(error: Exception) -> bool:
    """Whether the connection has ended, and not only the query."""
    if isinstance(error, sa_exc.DBAPIError):
        return error.connection_invalidated
    return isinstance(error, db_exception.DBConnectionError)
