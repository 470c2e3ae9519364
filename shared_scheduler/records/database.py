# SPDX-License-Identifier: Apache-2.0
"""Decision records in a table of SQLite or any other database that SQLAlchemy supports.

The table has a few columns to search by, and the whole record as JSON text.  The oldest rows are deleted when the
table exceeds its bound.  Several schedulers may share one table.  Nothing is sent to the database before the first
record, because a database that does not answer must not keep the scheduler from starting.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from shared_scheduler.records.errors import RecordsError
from shared_scheduler.records.json_lines import FILE_MODE

#: The table is trimmed after this many inserted rows, so it may exceed its bound by as many.
TRIM_EVERY = 100

METADATA = sa.MetaData()

DECISIONS = sa.Table(
    "shared_scheduler_decisions",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at", sa.Float, nullable=False, index=True),  # seconds since 1970
    sa.Column("scheduler", sa.String(255), nullable=False),
    sa.Column("request_id", sa.String(255), nullable=False, index=True),
    sa.Column("project_id", sa.String(255), nullable=False),
    sa.Column("outcome", sa.String(64), nullable=False),
    sa.Column("hosts", sa.Text, nullable=False),  # JSON list, one host for each instance
    sa.Column("record", sa.Text().with_variant(sa.Text(16_777_215), "mysql"), nullable=False),
)


class DecisionTable:
    """Inserts records and deletes the oldest ones.  Used by one thread."""

    def __init__(self, url: str, rows_max: int) -> None:
        """Create the engine without connecting.

        :raises RecordsError: when the URL names no database, or its driver is missing
        """
        self._rows_max = rows_max
        self._written = 0
        self._is_there = False  # whether the table exists
        try:
            self._engine = sa.create_engine(url, pool_pre_ping=True, pool_size=1, max_overflow=0)
        except (sa.exc.SQLAlchemyError, ImportError) as error:  # ImportError: no driver for the URL
            remedy = "name a database in which the scheduler may create a table, or leave the option empty"
            raise RecordsError("records_connection", error, remedy) from error

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Insert the records in one transaction; create the table if it does not exist.

        :raises sqlalchemy.exc.SQLAlchemyError: when the database does not accept them
        """
        rows = [_row(record) for record in records]
        if not rows:
            return
        if not self._is_there:
            self._create()
        self._is_there = False  # unless this write shows it
        self._insert(rows)
        self._is_there = True

    def _create(self) -> None:
        """Create the table; another scheduler may create it at the same moment."""
        self._create_file()
        try:
            METADATA.create_all(self._engine)
        except sa.exc.SQLAlchemyError:
            if not sa.inspect(self._engine).has_table(DECISIONS.name):
                raise

    def _create_file(self) -> None:
        """Create the file of SQLite without rights for others, because records name projects, users and servers."""
        url = self._engine.url
        if url.get_backend_name() == "sqlite" and url.database and Path(url.database).parent.is_dir():
            os.close(os.open(url.database, os.O_WRONLY | os.O_CREAT, FILE_MODE))

    def _insert(self, rows: list[dict[str, Any]]) -> None:
        with self._engine.begin() as connection:
            connection.execute(DECISIONS.insert(), rows)
            self._written += len(rows)
            if self._written >= TRIM_EVERY:
                self._written = 0
                self._trim(connection)

    def find(self, request_id: str) -> list[dict[str, Any]]:
        """The records of one request, oldest first."""
        query = (
            sa.select(DECISIONS.c.record)
            .where(DECISIONS.c.request_id == request_id)
            .order_by(DECISIONS.c.id)
        )
        with self._engine.connect() as connection:
            return [json.loads(text) for text in connection.execute(query).scalars()]

    def close(self) -> None:
        """Close the connection."""
        self._engine.dispose()

    def _trim(self, connection: sa.Connection) -> None:
        newest_to_go = (
            sa.select(DECISIONS.c.id).order_by(DECISIONS.c.id.desc()).offset(self._rows_max).limit(1)
        )
        found = connection.execute(newest_to_go).scalar()
        if found is not None:
            connection.execute(DECISIONS.delete().where(DECISIONS.c.id <= found))


def _row(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "at": record["at"],
        "scheduler": record["scheduler"],
        "request_id": record["request_id"],
        "project_id": record["project_id"],
        "outcome": record["outcome"],
        "hosts": json.dumps(record["hosts"]),
        "record": json.dumps(record, separators=(",", ":"), default=str),
    }
