# SPDX-License-Identifier: Apache-2.0
"""Bulk reads of Nova's databases, where nova-scheduler runs its queries for each request.

Plain SQL on the needed columns, read only; no Nova object is created.  Schema: Nova 34 (nova/db/main/models.py,
nova/db/api/models.py).  Every error is a ``DatabaseError`` with one line that names a remedy and no password.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exception
from sqlalchemy import exc as sa_exc

from shared_scheduler.core.effects import AskGroup
from shared_scheduler.core.events import AggregateFacts, BuildRead, ServiceFacts
from shared_scheduler.decision.spread_request import FORMS, IMAGE_PROPERTIES, LABEL
from shared_scheduler.model.compute_node import JSON_COLUMNS, PLAIN_COLUMNS
from shared_scheduler.sync import cost
from shared_scheduler.sync.build_facts import CLOCKS_DIFFER_S, SHELVED_OFFLOADED, BuildFacts
from shared_scheduler.sync.kept_connection import KeptConnection

CELL0 = "00000000-0000-0000-0000-000000000000"
COMPUTE = "nova-compute"
#: The event of the build of a server on a node (nova.compute.manager).
BUILD_EVENT = "compute__do_build_and_run_instance"
EVACUATION = "evacuation"
#: Statuses of the record of an evacuation until nova-compute has written the new host of the server.  The record of any
#: other move has them while a host is selected.
EVACUATING = ("accepted", "pre-migrating")
#: Statuses of the records of moves that are over.
MOVED = ("confirmed", "reverted", "error", "failed", "completed", "cancelled", "done")

#: What Nova writes before the name of a property of an image (``nova.utils.SM_IMAGE_PROP_PREFIX``).
OF_IMAGE = "image_"
#: The beginning of all properties that ask for spreading, in the record of a server that has no cell yet.
OF_IMAGE_HERE = f'"{OF_IMAGE}shared_scheduler'

#: The maximum number of values in one IN list.
CHUNK = 500

#: The remedies for MySQL's error numbers.
_MYSQL_ADVICE = {
    1044: "its user has no permission to read this database: grant it",
    1045: "user or password are wrong",
    1049: "there is no such database: check the name, or create and migrate it with nova-manage",
    1054: "a column is missing: run nova-manage db sync, this needs the schema of Nova 34",
    1146: "a table is missing: run nova-manage db sync and nova-manage api_db sync",
    2003: "no server answers at this address: start the server, or correct the address",
    2005: "the host name is unknown",
    2013: "the connection was lost: it is overloaded or was restarted",
}


class DatabaseError(Exception):
    """One line: the database, the error and the remedy."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the API database, whose URL templates are filled in."""

    uuid: str
    name: str
    database_url: str
    transport_url: str
    disabled: bool = False

    @property
    def schedulable(self) -> bool:
        """Whether its hosts may be selected: it is neither cell 0 nor disabled."""
        return self.uuid != CELL0 and not self.disabled


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """One server in its cell.  ``node``: the uuid of the compute node of its host, None if there is none.

    ``move``: the type of its newest migration that is not beyond scheduling, ``migration`` its uuid; None if there is
    none.
    """

    host: str | None
    node: str | None
    vm_state: str | None
    task_state: str | None
    hidden: bool
    evacuating: bool
    move: str | None = None
    migration: str | None = None


@dataclass(frozen=True, slots=True)
class ImageRead:
    """What Nova's API database shows of the image of a server: the cell that has its properties, or, while it has none,
    the properties that ask for spreading."""

    server: str
    cell: str | None
    properties: Mapping[str, str]


def _table(name: str, *columns: str, **typed: Any) -> Any:
    plain: list[sa.ColumnClause[Any]] = [sa.column(column) for column in columns]
    return sa.table(name, *plain, *(sa.column(column, kind) for column, kind in typed.items()))


_CELLS = _table("cell_mappings", "id", "uuid")
_MAPPINGS = _table("instance_mappings", "cell_id", "instance_uuid", "project_id", "queued_for_delete",
                   updated_at=sa.DateTime)  # fmt: skip
