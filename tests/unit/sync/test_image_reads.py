# SPDX-License-Identifier: Apache-2.0
"""What images ask of spreading, as Nova's own objects store it."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from nova.db.api import models as api_models

from shared_scheduler.core.effects import AskGroup
from shared_scheduler.sync import state_sync
from shared_scheduler.sync.bounded_reads import HANGING_MAX, BoundedReads
from shared_scheduler.sync.databases import ApiDatabase, Cell, CellDatabase, DatabaseError
from shared_scheduler.sync.image_reads import ImageReads
from tests.unit.placement.conftest import placement_app, world
from tests.unit.placement.real_placement import World
from tests.unit.sync.nova_databases import NovaDatabases
from tests.unit.sync.one_cell import Site as OneCell

__all__ = ["placement_app", "world"]  # fixtures

SPREAD, LABEL = "shared_scheduler:spread", "shared_scheduler:label"
WAIT_S = 60.0
LARGEST_REQUEST = 1404


class Site:
    """A cloud of one cell, and what is read of it; ``queries`` has each query, ``opened`` each cell that is not
    polled."""

    def __init__(self, nova: NovaDatabases) -> None:
        self.nova = nova
        self.queries: list[str] = []
        self.opened: list[str] = []
        self.api, cell = nova.api(), nova.cell()
        self.polled: dict[str, CellDatabase] = {nova.cell_uuid: cell}
        for database in (self.api, cell):
            self._count(database)
        self.reads = ImageReads(self.api, self.polled.get, self._open, BoundedReads(WAIT_S), time.monotonic)

    def _count(self, database: ApiDatabase | CellDatabase) -> None:
        rows = database.rows

        def counting(query: sa.Select[tuple[object, ...]]) -> object:
            self.queries.append(str(query))
            return rows(query)

        database.rows = counting  # type: ignore[method-assign, assignment]

    def _open(self, cell: Cell) -> CellDatabase:
        self.opened.append(cell.name)
        return self.nova.open_cell(cell)

    def asked(self, *servers: str) -> dict[str, str]:
        """What their image asks; ``queries`` has those of this read."""
        self.queries.clear()
        return dict(self.reads.properties(servers, WAIT_S))

    def labelled(self, label: str = "web", project: str = "p") -> dict[str, str | None]:
        return self.reads.labelled(AskGroup("ask", "", frozenset(), "req-1", project, label, images=True))

    def new(self, **image: str) -> str:
        """A server that nova-api has stored and nobody has placed."""
        server = self.nova.map_server(None)
        self.nova.request_spec(server)
        self.nova.build_request(server, **image)
        return server

    def in_cell(self, **image: str) -> str:
        """A server in the cell."""
        server = self.nova.map_server("cell1")
        self.nova.request_spec(server)
        return self.nova.built(server, **image)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    yield Site(NovaDatabases(tmp_path))


# -- one request


@pytest.mark.parametrize("name", ["shared_scheduler__spread", "shared_scheduler_spread"])
def test_a_new_server_has_the_properties_of_its_image_in_the_api_database(site: Site, name: str) -> None:
    server = site.new(**{name: "key=rack,max_skew=2", "shared_scheduler_label": "web", "hw_disk_bus": "scsi"})
    assert site.asked(server) == {name.replace("__", ":"): "key=rack,max_skew=2", "shared_scheduler_label": "web"}
    assert len(site.queries) == 1


def test_a_server_that_moves_has_them_in_the_database_of_its_cell(site: Site) -> None:
    # given a server that was built, by a conductor that has deleted what nova-api stored
    server = site.new(shared_scheduler__spread="key=rack")
    site.nova.conductor_has_built(server)
    site.nova.built(server, shared_scheduler__spread="key=rack")
    # then a move, an evacuation or unshelving finds them with two queries
    assert site.asked(server) == {SPREAD: "key=rack"}
    assert len(site.queries) == 2


def test_the_image_of_a_rebuild_is_the_one_that_counts_from_then_on(site: Site) -> None:
    # given a build request that the conductor could not delete, and a server that has another image by now
    server = site.in_cell(shared_scheduler__spread="key=room")
    site.nova.build_request(server, shared_scheduler__spread="key=rack")
    assert site.asked(server) == {SPREAD: "key=room"}


def test_an_image_that_asks_nothing_costs_no_text(site: Site) -> None:
    server = site.new(hw_disk_bus="scsi")
    assert site.asked(server) == {}
    assert len(site.queries) == 1 and "CASE WHEN" in site.queries[0]


def test_all_servers_of_a_request_have_one_image_which_is_read_once(site: Site) -> None:
    servers = [site.new(shared_scheduler__spread="key=rack") for _ in range(3)]
    unmapped = [str(uuid.uuid4()) for _ in range(LARGEST_REQUEST)]
    assert site.asked(*servers, *unmapped) == {SPREAD: "key=rack"}
    assert len(site.queries) == 1


def test_the_image_is_read_although_a_user_has_deleted_the_first_server_meanwhile(site: Site) -> None:
    # given a request for two servers, of which nova-api has deleted one before it was placed
    gone, stays = site.nova.map_server(None), site.new(shared_scheduler__spread="key=rack")
    site.nova.delete_server(gone)
    assert site.asked(gone, stays) == {SPREAD: "key=rack"}
    # then only if nobody is left, there is nothing to read, and that is told
    with pytest.raises(DatabaseError, match="no server of the request any more"):
        site.asked(gone)


def test_a_server_that_its_cell_does_not_have_is_not_one_without_properties(site: Site) -> None:
    with pytest.raises(DatabaseError, match=r"cell1 does not have server .* it may be deleted"):
        site.asked(site.nova.map_server("cell1"))
    deleted = site.nova.map_server("cell1")
    site.nova.built(deleted, deleted=1, shared_scheduler__spread="key=rack")
    with pytest.raises(DatabaseError, match="does not have server"):
        site.asked(deleted)


def test_a_request_without_a_server_says_so(site: Site) -> None:
    with pytest.raises(DatabaseError, match="names no server"):
        site.asked("", "")


def test_a_server_may_leave_a_cell_that_is_disabled(site: Site) -> None:
    server = site.in_cell(shared_scheduler__spread="key=rack")
    site.polled.clear()
    assert site.asked(server) == {SPREAD: "key=rack"}
    assert site.opened == ["cell1"]


def test_a_record_that_cannot_be_read_is_an_error_and_not_an_image_without_properties(site: Site) -> None:
    server = site.nova.map_server(None)
    site.nova.api_row(api_models.BuildRequest, instance_uuid=server, project_id="p",
                      instance='{"image_shared_scheduler')  # fmt: skip
    with pytest.raises(DatabaseError, match="the record of a new server cannot be read"):
        site.asked(server)


def test_a_database_that_hangs_or_fails_is_an_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    server = site.new(shared_scheduler__spread="key=rack")
    monkeypatch.setattr(site.api, "image_of", lambda _: site.api.close() or site.api.rows(sa.select(1)))
    with pytest.raises(DatabaseError, match="was closed"):
        site.asked(server)


def test_images_that_cannot_be_read_keep_nobody_from_reading_server_groups(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a locked table of new servers: as many reads hang as may
    monkeypatch.setattr(state_sync, "QUESTION_READ_WITHIN_S", 0.1)
    nova, answered = NovaDatabases(tmp_path), threading.Event()
    site = OneCell(nova, world, nodes_max=2)
    monkeypatch.setattr(site.sync._api, "image_of", lambda _: answered.wait(WAIT_S))
    for _ in range(HANGING_MAX):
        with pytest.raises(DatabaseError, match="has not answered"):
            site.sync.image_reads.properties(["server"], WAIT_S)
    # then the next one does not wait, and a server group is read
    with pytest.raises(DatabaseError, match="does not answer"):
        site.sync.image_reads.properties(["server"], WAIT_S)
    member = nova.map_server("cell1")
    site.sync._bounded_reads._within_s = WAIT_S
    assert site.sync._members_of(AskGroup("ask", nova.group(member), frozenset(), "req-1")).keys() == {member}
    answered.set()


# -- the servers with a label


def test_servers_count_by_the_label_of_their_image_wherever_nova_has_them(site: Site) -> None:
    # given a new server and one in the cell, with the label under either name
    new, built = site.new(shared_scheduler__label="web"), site.in_cell(shared_scheduler_label="web")
    # and servers that look similar, one that is deleted, and one whose request has failed
    site.new(shared_scheduler__label="web2"), site.new(other="web"), site.in_cell(shared_scheduler__label="Web")
    deleted = site.in_cell(shared_scheduler__label="web")
    site.nova.delete_server(deleted)
    failed = site.new(shared_scheduler__label="web")
    site.nova.conductor_has_built(failed, "cell0")

    assert site.labelled() == {new: None, built: site.nova.cell_uuid}
    assert site.labelled(project="another") == {}
    assert site.labelled("we_") == site.labelled("w%") == {}


def test_a_server_in_a_server_group_does_not_count_by_the_label_of_its_image(site: Site) -> None:
    server = site.nova.map_server("cell1")
    site.nova.request_spec(server, group="g")
    site.nova.built(server, shared_scheduler__label="web")
    assert site.labelled() == {}


def test_no_server_is_missed_while_the_conductor_moves_its_record(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a new server that the conductor stores in its cell after the new ones were read, or before
    server = site.new(shared_scheduler__label="web")
    read = site.api.new_with_image_label

    def moving(project: str, label: str) -> frozenset[str]:
        found = read(project, label) if reads_first else frozenset[str]()
        site.nova.built(server, shared_scheduler__label="web")
        site.nova.conductor_has_built(server)
        return found or read(project, label)

    monkeypatch.setattr(site.api, "new_with_image_label", moving)
    reads_first = True
    assert site.labelled() == {server: site.nova.cell_uuid}
    server, reads_first = site.new(shared_scheduler__label="web"), False
    assert server in site.labelled()


def test_servers_of_a_cell_that_cannot_be_read_are_not_taken_for_none(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.in_cell(shared_scheduler__label="web")
    site.polled[site.nova.cell_uuid].close()
    with pytest.raises(DatabaseError, match="was closed"):
        site.labelled()


def test_only_cells_with_servers_of_the_project_are_read(site: Site) -> None:
    site.new(shared_scheduler__label="web")
    site.polled[site.nova.cell_uuid].close()
    assert len(site.labelled()) == 1
