# SPDX-License-Identifier: Apache-2.0
"""The write path steps aside where it does not know the database's schema."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.migration import MigrationContext
from placement import db_api, handler
from placement.db.sqlalchemy import migration

from shared_scheduler.placement.connection import ANNOUNCED, ANNOUNCEMENT
from shared_scheduler.placement_app import known_schema
from shared_scheduler.placement_app.assembly import HEADER
from tests.support.placement_pair import Asked, OnePlacement


@pytest.fixture
def engine(tmp_path: Any) -> sa.Engine:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/placement.db")
    migration.create_schema(engine)
    return engine


def test_the_schema_of_this_placement_is_known(engine: sa.Engine) -> None:
    assert known_schema.difference(engine) is None


def test_the_newest_migration_of_this_placement_is_known(engine: sa.Engine) -> None:
    from alembic.script import ScriptDirectory

    script = ScriptDirectory.from_config(migration._alembic_config())
    assert script.get_current_head() in known_schema.REVISIONS


def stamp(engine: sa.Engine, revision: str) -> None:
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        connection.execute(sa.text(f"INSERT INTO alembic_version VALUES ('{revision}')"))
        assert MigrationContext.configure(connection).get_current_revision() == revision


def test_a_migration_of_the_future_is_unknown(engine: sa.Engine) -> None:
    stamp(engine, "abcdef123456")
    assert known_schema.difference(engine) == "migration abcdef123456"


@pytest.mark.parametrize("table", known_schema.COLUMNS)
def test_a_column_more_or_less_is_unknown(engine: sa.Engine, table: str) -> None:
    with engine.begin() as connection:
        connection.execute(sa.text(f"ALTER TABLE {table} ADD COLUMN surprise INTEGER"))
    assert known_schema.difference(engine) == f"columns of {table}: surprise"


def test_placement_runs_as_it_is_on_a_schema_that_is_unknown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(known_schema, "REVISIONS", frozenset({"another"}))
    with caplog.at_level(logging.WARNING):
        placement = OnePlacement(with_write_path=True)
    assert "does not know (migration None)" in caplog.text
    assert "Load placement.wsgi.api, or install" in caplog.text
    name = str(uuid.uuid4())
    answer = placement.answer(Asked("PUT", f"/allocations/{name}", b"{"))
    assert answer.status_code == 400 and HEADER[0] not in answer.headers


def test_placements_handler_is_back_in_its_place_after_the_assembly() -> None:
    own = handler.PlacementHandler
    OnePlacement(with_write_path=True)
    assert handler.PlacementHandler is own
    assert db_api.placement_context_manager.is_started


def test_the_scheduler_knows_the_header() -> None:
    assert HEADER == (ANNOUNCEMENT, ANNOUNCED)
