# SPDX-License-Identifier: Apache-2.0
"""Nova's databases on a real MariaDB, migrated by nova-manage, written by Nova's models."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from nova.db.api import models as api_models
from nova.db.main import models as main_models
from sqlalchemy.exc import OperationalError

from shared_scheduler.core.events import NodeRead, ServicesRead
from shared_scheduler.placement.mirror import PlacementMirror
from shared_scheduler.placement.reconciler import ServerActivity, ServerLocation
from shared_scheduler.sync.bootstrap import Bootstrap
from shared_scheduler.sync.databases import ApiDatabase, Cell, CellDatabase, DatabaseError
from shared_scheduler.sync.node_reads import read_node
from shared_scheduler.sync.server_location import Locator
from tests.functional.private_placement import SETTINGS, PrivatePlacement
from tests.support import plain_databases
from tests.support.plain_databases import api_database
from tools.laboratory.cloud import databases
from tools.laboratory.cloud.layout import cell_database

ROOMY = {"VCPU": {"total": 8}, "MEMORY_MB": {"total": 4096}, "DISK_GB": {"total": 100}}


@pytest.fixture(scope="module")
def placement() -> Iterator[PrivatePlacement]:
    one = PrivatePlacement()
    try:
        one.start()
        databases.ensure_cells(one.layout, SETTINGS)
        yield one
    finally:
        one.stop()


@pytest.fixture
def api(placement: PrivatePlacement) -> Iterator[ApiDatabase]:
    one = api_database(placement.layout.database_url("nova_api"))
    yield one
    one.close()


@pytest.fixture
def cell(api: ApiDatabase) -> Iterator[CellDatabase]:
    (mapped,) = [one for one in api.cells() if one.schedulable]
    database = plain_databases.cell_database(mapped)
    yield database
    database.close()


class Compute:
    """The rows that one nova-compute leaves in its cell's database."""

    def __init__(self, placement: PrivatePlacement, **service: Any) -> None:
        self.host = f"cmp-{uuid.uuid4().hex[:8]}"
        self.node = placement.provider(inventories=ROOMY)
        self._engine = sa.create_engine(placement.layout.database_url(cell_database(1)))
        now = datetime.now(UTC).replace(tzinfo=None)
        self.write(main_models.Service, uuid=str(uuid.uuid4()), host=self.host, binary="nova-compute",
                   topic="compute", report_count=1, disabled=False, forced_down=False, version=73, deleted=0,
                   created_at=now, last_seen_up=now, **service)  # fmt: skip
        self.write(main_models.ComputeNode, uuid=self.node, host=self.host, hypervisor_hostname=self.host,
                   vcpus=8, memory_mb=4096, local_gb=100, vcpus_used=0, memory_mb_used=0, local_gb_used=0,
                   hypervisor_type="fake", hypervisor_version=1, free_ram_mb=4096, free_disk_gb=100,
                   cpu_info="{}", stats='{"num_instances": "0"}', updated_at=now, deleted=0)  # fmt: skip

    def write(self, model: Any, **values: Any) -> None:
        with self._engine.begin() as connection:
            connection.execute(sa.insert(model).values(**values))

    def change(self, model: Any, **values: Any) -> None:
        with self._engine.begin() as connection:
            connection.execute(sa.update(model).where(model.host == self.host).values(**values))


def test_a_migrated_schema_has_every_column_that_is_read(
    placement: PrivatePlacement, api: ApiDatabase, cell: CellDatabase
) -> None:
    one = Compute(placement)
    assert [mapped.name for mapped in api.cells()][:2] == ["cell0", "cell1"]
    assert isinstance(api.aggregates(), tuple)
    (service,) = [found for found in cell.services() if found.host == one.host]
    assert service.up and service.version == 73 and not service.disabled
    (row,) = cell.nodes([one.node])
    assert row["memory_mb"] == 4096
    assert one.node in cell.node_hosts()
    assert cell.instances([one.host]) == {}
    assert cell.last_change() is not None


def test_exceptions_on_mariadb(placement: PrivatePlacement, cell: CellDatabase) -> None:
    one = Compute(placement)
    assert one.host not in {found.host for found in cell.service_exceptions()}
    one.change(main_models.Service, disabled=True)
    assert one.host in {found.host for found in cell.service_exceptions()}
    long_ago = datetime.now(UTC).replace(tzinfo=None) - timedelta(hours=1)
    one.change(main_models.Service, disabled=False, last_seen_up=long_ago)
    (found,) = [found for found in cell.service_exceptions() if found.host == one.host]
    assert not found.up and not found.disabled
    one.change(main_models.Service, deleted=1)


def test_services_that_accept_servers_on_mariadb(placement: PrivatePlacement, cell: CellDatabase) -> None:
    now, grace = datetime.now(UTC).replace(tzinfo=None), timedelta(hours=1)
    accepting, others = Compute(placement), [Compute(placement) for _ in range(5)]
    for one, change in zip(others, (
        {"disabled": True}, {"forced_down": True}, {"deleted": 1}, {"last_seen_up": now - grace},
        {"last_seen_up": None, "created_at": now - grace},
    ), strict=True):  # fmt: skip
        one.change(main_models.Service, **change)
    hosts = {one.host for one in (accepting, *others)} | {"unknown"}
    assert cell.accepting(hosts) == {accepting.host}
    # each read sees what was committed before it, on the same connection
    accepting.change(main_models.Service, disabled=True)
    assert cell.accepting(hosts) == frozenset()
    for one in others:
        one.change(main_models.Service, deleted=1)


