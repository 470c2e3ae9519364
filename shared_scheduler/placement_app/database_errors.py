# SPDX-License-Identifier: Apache-2.0
"""What an error of the database says about the transaction that it ended.

oslo.db has one exception for deadlocks, and of MySQL and MariaDB also for lock waits that took too long.  Of PostgreSQL
it knows the deadlock only, and lets SQLAlchemy's exception for the rest of them through.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exception

#: What may be asked about here.  Not all of SQLAlchemy's are among oslo.db's.
DATABASE_ERRORS = (db_exception.DBError, sa.exc.DBAPIError)

#: ``ER_LOCK_WAIT_TIMEOUT`` of MySQL and MariaDB.
_LOCK_WAIT_TIMEOUT = 1205
#: SQLSTATE ``lock_not_available`` of PostgreSQL.
_LOCK_NOT_AVAILABLE = "55P03"
#: Of PostgreSQL: ``serialization_failure``, where a site has set another isolation level than READ COMMITTED, and
#: ``in_failed_sql_transaction``.  Placement repeats a statement after a deadlock in the transaction that has ended.
_UNDONE = frozenset({"40001", "25P02"})


def is_lock_timeout(error: Exception) -> bool:
    """Whether a transaction has waited for a lock until the limit (``lock_waits``)."""
    found = _of_driver(error)
    return _state(found) == _LOCK_NOT_AVAILABLE or getattr(found, "args", ())[:1] == (_LOCK_WAIT_TIMEOUT,)


def is_deadlock(error: Exception) -> bool:
    """Whether the database has undone a transaction because of another one, at once: it may be tried again."""
    if isinstance(error, db_exception.DBDeadlock):
        return not is_lock_timeout(error)
    return _state(_of_driver(error)) in _UNDONE


def _of_driver(error: Exception) -> Any:
    """The exception of the driver, which SQLAlchemy and then oslo.db have wrapped; nothing if there is none."""
    return getattr(getattr(error, "inner_exception", error), "orig", None)


def _state(of_driver: Any) -> str | None:
    """The SQLSTATE; nothing of a driver that does not tell it."""
    return getattr(of_driver, "pgcode", None)
