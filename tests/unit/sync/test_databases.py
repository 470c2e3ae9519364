# SPDX-License-Identifier: Apache-2.0
"""Bulk reads of Nova's own schema."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from nova.db.main import models as main_models

from shared_scheduler.core.effects import AskGroup
from shared_scheduler.model.compute_node import leaves_from_compute_node
from shared_scheduler.sync.databases import CELL0, Cell, DatabaseError
from tests.support.plain_databases import api_database, cell_database
from tests.unit.sync.nova_databases import NovaDatabases, naive


@pytest.fixture
def nova(tmp_path: Path) -> NovaDatabases:
    return NovaDatabases(tmp_path)


# -- cells ---------------------------------------------------------------------------------------


def test_cells_with_cell_zero_and_disabled_ones_marked(nova: NovaDatabases) -> None:
    nova.map_cell("7d2d8a1c-0000-4000-8000-000000000003", "off", "sqlite://", "rabbit://x/", disabled=True)
    cells = {cell.name: cell for cell in nova.api().cells()}
    assert [name for name, cell in cells.items() if cell.schedulable] == ["cell1"]
    assert cells["cell0"].uuid == CELL0
    assert cells["cell1"].transport_url == "rabbit://mq/cell1"


def test_aggregates_with_hosts_and_metadata(nova: NovaDatabases) -> None:
    own = nova.aggregate("az1", ("cmp-1", "cmp-2"), availability_zone="az1", ssd="true")
    nova.aggregate("empty", ())
    first, second = nova.api().aggregates()
    assert (first.uuid, first.hosts) == (own, {"cmp-1", "cmp-2"})
    assert first.metadata == {"availability_zone": "az1", "ssd": "true"}
    assert (second.name, second.hosts, second.metadata) == ("empty", frozenset(), {})


# -- services ------------------------------------------------------------------------------------


def test_the_members_of_a_group_without_those_that_are_deleted(nova: NovaDatabases) -> None:
    # given a group with a server in a cell, one that is not mapped yet, and one that was deleted
    built, new, deleted = nova.map_server("cell1"), nova.map_server(None), nova.map_server("cell1")
    group = nova.group(built, new, deleted)
    nova.group(nova.map_server("cell1"))
    nova.delete_server(deleted)

    assert nova.api().members_of(of_group(group)) == {built: nova.cell_uuid, new: None}
    assert nova.api().members_of(of_group("no such group")) == {}


def test_the_hosts_of_servers_that_have_one(nova: NovaDatabases) -> None:
    # given a server on a host, one that is moved from it, one that is not built yet, and one that was deleted
    built, moves = nova.instance("cmp-1"), nova.instance("cmp-1", task_state="migrating")
    new, deleted = nova.instance(None), nova.instance("cmp-1", deleted=1)
    asked = [built, moves, new, deleted, "unknown"]
    assert nova.cell().hosts_of(asked) == {built: "cmp-1", moves: "cmp-1"}
    assert nova.cell().hosts_of([]) == {}


def test_the_hosts_of_servers_whose_moves_have_no_target_yet(nova: NovaDatabases) -> None:
    # given a server that does not move, and others with records of a move
    stays, new, named, failed = (nova.instance("cmp-1") for _ in range(4))
    moves = ((new, "pre-migrating", None), (named, "pre-migrating", "cmp-2"), (failed, "error", "cmp-2"))
    for server, status, target in moves:
        nova.cell_row(main_models.Migration, instance_uuid=server, status=status, dest_compute=target, deleted=0)
    # then only the one is left out that moves to a host that Nova has named
    found = nova.cell().hosts_of([stays, new, named, failed], undecided=True)
    assert found.keys() == {stays, new, failed}


def test_a_server_in_cell_0_is_no_member_any_more(nova: NovaDatabases) -> None:
    # given a server whose request failed: the conductor has mapped it to cell 0, so it never gets a host
    built, failed = nova.map_server("cell1"), nova.map_server("cell0")
    nova.request_spec(built, hints={"shared_scheduler:label": ["web"]})
    nova.request_spec(failed, hints={"shared_scheduler:label": ["web"]})
    # then allocations that it still holds say nothing about its group or label
    assert nova.api().members_of(of_group(nova.group(built, failed))) == {built: nova.cell_uuid}
    assert nova.api().members_of(of_label("p", "web")) == {built: nova.cell_uuid}


def test_the_servers_of_a_project_with_a_label(nova: NovaDatabases) -> None:
    # given servers with the label in a hint and in a flavor, and others that look similar
    hint, flavor, new = nova.map_server("cell1"), nova.map_server("cell1"), nova.map_server(None)
    nova.request_spec(hint, hints={"shared_scheduler:label": ["web"]})
    nova.request_spec(flavor, extra_specs={"shared_scheduler:label": "web"})
    nova.request_spec(new, hints={"shared_scheduler:label": ["web"], "other": ["x"]})
    longer, in_group, deleted = (nova.map_server("cell1") for _ in range(3))
    nova.request_spec(longer, hints={"shared_scheduler:label": ["web2"]})
    nova.request_spec(in_group, hints={"shared_scheduler:label": ["web"]}, group="g")
    nova.request_spec(deleted, hints={"shared_scheduler:label": ["web"]})
    nova.delete_server(deleted)

    cell = nova.cell_uuid
    assert nova.api().members_of(of_label("p", "web")) == {hint: cell, flavor: cell, new: None}
    assert nova.api().members_of(of_label("p", "w%")) == {}
    assert nova.api().members_of(of_label("another project", "web")) == {}


def test_labels_that_differ_in_their_case_are_different(nova: NovaDatabases) -> None:
    web, other, flavor = (nova.map_server("cell1") for _ in range(3))
    nova.request_spec(web, hints={"shared_scheduler:label": ["web"]})
    nova.request_spec(other, hints={"shared_scheduler:label": ["Web"]})
    nova.request_spec(flavor, extra_specs={"shared_scheduler:label": "WEB"})
    found = [nova.api().members_of(of_label("p", label)).keys() for label in ("web", "Web", "WEB", "weB")]
    assert found == [{web}, {other}, {flavor}, set()]


def of_group(group: str) -> AskGroup:
    return AskGroup("ask", group, frozenset(), "req-1")


def of_label(project: str, label: str) -> AskGroup:
    return AskGroup("ask", "", frozenset(), "req-1", project, label)


def test_services_as_novas_filters_see_them(nova: NovaDatabases) -> None:
    nova.service("cmp-1", version=73)
    nova.service("cmp-2", disabled=True, disabled_reason="maintenance")
    nova.service("cmp-3", last_seen_up=naive(nova.now - timedelta(seconds=61)))
    nova.service("cmp-4", last_seen_up=None)
    nova.service("cmp-5", forced_down=True)
    nova.service("cmp-6", deleted=6)
    nova.service("api", binary="nova-osapi_compute")
    found = {one.host: one for one in nova.cell().services()}
    assert list(found) == ["cmp-1", "cmp-2", "cmp-3", "cmp-4", "cmp-5"]
    assert (found["cmp-1"].version, found["cmp-1"].up) == (73, True)
    assert found["cmp-2"].disabled and found["cmp-2"].record["disabled_reason"] == "maintenance"
    assert [host for host, one in found.items() if not one.up] == ["cmp-3"]
    assert found["cmp-5"].forced_down
    assert found["cmp-1"].record["last_seen_up"] == nova.now  # with a time zone, as Nova's object


def test_up_and_down_are_novas_own_verdict(nova: NovaDatabases) -> None:
    from types import SimpleNamespace

    from nova.servicegroup.drivers.db import DbDriver
    from oslo_utils import fixture

    for age_s in (0, 59, 60, 61, -61):
        nova.service(f"cmp{age_s}", last_seen_up=naive(nova.now - timedelta(seconds=age_s)))
    driver = SimpleNamespace(service_down_time=60)
    with fixture.TimeFixture(naive(nova.now)):
        for one in nova.cell().services():
            assert one.up is DbDriver.is_up(driver, one.record)


def test_exceptions_are_few_and_ask_after_the_earlier_ones(nova: NovaDatabases) -> None:
    for number in range(5):
        nova.service(f"cmp-{number}")
    cell = nova.cell()
    assert cell.service_exceptions() == ()
    nova.change(main_models.Service, "cmp-1", disabled=True)
    nova.change(main_models.Service, "cmp-2", forced_down=True)
    nova.change(main_models.Service, "cmp-3", last_seen_up=naive(nova.now - timedelta(hours=1)))
    assert {one.host for one in cell.service_exceptions()} == {"cmp-1", "cmp-2", "cmp-3"}
    nova.change(main_models.Service, "cmp-1", disabled=False)
    again = {one.host: one for one in cell.service_exceptions(also=["cmp-1", "cmp-2"])}
    assert set(again) == {"cmp-1", "cmp-2", "cmp-3"} and not again["cmp-1"].disabled


def test_a_new_service_is_an_exception_too(nova: NovaDatabases) -> None:
    nova.service("cmp-1")
    nova.service("cmp-2")
    assert [one.host for one in nova.cell().service_exceptions(after_id=1)] == ["cmp-2"]


@pytest.mark.parametrize("others", range(5))
def test_of_any_number_of_selected_hosts_those_that_accept_servers_are_found(nova: NovaDatabases, others: int) -> None:
    names = [f"other-{number}" for number in range(others)]
    for name in ("cmp-1", "not-selected", *names):
        nova.service(name)
    nova.service("cmp-2", disabled=True)
    assert nova.cell().accepting(["cmp-1", "cmp-2", "unknown", *names]) == {"cmp-1", *names}
    assert nova.cell().accepting([]) == frozenset()


# -- nodes and instances -------------------------------------------------------------------------


def test_nodes_become_leaves(nova: NovaDatabases) -> None:
    own = nova.node("cmp-1")
    nova.node("cmp-2", deleted=2)
    (row,) = nova.cell().nodes()
    leaves = leaves_from_compute_node(row)
    assert (leaves["cn.uuid"], leaves["cn.vcpus"], leaves["stats.num_instances"]) == (own, 8, "1")
    assert leaves["cn.cpu_allocation_ratio"] is None


def test_some_nodes_in_any_number(nova: NovaDatabases) -> None:
    names = [nova.node(f"cmp-{number}") for number in range(3)]
    assert {row["uuid"] for row in nova.cell().nodes(names[:2])} == set(names[:2])
    assert nova.cell().nodes([]) == []
    assert len(nova.cell().nodes([*names, *(f"no-{number}" for number in range(2000))])) == 3
    assert nova.cell().node_hosts().keys() == set(names)


def test_which_nodes_have_reported(nova: NovaDatabases) -> None:
    assert nova.cell().last_change() is None
    nova.node("cmp-1", updated_at=naive(nova.now - timedelta(minutes=1)))
    fresh = nova.node("cmp-2")
    assert nova.cell().last_change() == naive(nova.now)
    changed = nova.cell().nodes_changed_since(nova.now - timedelta(seconds=5))
    assert changed == [(fresh, naive(nova.now))]


def test_instances_by_host(nova: NovaDatabases) -> None:
    one, two = nova.instance("cmp-1"), nova.instance("cmp-1")
    nova.instance("cmp-1", deleted=9)
    nova.instance(None)
    three = nova.instance("cmp-2")
    assert nova.cell().instances() == {"cmp-1": {one, two}, "cmp-2": {three}}
    assert nova.cell().instances(["cmp-2"]) == {"cmp-2": {three}}


# -- what can be wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql+pymysql://nova:secret@127.0.0.1:9/nova_api", "no server answers"),
        ("mysql+pymysql://nova:secret@no.such.host.invalid/nova_api", "no server answers|unknown"),
        ("mysql+nodriver://nova:secret@127.0.0.1/nova_api", "its driver is not installed"),
        ("nova_api", "not a valid database URL"),
        ("", "not a valid database URL"),
        ("sqlite:////no/such/directory/api.db", "unable to open database file"),
        ("sqlite://", "no such table"),
    ],
)
def test_errors_are_one_line_with_a_remedy(url: str, words: str) -> None:
    with pytest.raises(DatabaseError, match=words) as caught:
        api_database(url).cells()
    text = str(caught.value)
    assert "[api_database] connection" in text
    assert "secret" not in text and "\n" not in text


def test_a_cells_database_is_named(tmp_path: Path) -> None:
    cell = Cell("uuid", "cell7", "mysql+pymysql://nova:secret@127.0.0.1:9/nova", "")
    with pytest.raises(DatabaseError, match="database_connection of cell cell7"):
        cell_database(cell).node_hosts()