def test_services_are_read_when_the_server_has_closed_the_connection(
    placement: PrivatePlacement, cell: CellDatabase
) -> None:
    one = Compute(placement)
    assert cell.accepting({one.host}) == {one.host}
    with sa.create_engine(placement.layout.database_url(cell_database(1))).connect() as admin:
        open_now = "SELECT id FROM information_schema.processlist WHERE db = :name AND id <> CONNECTION_ID()"
        for number in admin.execute(sa.text(open_now), {"name": cell_database(1)}).scalars().all():
            with suppress(OperationalError):  # it has ended by itself
                admin.execute(sa.text(f"KILL {number}"))
    assert cell.accepting({one.host}) == {one.host}
    cell.close()
    with pytest.raises(DatabaseError):
        cell.accepting({one.host})


def test_a_reporting_node_is_seen(placement: PrivatePlacement, cell: CellDatabase) -> None:
    one = Compute(placement)
    since = cell.last_change()
    assert since is not None
    later = since + timedelta(seconds=5)
    one.change(main_models.ComputeNode, updated_at=later)
    assert cell.nodes_changed_since(later) == [(one.node, later)]
    one.change(main_models.ComputeNode, updated_at=since)


def test_a_server_is_found_on_its_host(placement: PrivatePlacement, api: ApiDatabase) -> None:
    one, server = Compute(placement), str(uuid.uuid4())
    locate = Locator(api, plain_databases.cell_database).locate
    assert locate(server) == ServerLocation(ServerActivity.NO_OWNER, deleted=True)
    engine = sa.create_engine(placement.layout.database_url("nova_api"))
    cells = api_models.CellMapping
    with engine.begin() as connection:
        number = connection.execute(sa.select(cells.id).where(cells.name == "cell1")).scalar_one()
        connection.execute(sa.insert(api_models.InstanceMapping).values(
            instance_uuid=server, cell_id=number, project_id="p"))  # fmt: skip
    one.write(main_models.Instance, uuid=server, host=one.host, node=one.host, vm_state="active", deleted=0)
    assert locate(server) == ServerLocation(ServerActivity.AT_REST, one.node)
    migration = str(uuid.uuid4())
    one.write(main_models.Migration, uuid=migration, instance_uuid=server, deleted=0,
              migration_type="evacuation", status="accepted")  # fmt: skip
    assert locate(server) == ServerLocation(ServerActivity.UNDER_WAY, move="evacuation", migration=migration)


def test_a_start_on_the_real_thing(placement: PrivatePlacement, api: ApiDatabase) -> None:
    one = Compute(placement)
    placement.take(str(uuid.uuid4()), {one.node: {"VCPU": 1, "MEMORY_MB": 512}})
    said: list[Any] = []
    mirror = PlacementMirror(placement.client)
    loaded = Bootstrap(api, plain_databases.cell_database, mirror, said.append, lambda: 0.0).load()
    assert one.node in loaded.nodes
    (event,) = [event for event in said if isinstance(event, NodeRead) and event.node == one.node]
    assert list(event.consumers.values()) == [{one.node: {"VCPU": 1, "MEMORY_MB": 512}}]
    assert any(isinstance(event, ServicesRead) and event.complete for event in said)
    exact = read_node(loaded.databases[event.cell], mirror, one.node, lambda: 0.0)
    assert exact is not None
    inventories = exact.leaves[f"rp.{one.node}"]["inventories"]  # type: ignore[index,call-overload]
    assert inventories["VCPU"][0] == 8


def test_a_cell_that_is_disabled_is_not_opened(placement: PrivatePlacement, api: ApiDatabase) -> None:
    engine = sa.create_engine(placement.layout.database_url("nova_api"))
    name = f"off-{uuid.uuid4().hex[:6]}"
    with engine.begin() as connection:
        connection.execute(sa.insert(api_models.CellMapping).values(
            uuid=str(uuid.uuid4()), name=name, disabled=True, transport_url="rabbit://",
            database_connection="mysql+pymysql://nobody@127.0.0.1:9/none"))  # fmt: skip
    mirror = PlacementMirror(placement.client)
    loaded = Bootstrap(api, plain_databases.cell_database, mirror, lambda _: None, lambda: 0.0).load()
    assert name in {one.name for one in loaded.cells}
    assert len(loaded.databases) == 1 and not loaded.unread


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("lab-only", "wrong"), "user or password are wrong"),
        (("nova_api", "no_such"), "no such database|may not read"),
        (("nova_api", "keystone"), "a table is missing"),
    ],
)
def test_errors_are_one_line_with_a_remedy(placement: PrivatePlacement, change: tuple[str, str], words: str) -> None:
    url = placement.layout.database_url("nova_api").replace(*change)
    with pytest.raises(DatabaseError, match=words) as caught:
        api_database(url).cells()
    assert "lab-only" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_database_that_is_restarted_is_read_again(placement: PrivatePlacement, cell: CellDatabase) -> None:
    cell.node_hosts()
    placement.kill("mariadb")
    try:
        with pytest.raises(DatabaseError, match=r"lost|no server answers|gone away"):
            cell.services()
    finally:
        placement.start_one("mariadb")
    assert isinstance(cell.services(), tuple)


def test_an_open_cell_is_named_in_its_errors() -> None:
    cell = Cell("uuid", "cell9", "mysql+pymysql://cloud:lab-only@127.0.0.1:9/nova", "")
    with pytest.raises(DatabaseError, match="cell9"):
        plain_databases.cell_database(cell).services()
