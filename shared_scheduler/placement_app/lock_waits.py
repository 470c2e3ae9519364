# SPDX-License-Identifier: Apache-2.0
"""How long this Placement waits for the lock of a row, on MySQL and MariaDB.

A transaction holds the rows of its providers for milliseconds.  One whose program was lost (a machine without power)
holds them until the database notices, which may take hours.  With the default of MySQL, each write to such a provider
waits for 50 seconds, and Placement's own handler then repeats it five times.  Its client has gone after ten.  So a few
providers would occupy all threads of the API, and what still waits when the lock ends would be carried out although
nobody expects it any more.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exception

#: ``shared-scheduler`` writes an allocation within 10 to 13 seconds.  With 5 it hears of the conflict and goes on with
#: another host; with less it would hear of a third one, and conclude that the consumer exists.
LOCK_WAIT_S = 5
#: ``ER_LOCK_WAIT_TIMEOUT``.  oslo.db makes the same exception of it as of a deadlock, which is found at once.
_LOCK_WAIT_TIMEOUT = 1205


class LockWaitError(Exception):
    """A transaction that waited for a lock in vain.  It is rolled back."""

    def __init__(self) -> None:
        super().__init__(f"another transaction has held a provider or consumer for {LOCK_WAIT_S} seconds")


def limit(engine: sa.Engine) -> None:
    """Let no connection of the engine wait longer, Placement's own handlers included."""
    if engine.dialect.name in ("mysql", "mariadb"):  # by the address
        sa.event.listen(engine, "connect", _limit)
        engine.dispose()  # of those that are connected already, none is in use at the start


def _limit(connection: Any, _: Any) -> None:
    with closing(connection.cursor()) as cursor:
        cursor.execute(f"SET innodb_lock_wait_timeout = {LOCK_WAIT_S}")


def is_timeout(error: db_exception.DBDeadlock) -> bool:
    """Whether a transaction has waited for a lock until the limit, and not ended in a deadlock."""
    of_driver = getattr(error.inner_exception, "orig", None)
    return of_driver is not None and of_driver.args[:1] == (_LOCK_WAIT_TIMEOUT,)
