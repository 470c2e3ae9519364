# SPDX-License-Identifier: Apache-2.0
"""The bulk reads of ``sync.databases``, with the engines that Nova itself uses.

Therefore the options of a database connection have one place, nova.conf, and Nova's handling of a cell's URL
(templates, TLS, retries) applies here too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import nova.conf
from nova import context as nova_context
from nova import objects
from nova.db.api import api as api_database
from nova.db.main import api as main_database
from oslo_utils import timeutils

from shared_scheduler.nova.aggregates import AggregateCache
from shared_scheduler.nova.cell_context import cell_context
from shared_scheduler.nova.instance_images import queries, with_images
from shared_scheduler.sync.databases import ApiDatabase, Cell, CellDatabase

CONF = nova.conf.CONF


class NovaApiDatabase(ApiDatabase):
    """``[api_database]`` of nova.conf.  A read of the aggregates fills ``aggregates`` as well."""

    def __init__(self, aggregates: AggregateCache | None = None) -> None:
        cache = aggregates or AggregateCache()
        super().__init__(api_database.get_engine, _cells, lambda: cache.read(nova_context.get_admin_context()), _utcnow)


def _cells() -> Iterator[Cell]:
    """All cells, with URLs that Nova has filled in."""
    for each in objects.CellMappingList.get_all(nova_context.get_admin_context()):
        yield Cell(each.uuid, each.name or "", each.database_connection, each.transport_url, bool(each.disabled))


class NovaCellDatabase(CellDatabase):
    """The database of one cell, through Nova's cell context.  Nova caches an engine by the cell's uuid, regardless of
    its address: a read that is under way when the cell has moved must not create the old engine again (``close``)."""

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell, self._connect, lambda: float(CONF.service_down_time), _utcnow)

    def _connect(self) -> Any:
        return main_database.get_engine(context=cell_context(self._mapping()))

    def abandon(self) -> None:
        """See ``CellDatabase.abandon``."""
        super().abandon()
        nova_context.CELL_CACHE.pop(self.cell.uuid, None)

    def nodes(self, uuids: Collection[str] | None = None) -> list[Mapping[str, Any]]:
        """Records of nodes, with the images of their instances if a weigher needs them."""
        found = super().nodes(uuids)
        if not CONF.filter_scheduler.image_props_weight_multiplier:
            return found
        wanted = queries({row["host"] for row in found})
        return with_images(found, (row for query in wanted for row in self.rows(query)))

    def _mapping(self) -> Any:
        """The attributes that Nova reads to target a cell; created here, so that no query is needed."""
        return objects.CellMapping(
            uuid=self.cell.uuid,
            name=self.cell.name,
            transport_url=self.cell.transport_url,
            database_connection=self.cell.database_url,
        )


def _utcnow() -> datetime:
    """The time of Nova's own clock, with which its services write their heartbeats."""
    now: datetime = timeutils.utcnow()
    return now.replace(tzinfo=UTC)
