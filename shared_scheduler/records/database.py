# SPDX-License-Identifier: Apache-2.0
"""The store of records in tables of SQLite, MariaDB or any other database that SQLAlchemy supports.

Several schedulers may share the tables.  The oldest rows are deleted when there are more than the bound.  Nothing is
sent to the database before the first record, because a database that does not answer must not keep the scheduler from
starting.  The first write brings the tables to this release (``migrations``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from shared_scheduler.records import migrations
from shared_scheduler.records.errors import RecordsError
from shared_scheduler.records.store import FILE_MODE, FOUND_MAX, Record, Wanted, as_current, host_name, names_of
from shared_scheduler.records.tables import NAMES, RECORDS

#: The tables are trimmed after this many inserted rows, so they may exceed their bound by as many.
TRIM_EVERY = 100
#: Rows that a question fetches at a time.
FETCHED_ROWS = 100
#: What to do if there are no records.
NOT_WRITTEN = "name the database to which a scheduler has written"
#: Time that a connection or a lock of the database may take, for databases whose drivers have such a limit.
WAIT_S = {"mysql": {"connect_timeout": 10}, "mariadb": {"connect_timeout": 10}, "sqlite": {"timeout": 10}}


class RecordTable:
    """See ``store.Store``."""

    def __init__(self, url: str, rows_max: int = 100_000) -> None:
        """Create the engine without connecting.

        :raises RecordsError: when the URL names no database, or its driver is missing
        """
        self._rows_max = rows_max
        self._written = 0
        self._is_there = False  # whether the tables exist, and are those of this release
        try:
            limits = WAIT_S.get(sa.make_url(url).get_backend_name(), {})
            self._engine = sa.create_engine(url, pool_pre_ping=True, pool_size=1, max_overflow=1, connect_args=limits)
        except (sa.exc.SQLAlchemyError, ImportError) as error:  # ImportError: no driver for the URL
            remedy = "name a database in which the scheduler may create a table, or leave the option empty"
            raise RecordsError("records_connection", error, remedy) from error

    # -- writing

    def write(self, records: Iterable[Record]) -> None:
        """Insert the records in one transaction; make the tables if necessary.

        :raises sqlalchemy.exc.SQLAlchemyError: when the database does not accept them
        """
        wanted = list(records)
        if not wanted:
            return
        if not self._is_there:
            self._create_file()
            migrations.migrate(self._engine)
        self._is_there = False  # unless this write shows it
        self._insert(wanted)
        self._is_there = True

    def _create_file(self) -> None:
        """Create the file of SQLite without rights for others, because records name projects, users and servers."""
        file = self._file()
        if file is not None and file.parent.is_dir():
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT, FILE_MODE))

    def _file(self) -> Path | None:
        """The file of SQLite; None for other databases."""
        url = self._engine.url
        return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None

    def _insert(self, records: list[Record]) -> None:
        with self._engine.begin() as connection:
            names: list[dict[str, Any]] = []
            for record in records:
                key = connection.execute(RECORDS.insert().values(_row(record))).inserted_primary_key
                assert key is not None  # every database with autoincrement returns it
                names += ({"name": name, "record_id": key[0]} for name in names_of(record))
            if names:
                connection.execute(NAMES.insert(), names)
            self._written += len(records)
            if self._written >= TRIM_EVERY:
                self._written = 0
                self._trim(connection)

    def _trim(self, connection: sa.Connection) -> None:
        newest_to_go = sa.select(RECORDS.c.id).order_by(RECORDS.c.id.desc()).offset(self._rows_max).limit(1)
        found = connection.execute(newest_to_go).scalar()
        if found is not None:
            connection.execute(NAMES.delete().where(NAMES.c.record_id <= found))
            connection.execute(RECORDS.delete().where(RECORDS.c.id <= found))

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    # -- reading

    def find(self, name: str) -> list[Record]:
        """See ``store.Store``."""
        return self._newest(_named(sa.select(RECORDS.c.record), name), Wanted(), FOUND_MAX)

    def last(self, count: int, wanted: Wanted) -> list[Record]:
        """See ``store.Store``."""
        query = sa.select(RECORDS.c.record)
        columns = {RECORDS.c.kind: wanted.kind, RECORDS.c.project_id: wanted.project, RECORDS.c.result: wanted.result}
        for column, value in columns.items():
            query = query.where(column == value) if value else query
        if wanted.host:
            query = _named(query, host_name(wanted.host))
        if wanted.since_s is not None:
            query = query.where(RECORDS.c.at >= wanted.since_s)
        if wanted.until_s is not None:
            query = query.where(RECORDS.c.at <= wanted.until_s)
        return self._newest(query, wanted, count)

    def _newest(self, query: sa.Select[tuple[str]], wanted: Wanted, count: int) -> list[Record]:
        if (file := self._file()) is not None and not file.exists():  # SQLite would make one, which is the reader's
            raise RecordsError("records_connection", FileNotFoundError(f"no file {file}"), NOT_WRITTEN)
        try:
            with self._engine.connect() as connection:
                rows = connection.execution_options(yield_per=FETCHED_ROWS).execute(query.order_by(RECORDS.c.id.desc()))
                found = list(_accepted(rows.scalars(), wanted, count))
        except sa.exc.SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            raise RecordsError("records_connection", cause, NOT_WRITTEN) from error
        return sorted(found, key=lambda record: float(record["at"]))


def _named(query: sa.Select[tuple[str]], name: str) -> sa.Select[tuple[str]]:
    return query.join(NAMES, NAMES.c.record_id == RECORDS.c.id).where(NAMES.c.name == name)


def _accepted(texts: Iterable[str], wanted: Wanted, count: int) -> Iterator[Record]:
    """The first ``count`` records that are wanted.  The columns narrow the query; the reason is in the text only."""
    left = count
    for text in texts:
        if not left:
            return
        record = as_current(json.loads(text))
        if wanted.accepts(record):
            left -= 1
            yield record


def _row(record: Record) -> dict[str, Any]:
    return {
        "at": record["at"],
        "kind": record["kind"],
        "scheduler": record["scheduler"],
        "project_id": record["project_id"],
        "result": record["result"],
        "record": json.dumps(record, separators=(",", ":"), default=str),
    }
