# SPDX-License-Identifier: Apache-2.0
"""Records in a real MariaDB, which several schedulers share and which is killed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from shared_scheduler.records import migrations, recorder
from shared_scheduler.records.database import ARCHIVE, RecordTable
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.recorder import Recorder
from shared_scheduler.records.sql_tables import NAMES, RECORDS
from shared_scheduler.records.store import RecordConditions
from tests.functional.private_placement import PrivatePlacement
from tests.unit.records.first_starts import write_together
from tests.unit.records.test_stores import numbers, record
from tools.laboratory.cloud import probes
from tools.laboratory.processes.startup import wait_for

STARTS = 4


@pytest.fixture(scope="module")
def server() -> Iterator[PrivatePlacement]:
    with PrivatePlacement.running() as running:
        yield running


@pytest.fixture
def url(server: PrivatePlacement) -> str:
    """An empty database."""
    with probes.database(server.layout) as connection, connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS records")
        cursor.execute("CREATE DATABASE records")
    return server.layout.database_url("records")


def test_schedulers_that_start_together_all_keep_their_first_record(url: str) -> None:
    write_together(url, STARTS)
    assert numbers(RecordTable(url).last(10, RecordConditions())) == list(range(STARTS))


def test_a_record_is_found_by_each_of_its_names_and_by_conditions(url: str) -> None:
    kept = record(3, hosts=["cmp2"], reason="„größe“ \U0001f5a5 " + "x" * 100_000)
    RecordTable(url).write([record(1), record(2), kept])

    for name in ("req-3", "req-global-3", "server-3", "host:cmp2"):
        assert RecordTable(url).find(name) == [kept]
    assert RecordTable(url).last(5, RecordConditions(host="cmp2", reason="größe")) == [kept]
    several = frozenset({"req-1", "server-1", "server-3"})
    assert numbers(RecordTable(url).last(5, RecordConditions(names=several))) == [1, 3]
    assert RecordTable(url).last(5, RecordConditions(host="cmp2", names=several)) == [kept]


def test_a_record_that_the_database_refuses_costs_no_other(url: str) -> None:
    table, counters = RecordTable(url), Counter[str]()

    Recorder([table], counters).keep([record(1), record(2, project_id="x" * 300), record(3)])

    assert numbers(table.last(10, RecordConditions())) == [1, 3]
    assert counters == {"records_lost": 1}


def test_a_scheduler_does_not_migrate_while_another_one_does(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "LOCK_WAIT_S", 0)
    other = sa.create_engine(url)
    with other.connect() as connection:
        connection.execute(sa.select(sa.func.get_lock(migrations.LOCK, 1)))
        with pytest.raises(TimeoutError, match="another scheduler"):
            RecordTable(url).write([record(1)])
        assert not sa.inspect(other).get_table_names()
    other.dispose()

    RecordTable(url).write([record(2)])

    assert numbers(RecordTable(url).last(10, RecordConditions())) == [2]


def test_a_migration_that_fails_gives_the_lock_back(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ConnectionError("in the middle")

    table = RecordTable(url)
    monkeypatch.setattr("alembic.command.upgrade", fail)
    with pytest.raises(ConnectionError):
        table.write([record(1)])  # its connection goes back to the pool, and stays open
    monkeypatch.undo()
    monkeypatch.setattr(migrations, "LOCK_WAIT_S", 0)

    RecordTable(url).write([record(2)])

    assert numbers(RecordTable(url).last(10, RecordConditions())) == [2]


def test_a_database_that_is_killed_costs_the_records_of_that_time_only(
    url: str, server: PrivatePlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "PAUSE_AFTER_FAILURE_S", 0.0)
    table, counters = RecordTable(url), Counter[str]()
    keeper = Recorder([table], counters)
    keeper.keep([record(1)])
    server.kill("mariadb")
    keeper.keep([record(2)])

    server.start_one("mariadb")
    keeper.keep([record(3)])

    assert counters == {"records_lost": 1}
    assert numbers(table.last(10, RecordConditions())) == [1, 3]


def test_a_deadlock_with_the_retention_of_another_scheduler_costs_no_record(url: str) -> None:
    """The database ends one of the two transactions, and both may be tried again."""
    # given another scheduler that has removed the names of the oldest rows
    table, counters = RecordTable(url), Counter[str]()
    keeper = Recorder([table], counters)
    keeper.keep([record(number) for number in range(50)])
    other = sa.create_engine(url)
    with other.connect() as connection:
        connection.execute(NAMES.delete().where(NAMES.c.record_id > 0))
        # when a record is written, which waits for that, and the other one removes the rows
        write = threading.Thread(target=keeper.keep, args=([record(50)],))
        write.start()
        wait_for("the write to wait", lambda: waiting_transactions(url) == 1, 60)
        connection.execute(RECORDS.delete().where(RECORDS.c.id > 0))
        connection.commit()
    write.join()
    other.dispose()
    # then it is kept, although its transaction was the one to end
    assert counters == {}
    assert numbers(table.last(10, RecordConditions())) == [50]


def test_rows_that_cannot_be_removed_are_not_archived_each_time(url: str, tmp_path: Path) -> None:
    """The archive once got them before they were removed, and again with each step that failed later."""
    # given a client that has locked a row that is to leave
    table = RecordTable(url, rows_max=5, archive=tmp_path)
    sa.event.listen(table._engine, "connect", wait_a_second_for_locks)
    table.write([record(number) for number in range(20)])
    other = sa.create_engine(url)
    with other.connect() as connection:
        connection.execute(sa.select(RECORDS.c.id).where(RECORDS.c.id == 3).with_for_update())
        # when retention fails, and succeeds when the client has left
        with pytest.raises(sa.exc.OperationalError, match="Lock wait timeout"):
            table.retain(0.0)
    other.dispose()
    table.retain(0.0)
    # then each row is archived once
    assert numbers(table.last(20, RecordConditions())) == list(range(15, 20))
    assert numbers(JsonLines(tmp_path / ARCHIVE).last(100, RecordConditions())) == list(range(15))


def wait_a_second_for_locks(connection: Any, _: object) -> None:
    connection.cursor().execute("SET innodb_lock_wait_timeout = 1")


def waiting_transactions(url: str) -> int:
    """The number of transactions that wait for a lock."""
    engine = sa.create_engine(url)
    try:
        with engine.connect() as connection:
            count = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
            return int(connection.execute(sa.text(count)).scalar_one())
    finally:
        engine.dispose()
