# SPDX-License-Identifier: Apache-2.0
"""Everything in the registry is read by threads, which stop when they are told to."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nova.db.main import models

from shared_scheduler.core.effects import AskConsumer, AskGroup, RefreshNode
from shared_scheduler.core.events import (
    AggregatesRead,
    ConsumerAnswered,
    GroupAnswered,
    NodeContradicted,
    NodeRead,
    NodesGone,
    ServicesRead,
    SharingRead,
)
from shared_scheduler.sync.bounded_reads import HANGING_MAX
from shared_scheduler.sync.databases import Cell, CellDatabase
from shared_scheduler.sync.read_registry import COUNTERS, LANES, NODE_LIST, NODES, QUESTIONS, SERVICES, SOURCES
from shared_scheduler.sync.state_sync import OPENED_AGAIN_AFTER_S, StateSync
from tests.support import empty_databases
from tests.unit.placement.conftest import placement_app, world
from tests.unit.placement.real_placement import World
from tests.unit.sync.nova_databases import NovaDatabases
from tests.unit.sync.one_cell import Site

WAIT_S = 60.0
QUICK = [replace(each, poll_s=each.poll_s and 0.05) for each in SOURCES]
ROOMY = {"VCPU": {"total": 8}, "MEMORY_MB": {"total": 4096}, "DISK_GB": {"total": 100}}


class Service:
    def __init__(
        self,
        nova: NovaDatabases,
        world: World,
        open_cell: Callable[[Cell], CellDatabase] | None = None,
        **more: Any,
    ) -> None:
        self.heard: queue.Queue[Any] = queue.Queue()
        self.spoken_for: set[str] = set()
        self.here = Cell(nova.cell_uuid, "cell1", nova.cell_url, "rabbit://here/")
        given = {"sources": QUICK, "nodes_max": 0, "sweep": nothing_orphaned, "log_new": lambda: None}
        self.sync = StateSync(
            nova.api(), open_cell or nova.open_cell, world.client, self.heard.put,
            self.spoken_for.__contains__, **(given | more),
        )  # fmt: skip
        self.sync.start()

    def wait_for(self, kind: type, what: Any = lambda event: True) -> Any:
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            event = self.heard.get(timeout=WAIT_S)
            if isinstance(event, kind) and what(event):
                return event
        raise AssertionError(f"no such {kind.__name__} was heard")


def nothing_orphaned() -> Iterator[NodeContradicted]:
    yield from ()


@pytest.fixture
def nova(tmp_path: Path) -> NovaDatabases:
    return NovaDatabases(tmp_path)


@pytest.fixture
def service(nova: NovaDatabases, world: World) -> Iterator[Service]:
    one = Service(nova, world)
    one.sync.use((one.here,))
    yield one
    one.sync.stop()


def test_everything_is_polled(nova: NovaDatabases, world: World, service: Service) -> None:
    nova.aggregate("az", ("cmp-1",), availability_zone="az")
    service.wait_for(AggregatesRead, lambda event: event.complete and event.aggregates)
    service.wait_for(SharingRead)
    own = nova.compute("cmp-1", world.provider())
    service.wait_for(ServicesRead, lambda event: event.services)
    assert service.wait_for(NodeRead).node == own


def test_a_release_on_a_node_without_an_agent_is_found(
    nova: NovaDatabases,
    world: World,
    service: Service,
) -> None:
    own = nova.compute("cmp-1", world.provider())
    instance = nova.instance("cmp-1")
    world.take(instance, {own: {"VCPU": 1}})
    service.wait_for(NodeRead, lambda event: instance in event.consumers)
    world.ok("DELETE", f"/allocations/{instance}")
    service.wait_for(NodeRead, lambda event: not event.consumers)


def test_a_changed_inventory_is_found(nova: NovaDatabases, world: World, service: Service) -> None:
    own = nova.compute("cmp-1", world.provider(vcpus=8))
    service.wait_for(NodeRead)
    world.set(own, "inventories", {"VCPU": {"total": 16}})
    service.wait_for(NodeRead, lambda event: event.leaves[f"rp.{own}"]["inventories"]["VCPU"][0] == 16)


def test_the_core_may_ask(nova: NovaDatabases, world: World) -> None:
    service = Service(nova, world, sources=SOURCES)
    own = nova.compute("cmp-1", world.provider())
    service.sync.use((service.here,))
    service.sync.submit(RefreshNode(nova.cell_uuid, own, "recheck", cause="req-1"))
    assert service.wait_for(NodeRead).node == own
    service.sync.stop()


def test_cells_come_and_go(nova: NovaDatabases, world: World, service: Service) -> None:
    nova.compute("cmp-1", world.provider())
    service.wait_for(NodeRead)
    service.sync.use(())
    while not service.heard.empty():
        service.heard.get()
    service.wait_for(AggregatesRead)
    assert not [one for one in list(service.heard.queue) if isinstance(one, ServicesRead)]
    service.sync.use((service.here,))
    service.wait_for(ServicesRead)


def test_a_cell_whose_database_moved_is_read_there(
    nova: NovaDatabases,
    world: World,
    service: Service,
) -> None:
    known = nova.compute("cmp-1", world.provider())
    service.wait_for(NodeRead, lambda event: event.node == known)
    before = service.sync.fleet.cells[nova.cell_uuid]

    service.sync.use((replace(service.here, database_url=f"{nova.cell_url}?timeout=7"),))

    after = service.sync.fleet.cells[nova.cell_uuid]
    assert after is not before
    assert after.nodes == {known}  # what is gone by now will be noticed
    service.wait_for(ServicesRead)


def test_a_cell_is_opened_again_only_where_it_moved(nova: NovaDatabases, world: World) -> None:
    opened: list[Cell] = []

    def open_cell(asked: Cell) -> CellDatabase:
        opened.append(asked)
        return nova.open_cell(asked)

    service = Service(nova, world, open_cell, sources=SOURCES)
    there = replace(service.here, database_url=f"{nova.cell_url}?timeout=7")
    for cells in (service.here, service.here, there):
        service.sync.use((cells,))
    service.sync.stop()
    assert opened == [service.here, there]


def test_nodes_without_an_agent_are_read_exactly_after_the_start(
    nova: NovaDatabases,
    world: World,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with_agent = nova.compute("cmp-1", world.provider(inventories=ROOMY))
    without = nova.compute("cmp-2", world.provider(inventories=ROOMY))
    service = Service(nova, world, sources=SOURCES, grace_s=0.0)
    service.spoken_for.add(with_agent)
    with caplog.at_level("INFO"):
        service.sync.load()
        exact = service.wait_for(NodeRead, lambda event: event.leaves[f"rp.{event.node}"].get("generation"))
    service.sync.stop()
    assert exact.node == without
    assert exact.leaves[f"rp.{without}"]["inventories"]["VCPU"][0] == 8
    assert "reading 1 of 2 compute nodes from Placement" in caplog.text
    assert next(row for row in service.sync.revalidator.report() if row["source"] == "start")["queries"] >= 5


def test_a_cell_that_answers_long_after_the_start_does_not_bring_back_what_was_removed_meanwhile(
    nova: NovaDatabases, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared_scheduler.sync.bootstrap.ANSWERS_WITHIN_S", 0.3)
    own, answer = nova.compute("cmp-1", world.provider(inventories=ROOMY)), threading.Event()
    (tmp_path / "cell2.db").write_bytes(empty_databases.cell_database())
    nova.map_cell(str(uuid.uuid4()), "cell2", f"sqlite:///{tmp_path / 'cell2.db'}", "rabbit://")

    # given a cell whose database hangs after the first queries of a start, which goes on without it
    def open_cell(cell: Cell) -> CellDatabase:
        database = nova.open_cell(cell)
        if cell.name == "cell1":
            monkeypatch.setattr(database, "instances", partial(after, answer, database.instances))
        return database

    service = Service(nova, world, open_cell, grace_s=0.0)
    service.sync.load()
    # and whose polls find a compute node there, and find later that it was removed
    assert service.wait_for(NodeRead).node == own
    nova.change(models.ComputeNode, "cmp-1", deleted=1)
    service.wait_for(NodesGone, lambda event: own in event.nodes)
    # when the database answers at last
    reading = [thread for thread in threading.enumerate() if thread.name == "bootstrap"]
    answer.set()
    for thread in reading:
        thread.join(WAIT_S)
    service.sync.stop()
    # then the node does not return
    assert reading
    assert not [one for one in list(service.heard.queue) if isinstance(one, NodeRead)]


@pytest.mark.parametrize("api_hangs", [False, True], ids=["alone", "and the API database hangs too"])
def test_a_cell_is_read_on_another_connection_when_a_read_of_it_hangs(
    nova: NovaDatabases, world: World, monkeypatch: pytest.MonkeyPatch, api_hangs: bool
) -> None:
    monkeypatch.setattr("shared_scheduler.sync.state_sync.OPENED_AGAIN_AFTER_S", 0.3)
    nova.compute("cmp-1", world.provider())
    answer, opened, api = threading.Event(), list[CellDatabase](), nova.api()

    # given a cell whose database was replaced during a query, which is never answered; another one would be
    def open_cell(cell: Cell) -> CellDatabase:
        database = nova.open_cell(cell)
        if not opened:
            monkeypatch.setattr(database, "services", lambda: answer.wait() and ())
        opened.append(database)
        return database

    if api_hangs:
        monkeypatch.setattr(api, "aggregates", lambda: answer.wait() and ())
        monkeypatch.setattr(nova, "api", lambda: api)
    service = Service(nova, world, open_cell)
    # when it is polled
    service.sync.use((service.here,))
    # then its services are read
    try:
        assert [one.host for one in service.wait_for(ServicesRead).services] == ["cmp-1"]
    finally:
        answer.set()
    service.sync.stop()


def test_a_cell_of_which_one_table_hangs_is_opened_again_less_and_less_often(
    nova: NovaDatabases, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer, opened, open_cell = threading.Semaphore(0), threading.Event(), list[CellDatabase](), nova.open_cell

    # given a cell whose services can be read, and whose table of nodes is locked
    def hang() -> dict[str, str]:
        asked.release()
        answer.wait()
        return {}

    def partly_locked(cell: Cell) -> CellDatabase:
        opened.append(open_cell(cell))
        monkeypatch.setattr(opened[-1], "node_hosts", hang)
        return opened[-1]

    monkeypatch.setattr(nova, "open_cell", partly_locked)
    site = Site(nova, world, nodes_max=0)
    # when it is polled for an hour
    read, read_of = site.sync.revalidator, 0
    for _ in range(360):
        if len(opened) > read_of:
            read_of = len(opened)
            read.wait_for([(SERVICES, (nova.cell_uuid,))], 0.0)
            lane = partial(read.wait_for, [(NODE_LIST, (nova.cell_uuid,))], 0.0, bounded=False)
            threading.Thread(target=lane, daemon=True).start()
            assert asked.acquire(timeout=WAIT_S)
        site.now_s += 10.0
        read.read(COUNTERS)
    answer.set()
    # then each attempt that left a thread that hangs has doubled the time to the next one
    attempts, waited_s = 0, OPENED_AGAIN_AFTER_S
    while waited_s < 3600.0:
        attempts, waited_s = attempts + 1, 2 * waited_s + OPENED_AGAIN_AFTER_S
    assert len(opened) == 1 + attempts


class SomeHang:
    """A cell whose queries for some nodes are not answered before ``answer`` is set."""

    def __init__(self, nova: NovaDatabases) -> None:
        self.answer = threading.Event()
        self.hanging: set[str] = set()
        self._open_cell = nova.open_cell

    def open_cell(self, cell: Cell) -> CellDatabase:
        database = self._open_cell(cell)
        read = database.nodes

        def nodes(uuids: Collection[str] | None = None) -> Any:
            if not self.hanging.isdisjoint(uuids or ()):
                self.answer.wait()
            return read(uuids)

        vars(database)["nodes"] = nodes
        return database


@pytest.mark.parametrize("cell_is_known", [True, False])
def test_nodes_whose_reads_hang_keep_no_other_node_from_being_read(
    nova: NovaDatabases, world: World, monkeypatch: pytest.MonkeyPatch, cell_is_known: bool
) -> None:
    monkeypatch.setattr("shared_scheduler.sync.node_reads.CELL_READ_WITHIN_S", 1.0)
    cell = SomeHang(nova)
    service = Service(nova, world, cell.open_cell, sources=SOURCES)
    service.sync.use((service.here,))
    # given more nodes than there are threads, whose queries lost their connections
    asked_in, own = (nova.cell_uuid if cell_is_known else ""), nova.compute("cmp-1", world.provider())
    cell.hanging = {f"node-{number}" for number in range(LANES[NODES] + 1)}
    for node in cell.hanging:
        service.sync.submit(RefreshNode(asked_in, node, "recheck", cause="req-1"))
    # when another one is wanted
    service.sync.submit(RefreshNode(asked_in, own, "recheck", cause="req-2"))
    # then it is read
    try:
        assert service.wait_for(NodeRead).node == own
    finally:
        cell.answer.set()
    service.sync.stop()


def test_questions_about_groups_in_a_cell_that_hangs_keep_no_other_question_waiting(
    nova: NovaDatabases, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a server group whose member is in a cell that accepts queries and does not answer them
    answer, group, other = threading.Event(), nova.group(nova.map_server("cell1")), str(uuid.uuid4())

    def open_cell(cell: Cell) -> CellDatabase:
        database = nova.open_cell(cell)
        monkeypatch.setattr(database, "hosts_of", lambda *_: answer.wait() and {})
        return database

    service = Service(nova, world, open_cell)
    service.sync.use((service.here,))
    # when as many requests of the group as there are threads ask where it is, and another question comes
    for number in range(LANES[QUESTIONS]):
        asked = AskGroup(f"group-{number}", group, frozenset(), "req-1", cells=frozenset({nova.cell_uuid}))
        service.sync.submit(asked)
    service.sync.submit(AskConsumer(other, cause="req-2"))
    # then all are answered
    try:
        assert service.wait_for(ConsumerAnswered).consumer == other
    finally:
        answer.set()
    service.sync.stop()


def test_a_cell_that_was_opened_again_is_asked_about_groups_while_questions_of_before_hang(
    nova: NovaDatabases, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared_scheduler.sync.state_sync.QUESTION_READ_WITHIN_S", 1.0)
    server, answer, opened = nova.map_server("cell1"), threading.Event(), list[CellDatabase]()
    group = nova.group(nova.instance("cmp-1", own=server))

    # given a cell whose database has been replaced elsewhere
    def open_cell(cell: Cell) -> CellDatabase:
        database = nova.open_cell(cell)
        if not opened:
            monkeypatch.setattr(database, "hosts_of", lambda *_: answer.wait() and {})
        opened.append(database)
        return database

    service = Service(nova, world, open_cell, sources=SOURCES)
    service.sync.use((service.here,))
    asked = [
        AskGroup(f"group-{number}", group, frozenset(), "req-1", cells=frozenset({nova.cell_uuid}))
        for number in range(HANGING_MAX + 1)
    ]
    # and as many questions as hang at most there
    for each in asked[:-1]:
        service.sync.submit(each)
    for _ in asked[:-1]:
        assert "has not answered" in service.wait_for(GroupAnswered).error
    # when the cell has been opened again, and another question comes
    service.sync.use((replace(service.here, database_url=f"{nova.cell_url}?timeout=7"),))
    service.sync.submit(asked[-1])
    # then it is answered
    try:
        assert service.wait_for(GroupAnswered).hosts == {server: "cmp-1"}
    finally:
        answer.set()
    service.sync.stop()


def after(answer: threading.Event, read: Callable[..., Any], hosts: Collection[str] | None = None) -> Any:
    """A query that hangs in the bulk read of a start."""
    if hosts is None:
        answer.wait(WAIT_S)
    return read(hosts)
