# SPDX-License-Identifier: Apache-2.0
"""Where a server lives, and whether anything is under way for it, from Nova's own tables."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from nova.db.api import models as api_models
from nova.db.main import models as main_models

from shared_scheduler.placement.second_look import Doing, Whereabouts
from shared_scheduler.service.databases import ApiDatabase
from shared_scheduler.service.whereabouts import Locator
from tests.unit.service.nova_databases import NovaDatabases

UNDER_WAY, NOBODYS = Whereabouts(Doing.UNDER_WAY), Whereabouts(Doing.NOBODYS)


class Site:
    """A server on a host, and who tells of it."""

    def __init__(self, nova: NovaDatabases) -> None:
        self.nova = nova
        self.sut = Locator(nova.api(), nova.open_cell)
        self.node = nova.node("cmp1")
        self.server = nova.map_server("cell1")
        nova.instance("cmp1", own=self.server, node="cmp1.example.org", vm_state="active")

    def migration(self, **values: Any) -> None:
        given = {"instance_uuid": self.server, "uuid": str(uuid.uuid4()), "deleted": 0}
        self.nova.cell_row(main_models.Migration, **(given | values))

    def found(self) -> Whereabouts:
        return self.sut.locate(self.server)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(NovaDatabases(tmp_path))


def test_a_server_at_rest_lives_on_its_compute_node(site: Site) -> None:
    assert site.found() == Whereabouts(Doing.AT_REST, site.node)


def test_of_a_host_with_several_nodes_it_lives_on_its_own(site: Site) -> None:
    own = site.nova.node("cmp1", hypervisor_hostname="bare-metal-2")
    site.nova.change_instance(site.server, node="bare-metal-2")
    assert site.found() == Whereabouts(Doing.AT_REST, own)


def test_a_shelved_server_lives_nowhere(site: Site) -> None:
    site.nova.change_instance(site.server, vm_state="shelved_offloaded", host=None, node=None)
    assert site.found() == Whereabouts(Doing.AT_REST)


@pytest.mark.parametrize("task", ["resize_prep", "migrating", "unshelving", "rebuilding"])
def test_a_task_is_under_way(site: Site, task: str) -> None:
    site.nova.change_instance(site.server, task_state=task)
    assert site.found() == UNDER_WAY


def test_a_build_has_no_task_for_a_moment(site: Site) -> None:
    site.nova.change_instance(site.server, vm_state="building", host=None, node=None)
    assert site.found() == UNDER_WAY


@pytest.mark.parametrize("status", ["accepted", "pre-migrating"])
def test_an_evacuation_clears_its_task_before_it_says_where_the_server_lives(
    site: Site, status: str
) -> None:
    site.migration(migration_type="evacuation", status=status)
    assert site.found() == UNDER_WAY


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
    assert site.found() == Whereabouts(Doing.AT_REST, site.node)


def test_one_of_two_records_in_two_cells_is_hidden(site: Site) -> None:
    site.nova.change_instance(site.server, hidden=True)
    assert site.found() == UNDER_WAY


@pytest.mark.parametrize("change", [{"node": "renamed"}, {"host": "cmp9"}])
def test_of_a_host_that_nobody_knows_nothing_is_sure(site: Site, change: dict[str, str]) -> None:
    site.nova.change_instance(site.server, **change)
    assert site.found() == UNDER_WAY


def test_a_compute_node_that_is_deleted_is_no_home(site: Site) -> None:
    site.nova.change(main_models.ComputeNode, "cmp1", deleted=1)
    assert site.found() == UNDER_WAY


@pytest.mark.parametrize("cell", [None, "cell0"])
def test_a_server_in_no_cell_is_nobodys(site: Site, cell: str | None) -> None:
    assert site.sut.locate(site.nova.map_server(cell)) == NOBODYS


def test_a_server_that_nobody_knows_is_nobodys(site: Site) -> None:
    assert site.sut.locate(str(uuid.uuid4())) == NOBODYS


def test_a_deleted_server_is_nobodys(site: Site) -> None:
    site.nova.change_instance(site.server, deleted=1)
    assert site.found() == NOBODYS


def test_servers_of_a_disabled_cell_live_on(site: Site) -> None:
    with site.nova.api_engine.begin() as connection:
        connection.execute(sa.update(api_models.CellMapping).values(disabled=True))
    assert site.found() == Whereabouts(Doing.AT_REST, site.node)


def test_a_database_that_cannot_be_read_tells_nothing(site: Site, tmp_path: Path) -> None:
    nobody = ApiDatabase(f"sqlite:///{tmp_path / 'no' / 'such.db'}")
    assert Locator(nobody, site.nova.open_cell).locate(site.server) == Whereabouts(Doing.UNREAD)
    with site.nova.cell_engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE instances"))
    assert site.found() == Whereabouts(Doing.UNREAD)
