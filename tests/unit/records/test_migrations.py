# SPDX-License-Identifier: Apache-2.0
"""The database of records follows the release, whoever comes first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from shared_scheduler.records.database import RecordTable
from shared_scheduler.records.errors import RecordsError
from shared_scheduler.records.migrations import REVISION_TABLE
from shared_scheduler.records.sql_tables import METADATA
from shared_scheduler.records.store import RecordConditions, as_current
from tests.unit.records.first_starts import write_together
from tests.unit.records.test_stores import record

STARTS = 4


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/records.sqlite"


def test_migrations_end_at_the_tables_that_the_code_uses(url: str) -> None:
    RecordTable(url).write([record(1)])

    with sa.create_engine(url).connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": REVISION_TABLE})
        assert compare_metadata(context, METADATA) == []


def test_the_records_of_a_project_are_found_without_reading_all(url: str) -> None:
    table, questions = RecordTable(url), list[str]()
    table.write([record(1)])
    sa.event.listen(table._engine, "before_cursor_execute", lambda _, __, statement, *___: questions.append(statement))

    table.last(5, RecordConditions(project="nothing"))

    with sa.create_engine(url).connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {questions[0]}", ("nothing", 5, 0)).all()
    assert [step[-1].partition(" (")[0] for step in plan] == [
        "SEARCH shared_scheduler_records USING COVERING INDEX ix_shared_scheduler_records_project_id"
    ]


def test_decisions_of_an_earlier_release_are_kept(url: str) -> None:
    old = {"at": 1.5, "scheduler": "s", "request_id": "req-old", "project_id": "p", "outcome": "placed", "hosts": [],
           "text": "größe"}  # fmt: skip
    with sa.create_engine(url).begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE shared_scheduler_decisions (id INTEGER PRIMARY KEY, at FLOAT NOT NULL, "
            "scheduler VARCHAR(255) NOT NULL, request_id VARCHAR(255) NOT NULL, project_id VARCHAR(255) NOT NULL, "
            "outcome VARCHAR(64) NOT NULL, hosts TEXT NOT NULL, record TEXT NOT NULL)"
        )
        connection.exec_driver_sql(
            "INSERT INTO shared_scheduler_decisions VALUES (7, 1.5, 's', 'req-old', 'p', 'placed', '[]', ?)",
            (json.dumps(old),),
        )

    table = RecordTable(url)
    table.write([record(2)])

    assert table.find("req-old") == table.last(5, RecordConditions(reason="größe")) == [as_current(old)]
    assert table.find("req-2") == [record(2)]


@pytest.mark.parametrize("text", ['{"at": 1.5, "outcome": "pla', "[]", '{"at": 1.5, "decisions": 5}'])
def test_a_row_that_cannot_be_read_does_not_keep_the_tables_from_this_release(url: str, text: str) -> None:
    """A database that is not strict cuts a long text, and each write failed as long as the row was there."""
    with sa.create_engine(url).begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE shared_scheduler_decisions (id INTEGER PRIMARY KEY, at FLOAT NOT NULL, "
            "scheduler VARCHAR(255) NOT NULL, request_id VARCHAR(255) NOT NULL, project_id VARCHAR(255) NOT NULL, "
            "outcome VARCHAR(64) NOT NULL, hosts TEXT NOT NULL, record TEXT NOT NULL)"
        )
        connection.exec_driver_sql(
            "INSERT INTO shared_scheduler_decisions VALUES (7, 1.5, 's', 'req-old', 'p', 'placed', '[]', ?)", (text,)
        )

    table = RecordTable(url)
    table.write([record(2)])

    assert table.last(5, RecordConditions()) == [record(2)]


@pytest.mark.parametrize("killed_before", ["CREATE TABLE shared_scheduler_record_names", "DROP TABLE", "UPDATE"])
def test_a_migration_that_was_killed_is_done_by_the_next_start(url: str, killed_before: str) -> None:
    table = RecordTable(url)

    def end(connection: sa.Connection, cursor: object, statement: str, *rest: object) -> None:
        if statement.strip().startswith(killed_before):
            connection.connection.driver_connection.commit()  # type: ignore[union-attr]  # as MariaDB before each DDL
            raise KeyboardInterrupt

    sa.event.listen(table._patient_engine, "before_cursor_execute", end)
    with pytest.raises(KeyboardInterrupt):
        table.write([record(1)])

    after = RecordTable(url)
    after.write([record(2)])

    assert after.find("req-2") == [record(2)]


def test_tables_of_a_newer_release_are_told_with_a_remedy(url: str) -> None:
    """As after a release was taken back."""
    RecordTable(url).write([record(1)])
    with sa.create_engine(url).begin() as connection:
        connection.exec_driver_sql(f"UPDATE {REVISION_TABLE} SET version_num = '99'")

    with pytest.raises(RecordsError, match=r"records_connection: .*'99'; .*newer release"):
        RecordTable(url).write([record(2)])


def test_schedulers_that_start_together_all_keep_their_first_record(url: str) -> None:
    write_together(url, STARTS)
    stored = RecordTable(url).last(10, RecordConditions())
    assert [one["request_id"] for one in stored] == [f"req-{n}" for n in range(STARTS)]
