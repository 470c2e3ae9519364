# SPDX-License-Identifier: Apache-2.0
"""Where a server lives, and whether anything is under way for it, from Nova's own tables."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from nova.db.api import models as api_models
from nova.db.main import models as main_models

from shared_scheduler.core.events import WriteCode
from shared_scheduler.placement.batch_writer import BatchWriter
from shared_scheduler.placement.reconciler import ServerActivity, ServerLocation
from shared_scheduler.sync.databases import Cell, CellDatabase
from shared_scheduler.sync.server_location import Locator
from tests.support.plain_databases import api_database
from tests.unit.placement.conftest import placement_app, world
from tests.unit.placement.real_placement import World
from tests.unit.placement.test_batch_writer import intent, undo
from tests.unit.sync.nova_databases import NovaDatabases

WAIT_S = 30.0

UNDER_WAY, NO_OWNER = ServerLocation(ServerActivity.UNDER_WAY), ServerLocation(ServerActivity.NO_OWNER)
DELETED = ServerLocation(ServerActivity.NO_OWNER, deleted=True)


class Site:
    """A server on a host, and its records."""

    def __init__(self, nova: NovaDatabases) -> None:
        self.nova = nova
        self.sut = Locator(nova.api(), nova.open_cell)
        self.host = f"cmp-{uuid.uuid4().hex[:8]}"
        self.node = nova.node(self.host)
        self.server = self.boot("cell1")

    def boot(self, cell: str) -> str:
        server = self.nova.map_server(cell)
        home = {"host": self.host, "node": f"{self.host}.example.org"}
        return self.nova.instance(own=server, vm_state="active", **home)

    def migration(self, **values: Any) -> None:
        self.newest_migration = str(uuid.uuid4())
        given = {"instance_uuid": self.server, "uuid": self.newest_migration, "deleted": 0}
        self.nova.cell_row(main_models.Migration, **(given | values))

    def found(self) -> ServerLocation:
        return self.sut.locate(self.server)


@pytest.fixture(scope="module")
def nova(tmp_path_factory: pytest.TempPathFactory) -> NovaDatabases:
    return NovaDatabases(tmp_path_factory.mktemp("nova"))


@pytest.fixture
def site(nova: NovaDatabases) -> Site:
    return Site(nova)


def test_an_idle_server_is_located_on_its_compute_node(site: Site) -> None:
    assert site.found() == ServerLocation(ServerActivity.AT_REST, site.node)


def test_on_a_host_with_several_nodes_a_server_is_located_on_its_own(site: Site) -> None:
    own = site.nova.node(site.host, hypervisor_hostname="bare-metal-2")
    site.nova.change_instance(site.server, node="bare-metal-2")
    assert site.found() == ServerLocation(ServerActivity.AT_REST, own)


def test_a_shelved_server_has_no_location(site: Site) -> None:
    site.nova.change_instance(site.server, vm_state="shelved_offloaded", host=None, node=None)
    assert site.found() == ServerLocation(ServerActivity.AT_REST)


@pytest.mark.parametrize("task", ["resize_prep", "migrating", "unshelving", "rebuilding"])
def test_a_task_is_under_way(site: Site, task: str) -> None:
    site.nova.change_instance(site.server, task_state=task)
    assert site.found() == UNDER_WAY


def test_a_build_has_no_task_for_a_moment(site: Site) -> None:
    site.nova.change_instance(site.server, vm_state="building", host=None, node=None)
    assert site.found() == UNDER_WAY


@pytest.mark.parametrize("status", ["accepted", "pre-migrating"])
def test_an_evacuation_clears_its_task_before_it_sets_the_host(site: Site, status: str) -> None:
    site.migration(migration_type="evacuation", status=status)
    assert site.found() == ServerLocation(ServerActivity.UNDER_WAY, move="evacuation", migration=site.newest_migration)


@pytest.mark.parametrize("move", ["migration", "resize", "live-migration"])
def test_the_move_is_that_of_the_newest_record_that_is_being_scheduled(site: Site, move: str) -> None:
    site.nova.change_instance(site.server, task_state="migrating")
    site.migration(migration_type="evacuation", status="done")
    site.migration(migration_type="evacuation", status="accepted", deleted=1)
    site.migration(migration_type="other", status="accepted")
    site.migration(migration_type=move, status="accepted")
    migration = site.newest_migration
    site.migration(migration_type="other", status="error")
    assert site.found() == ServerLocation(ServerActivity.UNDER_WAY, move=move, migration=migration)


@pytest.mark.parametrize(
    "record",
    [
        {"migration_type": "evacuation", "status": "done"},
        {"migration_type": "evacuation", "status": "error"},
        {"migration_type": "evacuation", "status": "accepted", "deleted": 1},
        {"migration_type": "resize", "status": "finished"},  # it waits for its user's yes
    ],
)
def test_a_move_that_is_over_is_not_under_way(site: Site, record: dict[str, Any]) -> None:
    site.migration(**record)
    assert site.found() == ServerLocation(ServerActivity.AT_REST, site.node)


def test_one_of_two_records_in_two_cells_is_hidden(site: Site) -> None:
    site.nova.change_instance(site.server, hidden=True)
    assert site.found() == UNDER_WAY


@pytest.mark.parametrize("change", [{"node": "renamed"}, {"host": "cmp9"}])
def test_on_an_unknown_host_a_server_counts_as_under_way(site: Site, change: dict[str, str]) -> None:
    site.nova.change_instance(site.server, **change)
    assert site.found() == UNDER_WAY


def test_a_deleted_compute_node_is_no_location(site: Site) -> None:
    site.nova.change(main_models.ComputeNode, site.host, deleted=1)
    assert site.found() == UNDER_WAY


def test_a_server_without_a_cell_has_no_owner(site: Site) -> None:
    assert site.sut.locate(site.nova.map_server(None)) == NO_OWNER


def test_a_server_in_cell_0_never_gets_a_host_and_counts_as_deleted(site: Site) -> None:
    # whoever deletes its allocations, as the schedulers do, removes nothing from a server that runs
    assert site.sut.locate(site.nova.map_server("cell0")) == DELETED


def test_an_unknown_server_has_no_owner(site: Site) -> None:
    assert site.sut.locate(str(uuid.uuid4())) == DELETED


def test_a_deleted_server_has_no_owner(site: Site) -> None:
    site.nova.change_instance(site.server, deleted=1)
    assert site.found() == DELETED


@pytest.mark.parametrize("cell", [None, "cell0"])
def test_nova_api_marks_a_server_that_was_deleted_before_it_was_built(site: Site, cell: str | None) -> None:
    server = site.nova.map_server(cell)
    with site.nova.api_engine.begin() as connection:
        mapping = api_models.InstanceMapping
        connection.execute(sa.update(mapping).where(mapping.instance_uuid == server).values(queued_for_delete=True))
    assert site.sut.locate(server) == DELETED


def test_servers_of_a_disabled_cell_are_located(site: Site) -> None:
    site.nova.map_cell(str(uuid.uuid4()), "cell2", site.nova.cell_url, "rabbit://", disabled=True)
    server = site.boot("cell2")
    assert site.sut.locate(server) == ServerLocation(ServerActivity.AT_REST, site.node)


def test_a_database_that_cannot_be_read_is_no_evidence(site: Site) -> None:
    nothing = "sqlite:////no/such/directory/nova.db"

    def away(cell: Cell) -> CellDatabase:
        return site.nova.open_cell(replace(cell, database_url=nothing))

    for sut in Locator(api_database(nothing), site.nova.open_cell), Locator(site.nova.api(), away):
        assert sut.locate(site.server) == ServerLocation(ServerActivity.UNREAD)


def test_servers_of_a_cell_that_hangs_keep_no_thread_from_writing_others(site: Site, world: World) -> None:
    # given allocations of servers whose cell accepts queries and does not answer them
    answer, heard = threading.Event(), queue.SimpleQueue[Any]()
    locator = Locator(site.nova.api(), lambda cell: hanging(site.nova.open_cell(cell), answer))
    writer = BatchWriter(world.client, heard.put, locator.locate, writers=1, deleters=1)
    writer.start()
    servers = [intent(world.provider(), consumer=site.boot("cell1")) for _ in range(2)]
    for server in servers:
        writer.submit(server)
        assert heard.get(timeout=WAIT_S).code is WriteCode.WRITTEN
    # when they are to be deleted after their requests, as many as there are threads, and another server is written
    for server in servers:
        writer.submit(replace(undo(server), sole_until_s=float("-inf")))
    other = intent(world.provider())
    while writer.waiting():
        time.sleep(0.01)
    writer.submit(other)
    # then none of them waits for the cell
    try:
        answers = {one.claim_id: one for one in (heard.get(timeout=WAIT_S) for _ in range(3))}
    finally:
        answer.set()
    writer.stop()
    assert answers[other.claim_id].code is WriteCode.WRITTEN
    assert not any(answers[server.claim_id].gone for server in servers)


def hanging(database: CellDatabase, answer: threading.Event) -> CellDatabase:
    read = database.rows

    def rows(query: Any) -> Any:
        answer.wait()
        return read(query)

    database.rows = rows  # type: ignore[method-assign]
    return database