_BUILDS = _table("build_requests", "instance_uuid", "project_id", "instance")
_SYSTEM_METADATA = _table("instance_system_metadata", "instance_uuid", "key", "value", "deleted")
_SPECS = _table("request_specs", "instance_uuid", "spec")
_TIMES = {"created_at": sa.DateTime, "updated_at": sa.DateTime}
_SERVICES = _table(
    "services", "id", "uuid", "host", "binary", "topic", "report_count", "disabled",
    "disabled_reason", "forced_down", "version", "deleted", last_seen_up=sa.DateTime, **_TIMES,
)  # fmt: skip
_NODES = _table("compute_nodes", *PLAIN_COLUMNS, *JSON_COLUMNS, "deleted", updated_at=sa.DateTime)
_INSTANCES = _table("instances", "uuid", "project_id", "host", "node", "vm_state", "task_state", "hidden", "deleted",
                    updated_at=sa.DateTime, launched_at=sa.DateTime)  # fmt: skip
_FAULTS = _table("instance_faults", "id", "instance_uuid", "message", "host", created_at=sa.DateTime)
_ACTIONS = _table("instance_actions", "id", "instance_uuid")
_EVENTS = _table("instance_actions_events", "id", "action_id", "event", "host", start_time=sa.DateTime)
_GROUPS = _table("instance_groups", "id", "uuid")
_GROUP_MEMBERS = _table("instance_group_member", "group_id", "instance_uuid")
_IN_GROUP = _SPECS.c.spec.contains('"instance_group": {', autoescape=True)
_LIVES = sa.func.coalesce(_MAPPINGS.c.queued_for_delete, sa.false()) == sa.false()
_HEARD = sa.func.coalesce(_SERVICES.c.last_seen_up, _SERVICES.c.created_at)
_MIGRATIONS = _table("migrations", "id", "uuid", "instance_uuid", "migration_type", "status", "dest_compute", "deleted")


class _Database:
    """One database: runs queries with a given engine, and converts errors to one line."""

    def __init__(self, engine: Callable[[], sa.Engine], option: str) -> None:
        """``engine``: called for each query, because Nova creates its engines when they are first used.  ``option``:
        the option that contains the address."""
        self._engine = engine
        self._option = option
        self._closed = False

    def close(self) -> None:
        """Stop reading; a read that is under way fails with its next query."""
        self._closed = True

    def rows(self, query: Any) -> list[Mapping[str, Any]]:
        """The rows of one query.

        :raises DatabaseError: when they cannot be read
        """
        self._check_open()
        with self._explained(), self._engine().connect() as connection:
            found: list[Mapping[str, Any]] = [dict(row) for row in connection.execute(query).mappings()]
        cost.count(len(found))
        return found

    def _check_open(self) -> None:
        if self._closed:
            raise DatabaseError(f"{self._option}: this database was closed")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except db_exception.CantStartEngineError as error:
            raise DatabaseError(f"{self._option} is not set; set it in nova.conf") from error
        except (db_exception.DBError, sa_exc.SQLAlchemyError, ImportError, ValueError, TypeError) as error:
            raise DatabaseError(f"{self._option}: the database cannot be read: {advice(error)}") from error


