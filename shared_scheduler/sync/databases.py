# SPDX-License-Identifier: Apache-2.0
"""Bulk reads of Nova's databases: what nova-scheduler asks at each request, we ask now and then.

Plain SQL on the columns that are needed, read only; no Nova object is made.  Schema: Nova 34
(nova/db/main/models.py, nova/db/api/models.py).  Every error is a ``DatabaseError`` of one line that says
what to do; passwords are never in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exception
from sqlalchemy import exc as sa_exc

from shared_scheduler.core.events import AggregateFacts, ServiceFacts
from shared_scheduler.model.compute_node import JSON_COLUMNS, PLAIN_COLUMNS
from shared_scheduler.sync import cost

CELL0 = "00000000-0000-0000-0000-000000000000"
COMPUTE = "nova-compute"
SHELVED_OFFLOADED = "shelved_offloaded"
EVACUATION = "evacuation"
#: Statuses of an evacuation's record until nova-compute has written where the server lives now.
EVACUATING = ("accepted", "pre-migrating")

#: Values in one IN list.
CHUNK = 500

#: What MySQL's error numbers mean to an operator.
_MYSQL_ADVICE = {
    1044: "its user may not read this database: grant it",
    1045: "user or password are wrong",
    1049: "there is no such database: check the name, or create and migrate it with nova-manage",
    1054: "a column is missing: run nova-manage db sync, this needs the schema of Nova 34",
    1146: "a table is missing: run nova-manage db sync and nova-manage api_db sync",
    2003: "nobody answers there: start it, or correct the address",
    2005: "the host name is unknown",
    2013: "the connection was lost: it is overloaded or was restarted",
}


class DatabaseError(Exception):
    """One line: which database, what is wrong, what to do."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the API database, its URLs filled in where they were templates."""

    uuid: str
    name: str
    database_url: str
    transport_url: str
    disabled: bool = False

    @property
    def schedulable(self) -> bool:
        """Hosts may be chosen there: not cell 0, not disabled."""
        return self.uuid != CELL0 and not self.disabled


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """One server in its cell.  ``node``: the uuid of the compute node of its host, if there is one."""

    host: str | None
    node: str | None
    vm_state: str | None
    task_state: str | None
    hidden: bool
    evacuating: bool


def _table(name: str, *columns: str, **typed: Any) -> Any:
    plain: list[sa.ColumnClause[Any]] = [sa.column(column) for column in columns]
    return sa.table(name, *plain, *(sa.column(column, kind) for column, kind in typed.items()))


_CELLS = _table("cell_mappings", "id", "uuid")
_MAPPINGS = _table("instance_mappings", "cell_id", "instance_uuid", "queued_for_delete", updated_at=sa.DateTime)
_TIMES = {"created_at": sa.DateTime, "updated_at": sa.DateTime}
_SERVICES = _table(
    "services", "id", "uuid", "host", "binary", "topic", "report_count", "disabled",
    "disabled_reason", "forced_down", "version", "deleted", last_seen_up=sa.DateTime, **_TIMES,
)  # fmt: skip
_NODES = _table("compute_nodes", *PLAIN_COLUMNS, *JSON_COLUMNS, "deleted", updated_at=sa.DateTime)
_INSTANCES = _table("instances", "uuid", "host", "node", "vm_state", "task_state", "hidden", "deleted",
                    updated_at=sa.DateTime)  # fmt: skip
_GROUPS = _table("instance_groups", "id", "uuid")
_GROUP_MEMBERS = _table("instance_group_member", "group_id", "instance_uuid")
_MIGRATIONS = _table("migrations", "instance_uuid", "migration_type", "status", "deleted")


