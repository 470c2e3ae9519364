# SPDX-License-Identifier: Apache-2.0
"""Single nodes, read from the databases and Placement."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from nova.db.main import models

from shared_scheduler.core.effects import RefreshNode
from shared_scheduler.core.events import AggregateFacts, NodeNotFound, NodeRead, NodesGone, ServicesRead
from shared_scheduler.placement.connection import PlacementError
from shared_scheduler.placement.mirror import PlacementMirror, Tree
from shared_scheduler.sync.cell_reads import CellReads
from shared_scheduler.sync.databases import Cell, DatabaseError
from shared_scheduler.sync.node_reads import NodeReads, node_read, read_node, with_host_aggregates
from tests.unit.placement.conftest import placement_app, world
from tests.unit.placement.real_placement import World
from tests.unit.sync.nova_databases import NovaDatabases
from tests.unit.sync.one_cell import Site


@pytest.fixture
def nova(tmp_path: Path) -> NovaDatabases:
    return NovaDatabases(tmp_path)


def test_a_node_is_read_with_the_leaves_of_an_agent(nova: NovaDatabases, world: World) -> None:
    own = nova.compute("cmp-1", world.provider(vcpus=8))
    instance = nova.instance("cmp-1")
    world.take(instance, {own: {"VCPU": 2}})
    event = read_node(nova.cell(), PlacementMirror(world.client), own, lambda: 7.0)
    assert event is not None
    assert (event.cell, event.node, event.host) == (nova.cell_uuid, own, "cmp-1")
    assert (event.nodename, event.read_at_s) == ("cmp-1.example.org", 7.0)
    assert event.members == {instance}
    assert event.consumers == {instance: {own: {"VCPU": 2}}}
    assert event.leaves["cn.memory_mb"] == 4096 and f"rp.{own}" in event.leaves


def test_an_overview_gets_the_aggregates_that_nova_mirrors() -> None:
    tree = Tree({"rp.node": {"inventories": {}, "aggregates": []}})
    row = {"uuid": "node", "host": "cmp-1", "hypervisor_hostname": "n", "stats": "{}"}
    event = node_read("cell", row, frozenset(), tree, 0.0)
    assert event is not None
    mine = AggregateFacts(1, "agg-1", "a", frozenset({"cmp-1"}), {})
    other = AggregateFacts(2, "agg-2", "b", frozenset({"cmp-2"}), {})
    leaf = with_host_aggregates(event, [mine, other]).leaves["rp.node"]
    assert leaf["aggregates"] == ["agg-1"]  # type: ignore[index,call-overload]


def test_a_record_that_cannot_be_parsed_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    row = {"uuid": "node", "host": "cmp-1", "hypervisor_hostname": "n", "stats": "{garbage"}
    assert node_read("cell", row, frozenset(), Tree(), 0.0) is None
    assert "cmp-1 is skipped" in caplog.text


def broken(_node: str) -> Tree:
    raise PlacementError("no answer")


class Reader:
    """Reads single nodes of one cell at 7 o'clock."""

    def __init__(self, nova: NovaDatabases, world: World) -> None:
        self.nova = nova
        self.spoken_for: set[str] = set()
        self.cell = CellReads(nova.cell(), self.spoken_for.__contains__)
        self.mirror = PlacementMirror(world.client)
        self.cells = {nova.cell_uuid: self.cell}
        self._reads = NodeReads(self.mirror, lambda: self.cells, self.spoken_for.__contains__, lambda _: False)

    def read(self, node: str, cell: str | None = None) -> list[Any]:
        return list(self._reads.node((self.nova.cell_uuid if cell is None else cell, node), 7.0))


@pytest.fixture
def reader(nova: NovaDatabases, world: World) -> Reader:
    return Reader(nova, world)


def test_a_node_is_as_old_as_the_beginning_of_its_read(nova: NovaDatabases, world: World, reader: Reader) -> None:
    own = nova.compute("cmp-1", world.provider())
    [event] = reader.read(own)
    assert isinstance(event, NodeRead) and (event.node, event.read_at_s) == (own, 7.0)


def test_a_removed_node_is_reported(nova: NovaDatabases, reader: Reader) -> None:
    assert reader.read("no-such-node") == [NodesGone(nova.cell_uuid, frozenset(["no-such-node"]))]


