# SPDX-License-Identifier: Apache-2.0
"""How long this Placement waits for the lock of a row.

A transaction holds the rows of its providers for milliseconds.  One whose program was lost (a machine without power)
holds them until the database notices, which may take hours.  With the default of MySQL, each write to such a provider
waits for 50 seconds, and Placement's own handler then repeats it five times; with the default of PostgreSQL it waits
without an end.  Its client has gone after ten.  So a few providers would occupy all threads of the API, and what still
waits when the lock ends would be carried out although nobody expects it any more.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any

import sqlalchemy as sa

#: ``shared-scheduler`` writes an allocation within 10 to 13 seconds.  With 5 it hears of the conflict and goes on with
#: another host; with less it would hear of a third one, and conclude that the consumer exists.
LOCK_WAIT_S = 5
#: What sets the limit of a connection, by the name of the database in its address.
STATEMENTS = {
    "mysql": f"SET innodb_lock_wait_timeout = {LOCK_WAIT_S}",
    "mariadb": f"SET innodb_lock_wait_timeout = {LOCK_WAIT_S}",
    "postgresql": f"SET lock_timeout = '{LOCK_WAIT_S}s'",
}


class LockWaitError(Exception):
    """A transaction that waited for a lock in vain.  It is rolled back."""

    def __init__(self) -> None:
        super().__init__(f"another transaction has held a provider or consumer for {LOCK_WAIT_S} seconds")


def limit(engine: sa.Engine) -> None:
    """Let no connection of the engine wait longer, Placement's own handlers included."""
    statement = STATEMENTS.get(engine.dialect.name)
    if statement is not None:
        sa.event.listen(engine, "connect", partial(_limit, statement))
        engine.dispose()  # of those that are connected already, none is in use at the start


def _limit(statement: str, connection: Any, _: Any) -> None:
    with closing(connection.cursor()) as cursor:
        cursor.execute(statement)
    connection.commit()  # the first transaction that is rolled back would end the limit, on PostgreSQL
