# SPDX-License-Identifier: Apache-2.0
"""Brings the database of records to the tables of this release, by alembic.

Schedulers that start together may all try; the first one migrates under a lock, and the others find it done.  The lock
is a file beside a SQLite database, and ``GET_LOCK`` of MariaDB and MySQL.  Other databases have none: there, the writes
that fail in the meantime are counted as lost, and the next ones succeed.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from shared_scheduler.records.errors import CONNECTION, RecordsError
from shared_scheduler.records.store import FILE_MODE

#: Longest wait for another scheduler that migrates, and the name of the lock.
LOCK_WAIT_S = 60
LOCK = "shared_scheduler_records"
#: The table in which alembic keeps the revision; the database may also be used by others.
REVISION_TABLE = "shared_scheduler_records_revision"
#: What to do if this release does not know that revision.
NEWER = "a newer release has changed its tables: install that one, or name another database"


def migrate(engine: sa.Engine) -> None:
    """Run the migrations that have not run yet.

    :raises sqlalchemy.exc.SQLAlchemyError: when the database refuses them
    :raises RecordsError: when a newer release has changed the tables
    :raises OSError: when the file of the lock cannot be made
    :raises TimeoutError: when another scheduler holds the lock for too long
    """
    from alembic import command  # takes 0.2 s, and only the first write needs it
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", "shared_scheduler.records:migrations")
    with _locked(engine), engine.connect() as connection:
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:  # there is a revision that this release does not have
            raise RecordsError(CONNECTION, error, NEWER) from error


@contextmanager
def _locked(engine: sa.Engine) -> Iterator[None]:
    match engine.url.get_backend_name():
        case "sqlite" if engine.url.database:
            with _file_locked(f"{engine.url.database}.lock"):
                yield
        case "mysql" | "mariadb":
            with engine.connect() as connection:
                if connection.execute(sa.select(sa.func.get_lock(LOCK, LOCK_WAIT_S))).scalar() != 1:
                    raise TimeoutError(f"another scheduler has the lock {LOCK} for more than {LOCK_WAIT_S} s")
                try:
                    yield
                finally:
                    connection.execute(sa.select(sa.func.release_lock(LOCK)))
        case _:
            yield


@contextmanager
def _file_locked(path: str) -> Iterator[None]:
    number = os.open(path, os.O_WRONLY | os.O_CREAT, FILE_MODE)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)
