# SPDX-License-Identifier: Apache-2.0
"""Errors of the databases, as they reach Placement's handlers: of the driver, in SQLAlchemy's, perhaps in oslo.db's."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exception


class DriverError(Exception):
    """An error as PyMySQL (a number and a text) or psycopg2 (a text and a state) raises it."""

    def __init__(self, *args: Any, pgcode: str | None = None) -> None:
        super().__init__(*args)
        self.pgcode = pgcode


def wrapped(*args: Any, pgcode: str | None = None) -> sa.exc.DBAPIError:
    return sa.exc.OperationalError("SELECT", {}, DriverError(*args, pgcode=pgcode))


#: As ``oslo_db.sqlalchemy.exc_filters`` makes them.
DEADLOCK = db_exception.DBDeadlock(wrapped(1213, "Deadlock found when trying to get lock; try restarting transaction"))
LOCK_WAIT = db_exception.DBDeadlock(wrapped(1205, "Lock wait timeout exceeded; try restarting transaction"))
POSTGRESQL_DEADLOCK = db_exception.DBDeadlock(wrapped("deadlock detected", pgcode="40P01"))
#: What a statement ends with that Placement repeats after a deadlock.
POSTGRESQL_ENDED = db_exception.DBError(
    sa.exc.InternalError("SELECT", {}, DriverError("current transaction is aborted", pgcode="25P02"))
)
POSTGRESQL_LOCK_WAIT = wrapped("canceling statement due to lock timeout", pgcode="55P03")
POSTGRESQL_SNAPSHOT = wrapped("could not serialize access due to concurrent update", pgcode="40001")
POSTGRESQL_FULL = wrapped("could not extend file: No space left on device", pgcode="53100")
