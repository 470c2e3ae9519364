# SPDX-License-Identifier: Apache-2.0
"""Connections that are kept between transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_db import exception as db_exception
from oslo_db.sqlalchemy import engines

from shared_scheduler.placement_app.kept_connections import KEPT_PART, KeptConnections

INSERT = sa.text("INSERT INTO numbers VALUES (1)")
#: as oslo.db's connection_recycle_time
NO_END_S = -1.0


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    """With a pool of connections that any thread may use."""
    made = sa.create_engine(f"sqlite:///{tmp_path / 'database'}")
    with made.begin() as connection:
        connection.execute(sa.text("CREATE TABLE numbers (number INTEGER)"))
    yield made
    made.dispose()


def numbers(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(sa.text("SELECT count(*) FROM numbers")).scalar() or 0)


def lent(engine: sa.Engine) -> int:
    assert isinstance(engine.pool, sa.QueuePool)
    return engine.pool.checkedout()


class Writes:
    """Inserts a number, and notes the connection; raises the ``errors`` first."""

    def __init__(self, *errors: Exception) -> None:
        self.used: list[Any] = []
        self._errors = list(errors)

    def __call__(self, connection: sa.Connection) -> None:
        self.used.append(connection.connection.dbapi_connection)
        connection.execute(INSERT)
        if self._errors:
            raise self._errors.pop(0)


def test_a_transaction_is_committed_and_its_connection_is_kept(engine: sa.Engine) -> None:
    kept, writes = KeptConnections(lambda: engine, NO_END_S), Writes()
    for done in (1, 2, 3):
        kept.transaction(writes)
        assert (numbers(engine), lent(engine)) == (done, 1)
    assert len(set(map(id, writes.used))) == 1


def test_after_an_error_it_is_rolled_back_and_returned(engine: sa.Engine) -> None:
    kept = KeptConnections(lambda: engine, NO_END_S)
    kept.transaction(Writes())
    with pytest.raises(ValueError, match="no"):
        kept.transaction(Writes(ValueError("no")))
    assert (numbers(engine), lent(engine)) == (1, 0)


def test_a_kept_connection_that_is_lost_is_replaced_once(engine: sa.Engine) -> None:
    kept = KeptConnections(lambda: engine, NO_END_S)
    kept.transaction(Writes())
    writes = Writes(db_exception.DBConnectionError())
    kept.transaction(writes)
    assert (numbers(engine), lent(engine), len(writes.used)) == (2, 1, 2)
    with pytest.raises(db_exception.DBConnectionError):
        kept.transaction(Writes(db_exception.DBConnectionError(), db_exception.DBConnectionError()))
    assert (numbers(engine), lent(engine)) == (2, 0)


def test_a_new_connection_that_is_lost_is_an_error_at_once(engine: sa.Engine) -> None:
    writes = Writes(db_exception.DBConnectionError())
    with pytest.raises(db_exception.DBConnectionError):
        KeptConnections(lambda: engine, NO_END_S).transaction(writes)
    assert len(writes.used) == 1


def test_a_part_of_the_pool_is_left_to_others(engine: sa.Engine) -> None:
    kept = KeptConnections(lambda: engine, NO_END_S)

    def nested(left: int) -> None:
        kept.transaction(lambda connection: nested(left - 1) if left else None)

    assert isinstance(engine.pool, sa.QueuePool)
    nested(engine.pool.size() - 1)
    assert lent(engine) == engine.pool.size() // KEPT_PART


def test_a_connection_of_another_database_is_returned(engine: sa.Engine, tmp_path: Path) -> None:
    other = sa.create_engine(f"sqlite:///{tmp_path / 'other'}")
    used = [engine, other, other]
    kept = KeptConnections(lambda: used.pop(), NO_END_S)
    for _ in range(3):
        kept.transaction(lambda connection: None)
    assert (lent(other), lent(engine)) == (0, 1)
    other.dispose()


@pytest.mark.parametrize(("recycle_s", "connections"), [(10.0, 2), (NO_END_S, 1)])
def test_a_connection_is_not_kept_longer_than_the_pool_would_keep_it(
    engine: sa.Engine, recycle_s: float, connections: int
) -> None:
    now_s = 100.0
    kept, writes, borrowed = KeptConnections(lambda: engine, recycle_s, lambda: now_s), Writes(), list[Any]()
    sa.event.listen(engine, "checkout", lambda *of: borrowed.append(of))
    kept.transaction(writes)
    now_s = 110.0
    kept.transaction(writes)
    assert len(borrowed) == 1
    now_s = 110.1
    kept.transaction(writes)
    assert (len(borrowed), lent(engine)) == (connections, 1)


def test_a_database_in_memory_keeps_none() -> None:
    engine = engines.create_engine("sqlite://")
    kept, used = KeptConnections(lambda: engine, NO_END_S), []
    for _ in range(2):
        kept.transaction(used.append)
    assert len(set(map(id, used))) == 2 and all(connection.closed for connection in used)