class _Database:
    """One database: queries through a given engine, and errors as one line."""

    def __init__(self, engine: Callable[[], sa.Engine], option: str) -> None:
        """``engine``: called for each query, because Nova makes its engines when they are first used.  ``option``:
        where the operator has set its address."""
        self._engine = engine
        self._option = option
        self._closed = False

    def close(self) -> None:
        """Read it no more: a read that is still under way fails with its next query."""
        self._closed = True

    def rows(self, query: Any) -> list[Mapping[str, Any]]:
        """The rows of one query.

        :raises DatabaseError: when they cannot be read
        """
        if self._closed:
            raise DatabaseError(f"{self._option}: this database is not read any more")
        with self._explained(), self._engine().connect() as connection:
            found: list[Mapping[str, Any]] = [dict(row) for row in connection.execute(query).mappings()]
        cost.count(len(found))
        return found

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except db_exception.CantStartEngineError as error:
            raise DatabaseError(f"{self._option} is not set; set it in nova.conf") from error
        except (db_exception.DBError, sa_exc.SQLAlchemyError, ImportError, ValueError, TypeError) as error:
            raise DatabaseError(f"{self._option}: the database cannot be read: {_advice(error)}") from error


class ApiDatabase(_Database):
    """Nova's API database: cells, aggregates, server groups, and which cell a server is mapped to."""

    def __init__(
        self,
        engine: Callable[[], sa.Engine],
        cells: Callable[[], Iterable[Cell]],
        aggregates: Callable[[], tuple[AggregateFacts, ...]],
    ) -> None:
        """``cells``: all, cell 0 and disabled ones too.  ``aggregates``: all host aggregates."""
        super().__init__(engine, "[api_database] connection")
        self._cells = cells
        self._aggregates = aggregates

    def cells(self) -> tuple[Cell, ...]:
        """All cells, cell 0 and disabled ones too.

        :raises DatabaseError: when they cannot be read
        """
        with self._explained():
            found = tuple(self._cells())
        cost.count(len(found))
        return found

    def aggregates(self) -> tuple[AggregateFacts, ...]:
        """All host aggregates with hosts and metadata (``availability_zone`` is metadata).

        :raises DatabaseError: when they cannot be read
        """
        with self._explained():
            found = self._aggregates()
        cost.count(len(found))
        return found

    def buried(self, within: timedelta, limit: int) -> tuple[str, ...]:
        """Uuids of the servers that were mapped to cell 0 last: no host ever had or will have them.

        The newest first, at most ``limit`` of those not older than the newest by more than ``within``.
        """
        there = _MAPPINGS.join(_CELLS, _MAPPINGS.c.cell_id == _CELLS.c.id)
        when = _MAPPINGS.c.updated_at
        newest = sa.func.max(when, type_=sa.DateTime).label("newest")
        in_cell0 = _CELLS.c.uuid == CELL0
        since = self.rows(sa.select(newest).select_from(there).where(in_cell0))[0]["newest"]
        if since is None:
            return ()
        query = sa.select(_MAPPINGS.c.instance_uuid).select_from(there)
        found = query.where(in_cell0, when >= since - within).order_by(when.desc()).limit(limit)
        return tuple(row["instance_uuid"] for row in self.rows(found))

    def cell_of(self, server: str) -> str | None:
        """Uuid of the cell that a server is mapped to; None: to none yet, or it is not known."""
        there = _MAPPINGS.join(_CELLS, _MAPPINGS.c.cell_id == _CELLS.c.id)
        query = sa.select(_CELLS.c.uuid).select_from(there)
        rows = self.rows(query.where(_MAPPINGS.c.instance_uuid == server))
        return str(rows[0]["uuid"]) if rows else None

    def members_of(self, group: str) -> frozenset[str]:
        """Uuids of the servers in a server group, without those that are deleted: Nova never takes them out.

        :raises DatabaseError: when they cannot be read
        """
        server = _GROUP_MEMBERS.c.instance_uuid
        there = _GROUP_MEMBERS.join(_GROUPS, _GROUP_MEMBERS.c.group_id == _GROUPS.c.id)
        there = there.outerjoin(_MAPPINGS, _MAPPINGS.c.instance_uuid == server)
        lives = sa.func.coalesce(_MAPPINGS.c.queued_for_delete, sa.false()) == sa.false()
        query = sa.select(server).select_from(there).where(_GROUPS.c.uuid == group, lives)
        return frozenset(str(row["instance_uuid"]) for row in self.rows(query))