class ApiDatabase(_Database):
    """Nova's API database: cells, aggregates, server groups, and which cell a server is mapped to."""

    def __str__(self) -> str:
        return "the API database"

    def __init__(
        self,
        engine: Callable[[], sa.Engine],
        cells: Callable[[], Iterable[Cell]],
        aggregates: Callable[[], tuple[AggregateFacts, ...]],
        utcnow: Callable[[], datetime],
    ) -> None:
        """``cells``: reads all cells, including cell 0 and disabled ones.  ``aggregates``: reads all host
        aggregates."""
        super().__init__(engine, "[api_database] connection")
        self._cells = cells
        self._aggregates = aggregates
        self._utcnow = utcnow

    def cells(self) -> tuple[Cell, ...]:
        """All cells, including cell 0 and disabled ones.

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
        """Uuids of the servers that were mapped to cell 0 last; such a server never has a host.

        The oldest first, deleted ones after the others: Nova has taken back what these had, and has written to their
        mappings.  At most ``limit``, the newest, of those that are at most ``within`` older than the newest, or than
        now if the writer's clock is fast; deleted ones only if the others are fewer.
        """
        there = _MAPPINGS.join(_CELLS, _MAPPINGS.c.cell_id == _CELLS.c.id)
        when = _MAPPINGS.c.updated_at
        newest = sa.func.max(when, type_=sa.DateTime).label("newest")
        in_cell0 = _CELLS.c.uuid == CELL0
        since = self.rows(sa.select(newest).select_from(there).where(in_cell0))[0]["newest"]
        if since is None:
            return ()
        since = min(since, self._utcnow().replace(tzinfo=None))
        query = sa.select(_MAPPINGS.c.instance_uuid, _LIVES.label("lives")).select_from(there)
        found = query.where(in_cell0, when >= since - within).order_by(_LIVES.desc(), when.desc()).limit(limit)
        oldest_first = sorted(reversed(self.rows(found)), key=lambda row: not row["lives"])
        return tuple(row["instance_uuid"] for row in oldest_first)

    def mapping_of(self, server: str) -> tuple[str | None, bool]:
        """Uuid of the cell that a server is mapped to, None if it is mapped to none yet; and whether it is deleted, as
        one that is not known."""
        there = _MAPPINGS.outerjoin(_CELLS, _MAPPINGS.c.cell_id == _CELLS.c.id)
        query = sa.select(_CELLS.c.uuid, _LIVES.label("lives")).select_from(there)
        rows = self.rows(query.where(_MAPPINGS.c.instance_uuid == server))
        return (rows[0]["uuid"], not rows[0]["lives"]) if rows else (None, True)

    def members_of(self, question: AskGroup) -> dict[str, str | None]:
        """The servers of a group or label, without deleted ones and those in cell 0, which never get a host.

        Uuid -> uuid of its cell, or None; the conductor sets it after the scheduler has answered.

        :raises DatabaseError: when they cannot be read
        """
        if question.label:
            return self._labelled(question.project_id, question.label)
        return self._grouped(question.group)

    def _grouped(self, group: str) -> dict[str, str | None]:
        """The members of a server group.  Nova never removes deleted ones from it."""
        server = _GROUP_MEMBERS.c.instance_uuid
        there = _GROUP_MEMBERS.join(_GROUPS, _GROUP_MEMBERS.c.group_id == _GROUPS.c.id)
        there = there.outerjoin(_MAPPINGS, _MAPPINGS.c.instance_uuid == server)
        return self._members(server, there, _GROUPS.c.uuid == group)

    def _labelled(self, project_id: str, label: str) -> dict[str, str | None]:
        """The servers of a project with a label (``decision/spread_request.py``).

        It is in the request spec of a server, as JSON: in its flavor or in its scheduler hints.  A server in a server
        group has no label.  ``sync/image_reads.py`` finds those with the label of their image.
        """
        text, server = _SPECS.c.spec, _MAPPINGS.c.instance_uuid
        named = sa.or_(*(_has(text, json.dumps({LABEL: form})[1:-1]) for form in (label, [label])))
        there = _MAPPINGS.join(_SPECS, _SPECS.c.instance_uuid == server)
        return self._members(server, there, _MAPPINGS.c.project_id == project_id, named, ~_IN_GROUP)

    def image_of(self, servers: Sequence[str]) -> ImageRead | None:
        """The image of these servers, which have the same one; None if Nova knows none of them any more.

        Nova-api stores the properties of the image in the record of a new server (``system_metadata`` of the instance
        in ``build_requests``), and the conductor moves the record into the cell.  It maps the server to the cell before
        it deletes the build request, so a server always has one of them.  A user may have deleted some of the servers.
        """
        text, build, server = _BUILDS.c.instance, _BUILDS.c.instance_uuid, _MAPPINGS.c.instance_uuid
        there = _MAPPINGS.outerjoin(_CELLS, _MAPPINGS.c.cell_id == _CELLS.c.id).outerjoin(_BUILDS, build == server)
        needed = sa.case((text.contains(OF_IMAGE_HERE, autoescape=True), text)).label("needed")
        known = sa.or_(_CELLS.c.uuid.is_not(None), text.is_not(None))
        query = sa.select(server, _CELLS.c.uuid, needed).select_from(there).where(known).limit(1)
        for part in _chunks(servers):
            for row in self.rows(query.where(server.in_(part))):
                properties = {} if row["uuid"] else self._asked_in(row["needed"])
                return ImageRead(row["instance_uuid"], row["uuid"], properties)
        return None

    def _asked_in(self, instance: str | None) -> dict[str, str]:
        """The properties that ask for spreading in the record of a server, which is a Nova object as JSON."""
        if instance is None:
            return {}
        try:
            metadata = json.loads(instance)["nova_object.data"].get("system_metadata") or {}
            return _asked(metadata.items())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DatabaseError(f"{self._option}: the record of a new server cannot be read: {error!r}") from error

    def new_with_image_label(self, project_id: str, label: str) -> frozenset[str]:
        """The new servers of a project whose image has a label: those without a cell, as far as the conductor has come.

        It compares texts, so it may find a server whose user has written the same words into its metadata."""
        text = _BUILDS.c.instance
        named = sa.or_(*(_has(text, json.dumps({OF_IMAGE + form: label})[1:-1]) for form in FORMS[LABEL]))
        found = self.rows(sa.select(_BUILDS.c.instance_uuid).where(_BUILDS.c.project_id == project_id, named))
        return frozenset(row["instance_uuid"] for row in found)

    def cells_of_project(self, project_id: str) -> frozenset[str]:
        """Uuids of the cells that have servers of a project, without cell 0."""
        there = _MAPPINGS.join(_CELLS, _MAPPINGS.c.cell_id == _CELLS.c.id)
        of_project = (_MAPPINGS.c.project_id == project_id, _LIVES, _CELLS.c.uuid != CELL0)
        found = self.rows(sa.select(_CELLS.c.uuid).distinct().select_from(there).where(*of_project))
        return frozenset(row["uuid"] for row in found)

    def members_among(self, servers: Collection[str]) -> dict[str, str | None]:
        """Those of these servers that may have a host and are in no server group; see ``members_of``."""
        server = _MAPPINGS.c.instance_uuid
        there = _MAPPINGS.join(_SPECS, _SPECS.c.instance_uuid == server)
        parts = _chunks(sorted(servers))
        found = (self._members(server, there, server.in_(part), ~_IN_GROUP) for part in parts)
        return {uuid: cell for each in found for uuid, cell in each.items()}

    def _members(self, server: Any, there: Any, *conditions: Any) -> dict[str, str | None]:
        """The servers that may have a host; ``there`` contains their mappings."""
        there = there.outerjoin(_CELLS, _MAPPINGS.c.cell_id == _CELLS.c.id)
        may_have = sa.or_(_CELLS.c.uuid.is_(None), _CELLS.c.uuid != CELL0)
        query = sa.select(server, _CELLS.c.uuid).select_from(there).where(*conditions, _LIVES, may_have)
        return {str(row["instance_uuid"]): row["uuid"] for row in self.rows(query)}


def _asked(metadata: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """The properties of an image that ask for spreading, from the system metadata of a server."""
    named = {OF_IMAGE + name: name for name in IMAGE_PROPERTIES}
    return {named[key]: value for key, value in metadata if key in named and value is not None}


def _has(text: Any, part: str) -> Any:
    """Whether a text contains this part, in this case.  LIKE ignores the case in MySQL and SQLite; REPLACE does not."""
    shorter = sa.func.length(sa.func.replace(text, part, "")) < sa.func.length(text)
    return text.contains(part, autoescape=True) & shorter


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
        self._kept = KeptConnection(engine)

    def __str__(self) -> str:
        return f"the database of cell {self.cell.name or self.cell.uuid}"

    def close(self) -> None:
        """See ``_Database.close``."""
        super().close()
        self._kept.close()

    def abandon(self) -> None:
        """Stop reading, because a query hangs: an object that is created later uses none of the present connections,
        which may have been lost as well.  Waits for none of them."""
        self.close()

    def now(self) -> datetime:
        """The time of this machine, without a zone, as Nova's columns have theirs."""
        return self._utcnow().replace(tzinfo=None)

    # -- services ----------------------------------------------------------------------------

    def services(self) -> tuple[ServiceFacts, ...]:
        """All nova-compute services."""
        return self._services(sa.true())

    def service_exceptions(self, also: Collection[str] = (), after_id: int | None = None) -> tuple[ServiceFacts, ...]:
        """Services that are disabled, forced down or without a report, those of the hosts ``also``, and new ones
        (with a record ``id`` above ``after_id``).

        In a healthy cell it returns few rows, so it can be repeated every second.
        """
        now = self.now()
        stale = now - timedelta(seconds=self._service_down_time_s()) > _HEARD
        odd = sa.or_(_SERVICES.c.disabled == sa.true(), _SERVICES.c.forced_down == sa.true(), stale)
        if after_id is not None:
            odd = sa.or_(odd, _SERVICES.c.id > after_id)
        found = {one.host: one for one in self._services(odd)}
        found |= {one.host: one for one in self.services_of(set(also) - set(found))}
        return tuple(found.values())

    def accepting(self, hosts: Collection[str]) -> frozenset[str]:
        """Those of these hosts whose service is there, enabled and up: a small query by an index, for every request."""
        self._check_open()
        now, grace = self.now(), timedelta(seconds=self._service_down_time_s())
        heard = {"first": now - grace, "last": now + grace}
        with self._explained():
            parts = [self._kept.column(*_accepting_of(part, heard)) for part in _chunks(sorted(hosts))]
        found = frozenset(host for part in parts for host in part)
        cost.count(len(found))
        return found

    def services_of(self, hosts: Collection[str]) -> tuple[ServiceFacts, ...]:
        """The services of these hosts, by an index."""
        parts = _chunks(sorted(hosts))
        return tuple(one for part in parts for one in self._services(_SERVICES.c.host.in_(part)))

    def _services(self, condition: Any) -> tuple[ServiceFacts, ...]:
        query = sa.select(_SERVICES).where(_SERVICES.c.binary == COMPUTE, _SERVICES.c.deleted == 0, condition)
        now = self._utcnow()
        return tuple(self._service(row, now) for row in self.rows(query) if row["host"])

    def _service(self, row: Mapping[str, Any], now: datetime) -> ServiceFacts:
        record = {name: value for name, value in _with_zones(row).items() if name != "deleted"}
        record |= {"disabled": bool(row["disabled"]), "forced_down": bool(row["forced_down"])}
        record |= {"deleted": False, "deleted_at": None, "availability_zone": None}
        heard = record["last_seen_up"] or record["created_at"]
        up = heard is not None and (abs((now - heard).total_seconds()) <= self._service_down_time_s())
        return ServiceFacts(row["host"], record["disabled"], record["forced_down"], up, row["version"] or 0, record)

    # -- compute nodes -----------------------------------------------------------------------

    def node_hosts(self) -> dict[str, str]:
        """Uuid -> host of all compute nodes."""
        query = sa.select(_NODES.c.uuid, _NODES.c.host).where(_NODES.c.deleted == 0)
        return {row["uuid"]: row["host"] or "" for row in self.rows(query) if row["uuid"]}

    def nodes(self, uuids: Collection[str] | None = None) -> list[Mapping[str, Any]]:
        """Rows of all compute nodes, or of ``uuids``; ``model.compute_node`` defines their meaning."""
        if uuids is None:
            return self._nodes(sa.true())
        parts = _chunks(sorted(uuids))
        return [row for part in parts for row in self._nodes(_NODES.c.uuid.in_(part))]

    def nodes_changed_since(self, moment: datetime) -> list[tuple[str, datetime]]:
        """Uuid and time of change of the compute nodes that nova-compute has reported since ``moment``."""
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
        """Service host -> uuids of its instances; of ``hosts``, or of all."""
        found: dict[str, set[str]] = {}
        for condition in self._of_hosts(hosts):
            query = sa.select(_INSTANCES.c.uuid, _INSTANCES.c.host).where(_INSTANCES.c.deleted == 0, condition)
            for row in self.rows(query):
                found.setdefault(row["host"], set()).add(row["uuid"])
        return {host: frozenset(uuids) for host, uuids in found.items()}

    def hosts_of(self, servers: Collection[str], undecided: bool = False) -> dict[str, str]:
        """Uuid -> service host of those of these servers that have one; a server that moves is where it was, until it
        has left.

        ``undecided``: without those that move to a host that the record of the move names."""
        row, move, parts = _INSTANCES.c, _MIGRATIONS.c, _chunks(sorted(servers))
        query = sa.select(row.uuid, row.host).where(row.deleted == 0, row.host.is_not(None))
        if undecided:
            query = query.where(~sa.exists().where(
                move.instance_uuid == row.uuid, move.status.not_in(MOVED), move.dest_compute.is_not(None),
                move.deleted == 0,
            ))  # fmt: skip
        found = (one for part in parts for one in self.rows(query.where(row.uuid.in_(part))))
        return {one["uuid"]: one["host"] for one in found}

    def image_properties(self, server: str) -> dict[str, str]:
        """The properties of the image of a server that ask for spreading.

        :raises DatabaseError: when they cannot be read, or the cell does not have the server
        """
        metadata, instance = _SYSTEM_METADATA.c, _INSTANCES.c
        asks = metadata.key.in_([OF_IMAGE + name for name in IMAGE_PROPERTIES])
        own = sa.and_(metadata.instance_uuid == instance.uuid, metadata.deleted == 0, asks)
        there = _INSTANCES.outerjoin(_SYSTEM_METADATA, own)
        query = sa.select(metadata.key, metadata.value).select_from(there)
        rows = self.rows(query.where(instance.uuid == server, instance.deleted == 0))
        if not rows:
            raise DatabaseError(f"{self} does not have server {server}, which is mapped to it; it may be deleted")
        return _asked((row["key"], row["value"]) for row in rows)

    def with_image_label(self, project_id: str, label: str) -> frozenset[str]:
        """The servers of a project whose image has a label."""
        metadata, instance = _SYSTEM_METADATA.c, _INSTANCES.c
        asks = metadata.key.in_([OF_IMAGE + form for form in FORMS[LABEL]])
        there = _INSTANCES.join(_SYSTEM_METADATA, metadata.instance_uuid == instance.uuid)
        query = sa.select(instance.uuid, metadata.value).select_from(there).where(
            instance.project_id == project_id, instance.deleted == 0, metadata.deleted == 0, asks,
            metadata.value == label,
        )  # fmt: skip
        return frozenset(row["uuid"] for row in self.rows(query) if row["value"] == label)  # MySQL ignores the case

    def offloaded(self, within: timedelta, limit: int, server: str | None = None) -> tuple[tuple[str, datetime], ...]:
        """Shelved servers without a host and without a task, changed ``within`` this time.

        Uuid and last change, the newest first, at most ``limit``; or of ``server`` only.
        """
        row, since = _INSTANCES.c, self.now() - within
        idle = (row.task_state.is_(None), row.updated_at >= since, row.vm_state == SHELVED_OFFLOADED)
        wanted = sa.true() if server is None else row.uuid == server
        query = sa.select(row.uuid, row.updated_at).where(*idle, row.host.is_(None), row.deleted == 0, wanted)
        rows = self.rows(query.order_by(row.updated_at.desc()).limit(limit))
        return tuple((found["uuid"], found["updated_at"]) for found in rows)

    def builds(self, ages_s: Mapping[str, float], computes: Collection[str]) -> tuple[BuildRead, ...]:
        """How servers stand that were placed so many seconds ago.  ``computes``: the hosts of compute nodes.

        :raises DatabaseError: when they cannot be read
        """
        row, servers = _INSTANCES.c, sorted(ages_s)
        query = sa.select(row.uuid, row.host, row.vm_state, row.launched_at).where(row.deleted == 0)
        parts = _chunks(servers)
        rows = {one["uuid"]: _with_zones(one) for part in parts for one in self.rows(query.where(row.uuid.in_(part)))}
        now, faults, tries = self._utcnow(), self._faults(servers), self._tries(servers)
        shown = {
            server: BuildFacts(now - timedelta(seconds=age_s + CLOCKS_DIFFER_S), frozenset(computes),
                               faults.get(server, ()), tries.get(server, ()))
            for server, age_s in ages_s.items()
        }  # fmt: skip
        return tuple(facts.build(server, rows.get(server)) for server, facts in shown.items())

    def _tries(self, servers: Sequence[str]) -> dict[str, list[Mapping[str, Any]]]:
        """The builds of these servers that nova-compute has begun, oldest first."""
        action, event, found = _ACTIONS.c, _EVENTS.c, dict[str, list[Mapping[str, Any]]]()
        query = sa.select(action.instance_uuid, event.host, event.start_time).select_from(
            _EVENTS.join(_ACTIONS, event.action_id == action.id)
        )
        for part in _chunks(servers):
            mine = query.where(action.instance_uuid.in_(part), event.event == BUILD_EVENT)
            for one in self.rows(mine.where(event.start_time.is_not(None)).order_by(event.id)):
                found.setdefault(one["instance_uuid"], []).append(_with_zones(one))
        return found

    def _faults(self, servers: Sequence[str]) -> dict[str, list[Mapping[str, Any]]]:
        """The faults of these servers, oldest first; Nova marks those of a deleted server as deleted as well."""
        fault, found = _FAULTS.c, dict[str, list[Mapping[str, Any]]]()
        query = sa.select(fault.instance_uuid, fault.message, fault.host, fault.created_at)
        query = query.where(fault.created_at.is_not(None))
        for part in _chunks(servers):
            for one in self.rows(query.where(fault.instance_uuid.in_(part)).order_by(fault.id)):
                found.setdefault(one["instance_uuid"], []).append(_with_zones(one))
        return found

    def server(self, uuid: str) -> ServerFacts | None:
        """One server at one moment (a single statement); None if it does not exist or is deleted."""
        row, node, move = _INSTANCES.c, _NODES.c, _MIGRATIONS.c
        lives = sa.and_(node.host == row.host, node.hypervisor_hostname == row.node, node.deleted == 0)
        evacuating = sa.exists().where(
            move.instance_uuid == row.uuid, move.migration_type == EVACUATION,
            move.status.in_(EVACUATING), move.deleted == 0,
        )  # fmt: skip
        newest, migration = (
            sa.select(column).where(
                move.instance_uuid == row.uuid, move.status.in_(EVACUATING), move.deleted == 0,
            ).order_by(move.id.desc()).limit(1).scalar_subquery()
            for column in (move.migration_type, move.uuid)
        )  # fmt: skip
        query = sa.select(
            row.host, row.vm_state, row.task_state, row.hidden, node.uuid.label("lives_on"),
            evacuating.label("evacuating"), newest.label("move"),
            migration.label("migration"),
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
        bool(row["hidden"]), bool(row["evacuating"]), row["move"], row["migration"],
    )  # fmt: skip