def test_a_node_counts_as_read_only_after_placement_has_answered(
    nova: NovaDatabases, world: World, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a node that is read while Placement is away
    own = nova.compute("cmp-1", world.provider())
    list(reader.cell.node_list(7.0))
    with monkeypatch.context() as away, pytest.raises(PlacementError):
        away.setattr(reader.mirror, "read", broken)
        reader.read(own)
    # then the next look at the records wants it read, until that has been done
    assert [wish.key[1] for wish in reader.cell.records()] == [own]
    reader.read(own)
    assert list(reader.cell.records()) == []


def test_a_node_that_is_removed_while_it_is_read_does_not_come_back(
    nova: NovaDatabases, world: World, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = nova.compute("cmp-1", world.provider())
    list(reader.cell.node_list(7.0))

    def read_slowly(_: str) -> Tree:
        nova.change(models.ComputeNode, "cmp-1", deleted=1)
        assert NodesGone(nova.cell_uuid, frozenset([own])) in list(reader.cell.node_list(7.5))
        return Tree()

    monkeypatch.setattr(reader.mirror, "read", read_slowly)
    assert reader.read(own) == [NodesGone(nova.cell_uuid, frozenset([own]))]


@pytest.mark.parametrize("cell", [None, ""], ids=["known", "searched"])
def test_a_node_of_a_cell_that_is_removed_while_it_is_read_does_not_come_back(
    nova: NovaDatabases, world: World, reader: Reader, monkeypatch: pytest.MonkeyPatch, cell: str | None
) -> None:
    own = nova.compute("cmp-1", world.provider())

    def read_slowly(_: str) -> Tree:
        reader.cells.clear()
        return Tree()

    monkeypatch.setattr(reader.mirror, "read", read_slowly)
    assert not [one for one in reader.read(own, cell) if isinstance(one, NodeRead)]


def test_a_node_of_a_cell_that_is_not_read_is_nothing(reader: Reader) -> None:
    assert reader.read("node", "another cell") == []


def test_a_node_of_an_unknown_cell_is_searched_for(nova: NovaDatabases, world: World, reader: Reader) -> None:
    own = nova.compute("cmp-1", world.provider())
    services, node = reader.read(own, "")
    assert isinstance(services, ServicesRead) and [one.host for one in services.services] == ["cmp-1"]
    assert (node.cell, node.node) == (nova.cell_uuid, own)
    assert reader.read("no-such-node", "") == [NodeNotFound("no-such-node", 7.0)]


def test_a_cell_that_cannot_be_read_hides_no_node_of_another_one(
    nova: NovaDatabases, world: World, reader: Reader,
) -> None:  # fmt: skip
    # given a cell whose database is away, and that is searched first
    away = nova.open_cell(Cell("away", "away", "sqlite:////no/such/file", ""))
    reader.cells = {"away": CellReads(away, reader.spoken_for.__contains__), **reader.cells}

    # then a node of the other one is found
    own = nova.compute("cmp-1", world.provider())
    _, node = reader.read(own, "")
    assert (node.cell, node.node) == (nova.cell_uuid, own)
    # and whether there is one that was not found, nobody knows
    with pytest.raises(DatabaseError):
        reader.read("no-such-node", "")


@pytest.fixture
def site(nova: NovaDatabases, world: World) -> Site:
    """With a second cell, whose database has been away for a while."""
    site = Site(nova, world, 0)
    away = Cell("away", "away", "sqlite:////no/such/file", "")
    site.sync.use((site.cell.database.cell, away))
    site.now_s += 10.0
    site.poll()
    return site


def test_a_request_does_not_wait_for_a_cell_that_is_away_because_of_a_provider_without_a_node(site: Site) -> None:
    for _ in range(3):
        site.now_s += 1.0
        site.sync.submit(RefreshNode("", "no-such-node", "Placement says that it fits", cause="req-1"))
        assert NodeNotFound("no-such-node", site.now_s) in site.poll()


def test_a_request_does_not_wait_for_a_node_of_a_cell_that_is_away(site: Site) -> None:
    for _ in range(3):
        site.now_s += 1.0
        site.heard.clear()
        site.sync.submit(RefreshNode("away", "node", "Placement says that it fits", cause="req-1"))
        assert [(one.node, one.read_at_s) for one in site.heard] == [("node", site.now_s)]


def test_a_node_is_found_in_its_cell_when_that_answers_again(
    nova: NovaDatabases, world: World, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = nova.compute("cmp-1", world.provider())
    site.sync.submit(RefreshNode("", own, "Placement says that it fits", cause="req-1"))
    assert {one.node for one in site.poll() if isinstance(one, NodeRead)} == {own}
    # given that its cell is away too
    monkeypatch.setattr(site.cell.database, "rows", unreadable)
    site.now_s += 10.0
    site.poll()
    site.sync.submit(RefreshNode("", own, "Placement says that it fits", cause="req-2"))
    assert NodeNotFound(own, site.now_s) in site.poll()
    # when it answers again
    monkeypatch.undo()
    for _ in range(3):
        site.now_s += 10.0
        site.poll()
    # then the next search finds the node
    site.sync.submit(RefreshNode("", own, "Placement says that it fits", cause="req-3"))
    assert {one.node for one in site.poll() if isinstance(one, NodeRead)} == {own}


def unreadable(_query: object) -> list[Any]:
    raise DatabaseError("no answer")


class SlowPlacement:
    """Reads the tree of a node in 50 ms, and counts how many it reads at the same time."""

    def __init__(self) -> None:
        self.most = 0
        self._present = 0
        self._lock = threading.Lock()

    def read(self) -> Tree:
        self._count(1)
        time.sleep(0.05)
        self._count(-1)
        return Tree()

    def _count(self, step: int) -> None:
        with self._lock:
            self._present += step
            self.most = max(self.most, self._present)


def test_placement_reads_few_trees_at_once_however_many_cells_there_are(
    nova: NovaDatabases, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared_scheduler.sync.node_reads.TURN_WITHIN_S", 60.0)  # on a busy machine too
    placement = SlowPlacement()
    monkeypatch.setattr(PlacementMirror, "read", lambda mirror, node: placement.read())
    # given ten cells
    nodes = [nova.compute(host, world.provider()) for host in ("cmp-1", "cmp-2")]
    site = Site(nova, world, 0)
    cells = [Cell(f"cell-{number}", f"cell{number}", nova.cell_url, "") for number in range(10)]
    site.sync.use(tuple(cells))
    site.sync.start()
    # when the nodes of all are read, as after a start
    for cell in cells:
        for node in nodes:
            site.sync.submit(RefreshNode(cell.uuid, node, "it has no agent", cause="start"))
    until_s = time.monotonic() + 60.0
    while len(site.heard) < len(cells) * len(nodes):
        assert time.monotonic() < until_s, site.heard
        time.sleep(0.01)
    site.sync.stop()
    # then Placement is asked for few of them at the same time
    assert 1 < placement.most <= 4


def test_a_node_whose_agent_has_reported_is_not_read(
    nova: NovaDatabases, world: World, reader: Reader,
) -> None:  # fmt: skip
    own = nova.compute("cmp-1", world.provider())
    reader.spoken_for.add(own)
    assert reader.read(own) == []
