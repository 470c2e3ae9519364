# SPDX-License-Identifier: Apache-2.0
"""Decision records in a table, SQLite or any other database that SQLAlchemy knows.

A few columns to search by, and the whole record as JSON text.  The oldest rows go when there are
too many.  Several schedulers may share one table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from shared_scheduler.records.errors import RecordsError

#: Rows are counted and trimmed once in this many writes, so the bound may be passed by as many.
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
    sa.Column("hosts", sa.Text, nullable=False),  # JSON list, one host an instance
    sa.Column("record", sa.Text().with_variant(sa.Text(16_777_215), "mysql"), nullable=False),
)


class DecisionTable:
    """Appends and trims; one thread uses it."""

    def __init__(self, url: str, rows_max: int) -> None:
        """Connect and make the table when it is missing.

        :raises RecordsError: the database cannot be used
        """
        self._rows_max = rows_max
        self._written = 0
        try:
            self._engine = sa.create_engine(url, pool_pre_ping=True, pool_size=1, max_overflow=0)
            METADATA.create_all(self._engine)
        except (sa.exc.SQLAlchemyError, ImportError) as error:  # ImportError: no driver for the URL
            remedy = "name a database that the scheduler may make a table in, or leave it empty"
            raise RecordsError("records_connection", error, remedy) from error

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Insert them in one transaction.

        :raises sqlalchemy.exc.SQLAlchemyError: the database does not take them
        """
        rows = [_row(record) for record in records]
        if not rows:
            return
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
        """Give the connection back."""
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