def _accepting_of(hosts: Sequence[str], heard: Mapping[str, datetime]) -> tuple[Any, Mapping[str, Any]]:
    """The query for those of these hosts whose service accepts servers, and its parameters.

    SQLAlchemy would insert a list of any length into the text for each request.  It compiles a list of known length
    once; a few lengths are enough, because the last host may be there several times."""
    length = 1 << (len(hosts) - 1).bit_length()
    listed = [*hosts] + [hosts[-1]] * (length - len(hosts))
    return _accepting(length), {**heard, **{f"host{number}": host for number, host in enumerate(listed)}}


@cache
def _accepting(hosts: int) -> Any:
    """Those of so many hosts whose service accepts servers: it was heard of between ``first`` and ``last``."""
    return sa.select(_SERVICES.c.host).where(
        _SERVICES.c.host.in_([sa.bindparam(f"host{number}") for number in range(hosts)]),
        _SERVICES.c.binary == COMPUTE, _SERVICES.c.deleted == 0,
        _SERVICES.c.disabled == sa.false(), _SERVICES.c.forced_down == sa.false(),
        _HEARD.between(sa.bindparam("first", type_=sa.DateTime), sa.bindparam("last", type_=sa.DateTime)),
    )  # fmt: skip


def _chunks(values: Sequence[str]) -> list[Sequence[str]]:
    return [values[start : start + CHUNK] for start in range(0, len(values), CHUNK)]


def _with_zones(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of Nova whose times have a zone."""
    return {name: _aware(value) for name, value in row.items()}


def _aware(value: Any) -> Any:
    """Nova's columns have UTC times without a zone; its objects have one."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


def advice(error: BaseException) -> str:
    """The remedy for an operator, with the driver's own message, but without the query."""
    inner = getattr(error, "inner_exception", None) or error  # oslo.db wraps SQLAlchemy's, which wrap the driver's
    original = getattr(inner, "orig", None) or inner
    number = original.args[0] if original.args else None
    words = " ".join(str(original.args[-1] if original.args else original).split())
    if isinstance(number, int) and number in _MYSQL_ADVICE:
        return f"{_MYSQL_ADVICE[number]} ({words})"
    if isinstance(inner, (ImportError, sa_exc.NoSuchModuleError)):
        return f"its driver is not installed ({words}); use mysql+pymysql://"
    if isinstance(inner, sa_exc.ArgumentError):
        return "it is not a valid database URL, which looks like mysql+pymysql://user:password@host/nova"
    return words or type(inner).__name__