class CellDatabase(_Database):
    """One cell's database: services, compute nodes, instances."""

    def __init__(
        self,
        cell: Cell,
        engine: Callable[[], sa.Engine],
        service_down_time_s: Callable[[], float],
        utcnow: Callable[[], datetime],
    ) -> None:
        super().__init__(engine, f"database_connection of cell {cell.name or cell.uuid}")
        self.cell = cell
        self._service_down_time_s = service_down_time_s
        self._utcnow = utcnow

    # -- services ----------------------------------------------------------------------------

    def services(self) -> tuple[ServiceFacts, ...]:
        """All nova-compute services."""
        return self._services(sa.true())

    def service_exceptions(
        self, also: Collection[str] = (), after_id: int | None = None
    ) -> tuple[ServiceFacts, ...]:
        """Those that are disabled, forced down or not heard of, those of the hosts ``also``, and
        new ones (record ``id`` beyond ``after_id``).

        A handful in a healthy cell: cheap enough to ask every second.
        """
        heard = sa.func.coalesce(_SERVICES.c.last_seen_up, _SERVICES.c.created_at)
        now = self._utcnow().replace(tzinfo=None)
        stale = heard < now - timedelta(seconds=self._service_down_time_s())
        odd = sa.or_(_SERVICES.c.disabled == sa.true(), _SERVICES.c.forced_down == sa.true(), stale)
        if after_id is not None:
            odd = sa.or_(odd, _SERVICES.c.id > after_id)
        found = {one.host: one for one in self._services(odd)}
        for part in _chunks(sorted(set(also) - set(found))):
            found |= {one.host: one for one in self._services(_SERVICES.c.host.in_(part))}
        return tuple(found.values())

    def _services(self, condition: Any) -> tuple[ServiceFacts, ...]:
        query = sa.select(_SERVICES).where(
            _SERVICES.c.binary == COMPUTE, _SERVICES.c.deleted == 0, condition
        )
        now = self._utcnow()
        return tuple(self._service(row, now) for row in self.rows(query) if row["host"])

    def _service(self, row: Mapping[str, Any], now: datetime) -> ServiceFacts:
        record = {name: _aware(value) for name, value in row.items() if name != "deleted"}
        record |= {"disabled": bool(row["disabled"]), "forced_down": bool(row["forced_down"])}
        record |= {"deleted": False, "deleted_at": None, "availability_zone": None}
        heard = record["last_seen_up"] or record["created_at"]
        up = heard is not None and (
            abs((now - heard).total_seconds()) <= self._service_down_time_s()
        )
        return ServiceFacts(
            row["host"], record["disabled"], record["forced_down"], up, row["version"] or 0, record
        )

    # -- compute nodes -----------------------------------------------------------------------

    def node_names(self) -> frozenset[str]:
        """Uuids of all compute nodes."""
        query = sa.select(_NODES.c.uuid).where(_NODES.c.deleted == 0)
        return frozenset(row["uuid"] for row in self.rows(query) if row["uuid"])

    def nodes(self, uuids: Collection[str] | None = None) -> list[Mapping[str, Any]]:
        """Rows of all compute nodes, or of these; see ``state.compute_node`` for their meaning."""
        if uuids is None:
            return self._nodes(sa.true())
        parts = _chunks(sorted(uuids))
        return [row for part in parts for row in self._nodes(_NODES.c.uuid.in_(part))]

    def nodes_changed_since(self, moment: datetime) -> list[tuple[str, datetime]]:
        """Uuid and time of change of those that nova-compute has reported since ``moment``."""
        query = sa.select(_NODES.c.uuid, _NODES.c.updated_at).where(
            _NODES.c.deleted == 0, _NODES.c.updated_at >= moment.replace(tzinfo=None)
        )
        return [(row["uuid"], row["updated_at"]) for row in self.rows(query) if row["uuid"]]

    def last_change(self) -> datetime | None:
        """The time of the newest report, by the clock of its writer."""
        newest = sa.func.max(_NODES.c.updated_at, type_=sa.DateTime).label("newest")
        found: datetime | None = self.rows(sa.select(newest))[0]["newest"]
        return found

    def _nodes(self, condition: Any) -> list[Mapping[str, Any]]:
        query = sa.select(_NODES).where(_NODES.c.deleted == 0, condition)
        rows = self.rows(query)
        return [row for row in rows if row["uuid"] and row["host"]]

    def instances(self, hosts: Collection[str] | None = None) -> dict[str, frozenset[str]]:
        """Service host to the uuids of its instances; of these hosts, or of all."""
        found: dict[str, set[str]] = {}
        for condition in self._of_hosts(hosts):
            query = sa.select(_INSTANCES.c.uuid, _INSTANCES.c.host).where(
                _INSTANCES.c.deleted == 0, condition
            )
            for row in self.rows(query):
                found.setdefault(row["host"], set()).add(row["uuid"])
        return {host: frozenset(uuids) for host, uuids in found.items()}

    def offloaded(
        self, within: timedelta, limit: int, server: str | None = None
    ) -> tuple[tuple[str, datetime], ...]:
        """Shelved servers that are on no host and of which nothing is under way, changed ``within``.

        Uuid and last change, the newest first, at most ``limit``; or of ``server`` alone.
        """
        row, since = _INSTANCES.c, self._utcnow().replace(tzinfo=None) - within
        idle = (row.task_state.is_(None), row.updated_at >= since, row.vm_state == SHELVED_OFFLOADED)
        wanted = sa.true() if server is None else row.uuid == server
        query = sa.select(row.uuid, row.updated_at).where(
            *idle, row.host.is_(None), row.deleted == 0, wanted
        )
        rows = self.rows(query.order_by(row.updated_at.desc()).limit(limit))
        return tuple((found["uuid"], found["updated_at"]) for found in rows)

    def server(self, uuid: str) -> ServerFacts | None:
        """One server as of one moment (a single statement); None: it is not there, or deleted."""
        row, node, move = _INSTANCES.c, _NODES.c, _MIGRATIONS.c
        lives = sa.and_(
            node.host == row.host, node.hypervisor_hostname == row.node, node.deleted == 0
        )
        evacuating = sa.exists().where(
            move.instance_uuid == row.uuid, move.migration_type == EVACUATION,
            move.status.in_(EVACUATING), move.deleted == 0,
        )  # fmt: skip
        query = sa.select(
            row.host, row.vm_state, row.task_state, row.hidden, node.uuid.label("lives_on"),
            evacuating.label("evacuating"),
        ).select_from(_INSTANCES.outerjoin(_NODES, lives))  # fmt: skip
        found = self.rows(query.where(row.uuid == uuid, row.deleted == 0))
        return _server(found[0]) if found else None

    def _of_hosts(self, hosts: Collection[str] | None) -> list[Any]:
        if hosts is None:
            return [_INSTANCES.c.host.is_not(None)]
        return [_INSTANCES.c.host.in_(part) for part in _chunks(sorted(hosts))]


