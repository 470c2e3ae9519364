# SPDX-License-Identifier: Apache-2.0
"""The bulk reads of ``service.databases``, over the engines that Nova itself uses.

So there is one place for the options of a database connection, nova.conf, and what Nova does with a
cell's URL (templates, TLS, retries) holds here too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import nova.conf
from nova import context as nova_context
from nova import objects
from nova.db.api import api as api_database
from nova.db.main import api as main_database
from oslo_db import exception as db_exception
from oslo_utils import timeutils

from shared_scheduler.core.events import AggregateFacts
from shared_scheduler.nova.aggregates import AggregateCache
from shared_scheduler.nova.instance_images import queries, with_images
from shared_scheduler.service.databases import ApiDatabase, Cell, CellDatabase, DatabaseError

CONF = nova.conf.CONF


class _NovaEngine:
    """Mixed in: errors of oslo.db are explained as those of SQLAlchemy are."""

    _option: str

    @contextmanager
    def _explained(self) -> Iterator[None]:
        with super()._explained():  # type: ignore[misc]
            try:
                yield
            except db_exception.DBError as error:
                words = " ".join(str(error.inner_exception or error).split())
                raise DatabaseError(
                    f"{self._option}: the database cannot be read: {words}"
                ) from error
            except db_exception.CantStartEngineError as error:
                raise DatabaseError(f"{self._option} is not set; set it in nova.conf") from error

    def close(self) -> None:
        """Nova closes its engines."""


class NovaApiDatabase(_NovaEngine, ApiDatabase):
    """``[api_database]`` of nova.conf.  A read of the aggregates fills ``aggregates`` as well."""

    def __init__(self, aggregates: AggregateCache | None = None) -> None:
        self._aggregates = aggregates or AggregateCache()
        self._option = "[api_database] connection"
        self._shown = "the API database"

    @property
    def _engine(self) -> Any:  # type: ignore[override]
        return api_database.get_engine()

    def cells(self) -> tuple[Cell, ...]:
        """All cells; their URLs as Nova fills them in."""
        with self._explained():
            found = objects.CellMappingList.get_all(nova_context.get_admin_context())
        return tuple(
            Cell(each.uuid, each.name or "", each.database_connection, each.transport_url,
                 bool(each.disabled))
            for each in found
        )  # fmt: skip

    def aggregates(self) -> tuple[AggregateFacts, ...]:
        """All host aggregates."""
        with self._explained():
            return self._aggregates.read(nova_context.get_admin_context())


class NovaCellDatabase(_NovaEngine, CellDatabase):
    """The database of one cell, through Nova's cell context."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self._option = f"database_connection of cell {cell.name or cell.uuid}"
        self._shown = f"cell {cell.name or cell.uuid}"
        self._utcnow = _utcnow
        self._closed = False

    @property
    def _service_down_time_s(self) -> float:  # type: ignore[override]
        return float(CONF.service_down_time)

    def close(self) -> None:
        """Nova closes its engines.  They are kept by the cell's uuid, whatever its address: a read that is
        still under way when the cell has moved must not make the old one anew."""
        self._closed = True

    @property
    def _engine(self) -> Any:  # type: ignore[override]
        if self._closed:
            raise DatabaseError(f"{self._shown} is not read there any more")
        with nova_context.target_cell(nova_context.get_admin_context(), self._mapping()) as target:
            return main_database.get_engine(context=target)

    def nodes(self, uuids: Collection[str] | None = None) -> list[Mapping[str, Any]]:
        """Records of nodes, with the images of their instances where a weigher wants to know."""
        found = super().nodes(uuids)
        if not CONF.filter_scheduler.image_props_weight_multiplier:
            return found
        wanted = queries({row["host"] for row in found})
        return with_images(found, (row for query in wanted for row in self._read(query)))

    def rows(self, query: Any) -> list[tuple[Any, ...]]:
        """The rows of a query of the caller's.

        :raises DatabaseError: they cannot be read
        """
        return [tuple(row.values()) for row in self._read(query)]

    def _mapping(self) -> Any:
        """What ``target_cell`` looks at; made here, so that no query is needed."""
        return objects.CellMapping(
            uuid=self.cell.uuid, name=self.cell.name, transport_url=self.cell.transport_url,
            database_connection=self.cell.database_url,
        )


def _utcnow() -> datetime:
    """By Nova's own clock, with which its services write their heartbeats."""
    now: datetime = timeutils.utcnow()
    return now.replace(tzinfo=UTC)
