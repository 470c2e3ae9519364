# SPDX-License-Identifier: Apache-2.0
"""The bulk reads over engines of the test's own, where no nova.conf names Nova's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache

import sqlalchemy as sa
from nova.db.api import models

from shared_scheduler.core.events import AggregateFacts
from shared_scheduler.sync.databases import ApiDatabase, Cell, CellDatabase

SERVICE_DOWN_TIME_S = 60.0


def engine_of(url: str) -> Callable[[], sa.Engine]:
    """Makes the engine at its first use, as Nova does: an error in the URL is raised by the first query."""
    return cache(lambda: sa.create_engine(url))


def api_database(url: str, utcnow: Callable[[], datetime] = lambda: datetime.now(UTC)) -> ApiDatabase:
    """Cells and aggregates as Nova's models have them."""
    engine = engine_of(url)
    return ApiDatabase(engine, lambda: _cells(engine()), lambda: tuple(_aggregates(engine())), utcnow)


def cell_database(cell: Cell, utcnow: Callable[[], datetime] = lambda: datetime.now(UTC)) -> CellDatabase:
    """The database at the cell's own URL."""
    return CellDatabase(cell, engine_of(cell.database_url), lambda: SERVICE_DOWN_TIME_S, utcnow)


def _cells(engine: sa.Engine) -> Iterator[Cell]:
    mapping = models.CellMapping
    query = sa.select(mapping.uuid, mapping.name, mapping.database_connection, mapping.transport_url, mapping.disabled)
    with engine.connect() as connection:
        for row in connection.execute(query.order_by(mapping.id)):
            yield Cell(*row[:4], bool(row.disabled))


def _aggregates(engine: sa.Engine) -> Iterator[AggregateFacts]:
    each, host, item = models.Aggregate, models.AggregateHost, models.AggregateMetadata
    with engine.connect() as connection:
        for row in connection.execute(sa.select(each.id, each.uuid, each.name).order_by(each.id)).all():
            hosts = connection.execute(sa.select(host.host).where(host.aggregate_id == row.id)).scalars()
            items = connection.execute(sa.select(item.key, item.value).where(item.aggregate_id == row.id))
            yield AggregateFacts(row.id, row.uuid, row.name, frozenset(hosts), {key: value for key, value in items})