def _server(row: Mapping[str, Any]) -> ServerFacts:
    return ServerFacts(
        row["host"], row["lives_on"], row["vm_state"], row["task_state"],
        bool(row["hidden"]), bool(row["evacuating"]),
    )  # fmt: skip


def _chunks(values: Sequence[str]) -> list[Sequence[str]]:
    return [values[start : start + CHUNK] for start in range(0, len(values), CHUNK)]


def _aware(value: Any) -> Any:
    """Nova's columns are UTC without saying so; its objects say so."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


def _advice(error: Exception) -> str:
    """What an operator can do, with the driver's own words."""
    inner = getattr(error, "inner_exception", None) or error  # oslo.db wraps SQLAlchemy's, which wrap the driver's
    original = getattr(inner, "orig", None) or inner
    number = original.args[0] if original.args else None
    words = " ".join(str(original.args[-1] if original.args else original).split())
    if isinstance(number, int) and number in _MYSQL_ADVICE:
        return f"{_MYSQL_ADVICE[number]} ({words})"
    if isinstance(inner, (ImportError, sa_exc.NoSuchModuleError)):
        return f"its driver is not installed ({words}); use mysql+pymysql://"
    if isinstance(inner, sa_exc.ArgumentError):
        return "it is no database URL, it should look like mysql+pymysql://user:password@host/nova"
    return words or type(inner).__name__
