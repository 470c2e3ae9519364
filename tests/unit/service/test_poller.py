# SPDX-License-Identifier: Apache-2.0
"""What no agent tells is asked for, and only where it is not known better."""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from nova.db.main import models

from shared_scheduler.core.effects import RefreshNode
from shared_scheduler.core.events import AggregatesRead, NodeRead, NodesGone, ServicesRead
from shared_scheduler.placement.mirror import PlacementMirror
from shared_scheduler.service.databases import Cell, CellDatabase, DatabaseError
from shared_scheduler.service.node_reads import NodeReads
from shared_scheduler.service.outages import Outages
from shared_scheduler.service.poller import CellPoll, Intervals, Poller
from shared_scheduler.service.reading import Reading
from shared_scheduler.service.rounds import Round, Rounds
from tests.unit.placement.conftest import placement_app, world  # noqa: F401 (fixtures)
from tests.unit.placement.world import World
from tests.unit.service.nova_databases import NovaDatabases, naive

WAIT_S = 60.0


@pytest.fixture
def nova(tmp_path: Path) -> NovaDatabases:
    return NovaDatabases(tmp_path)


@dataclass
class Poll:
    """A CellPoll with everything that it says."""

    nova: NovaDatabases
    said: list[Any] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)
    spoken_for: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.poll = CellPoll(
            self.nova.cell(), self.said.append, lambda _, node: self.wanted.append(node),
            self.spoken_for.__contains__,
        )  # fmt: skip

    def services(self) -> dict[str, Any]:
        """Ask for exceptions; what was said, by host."""
        self.said.clear()
        self.poll.exceptions()
        return {one.host: one for event in self.said for one in event.services}

    def wishes(self, ask: str) -> list[str]:
        self.wanted.clear()
        getattr(self.poll, ask)()
        return sorted(self.wanted)


@pytest.fixture
def poll(nova: NovaDatabases) -> Poll:
    return Poll(nova)


# -- services ------------------------------------------------------------------------------------


def test_a_healthy_cell_says_nothing_after_the_first_time(nova: NovaDatabases, poll: Poll) -> None:
    nova.service("cmp-1")
    assert set(poll.services()) == {"cmp-1"}
    assert isinstance(poll.said[0], ServicesRead) and poll.said[0].complete
    assert poll.services() == {}


def test_disabled_and_enabled_again(nova: NovaDatabases, poll: Poll) -> None:
    nova.service("cmp-1")
    poll.services()
    nova.change(models.Service, "cmp-1", disabled=True, disabled_reason="disk")
    assert poll.services()["cmp-1"].disabled
    assert poll.said[0].complete is False
    assert poll.services() == {}
    nova.change(models.Service, "cmp-1", disabled=False)
    assert not poll.services()["cmp-1"].disabled
    assert poll.services() == {}


def test_dead_and_alive_again(nova: NovaDatabases, poll: Poll) -> None:
    nova.service("cmp-1")
    poll.services()
    nova.now += timedelta(seconds=61)
    assert not poll.services()["cmp-1"].up
    nova.change(models.Service, "cmp-1", last_seen_up=naive(nova.now))
    assert poll.services()["cmp-1"].up


def test_a_heartbeat_of_a_disabled_service_is_no_news(nova: NovaDatabases, poll: Poll) -> None:
    nova.service("cmp-1", disabled=True)
    poll.services()
    nova.change(models.Service, "cmp-1", report_count=8, last_seen_up=naive(nova.now))
    assert poll.services() == {}


def test_a_new_compute_is_known_at_the_next_look(nova: NovaDatabases, poll: Poll) -> None:
    nova.service("cmp-1")
    poll.services()
    nova.service("cmp-2")
    assert set(poll.services()) == {"cmp-2"}
    assert poll.services() == {}


def test_an_exception_with_a_low_id_does_not_make_the_others_news(
    nova: NovaDatabases, poll: Poll
) -> None:
    for host in ("cmp-1", "cmp-2", "cmp-3"):
        nova.service(host)
    poll.services()
    nova.change(models.Service, "cmp-1", disabled=True)
    assert set(poll.services()) == {"cmp-1"}
    assert poll.services() == {}
    nova.service("cmp-4")
    assert set(poll.services()) == {"cmp-4"}


# -- nodes ---------------------------------------------------------------------------------------


def test_new_and_gone_nodes(nova: NovaDatabases, poll: Poll) -> None:
    own = nova.node("cmp-1")
    assert poll.wishes("node_list") == [own]
    assert poll.wishes("node_list") == []
    nova.change(models.ComputeNode, "cmp-1", deleted=1)
    poll.poll.node_list()
    assert poll.said[-1] == NodesGone(nova.cell_uuid, frozenset([own]))


def test_a_node_with_an_agent_is_left_to_it(nova: NovaDatabases, poll: Poll) -> None:
    own, other = nova.node("cmp-1"), nova.node("cmp-2")
    poll.spoken_for.add(own)
    assert poll.wishes("node_list") == [other]
    poll.wishes("changes")
    nova.now += timedelta(seconds=10)
    nova.change(models.ComputeNode, "cmp-1", updated_at=naive(nova.now))
    assert own not in poll.wishes("changes")
    assert poll.poll.silent_nodes() == [other]


def test_a_node_that_reported_is_read_twice_and_then_left_alone(
    nova: NovaDatabases, poll: Poll
) -> None:
    own = nova.node("cmp-1")
    for ask in ("node_list", "changes", "changes"):
        poll.wishes(ask)
    assert poll.wishes("changes") == []
    nova.now += timedelta(seconds=10)
    nova.change(models.ComputeNode, "cmp-1", updated_at=naive(nova.now))
    assert [poll.wishes("changes") for _ in range(4)] == [[own], [own], [], []]


def test_a_fleet_with_agents_everywhere_is_not_asked_for_changes(
    nova: NovaDatabases, poll: Poll, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll.spoken_for.add(nova.node("cmp-1"))
    poll.poll.node_list()
    asked: list[Any] = []
    monkeypatch.setattr(poll.poll.database, "nodes_changed_since", asked.append)
    poll.poll.changes()
    assert asked == []


# -- rounds and outages --------------------------------------------------------------------------


def test_an_outage_is_said_once_an_interval_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    outages = Outages(logging.getLogger("test"), lambda: now[0], again_s=60.0)
    with caplog.at_level("INFO", "test"):
        for now[0] in (0.0, 1.0, 59.0, 60.0, 61.0):
            outages.failed("db", "it is away")
        assert outages.lasting() == {"db"}
        outages.recovered("db")
        outages.recovered("db")
    assert [record.message for record in caplog.records] == [
        "it is away", "it is away", "db: works again after 61 s"
    ]  # fmt: skip


def test_a_job_goes_on_after_outages_and_bugs(caplog: pytest.LogCaptureFixture) -> None:
    answers = iter([DatabaseError("db is away"), RuntimeError("a bug"), None])
    done = threading.Event()

    def job() -> None:
        answer = next(answers)
        if answer is None:
            done.set()
        else:
            raise answer

    rounds = Rounds("test", [Round("db", 0.01, job)], time.monotonic, random.Random(1))
    rounds.start()
    assert done.wait(WAIT_S)
    rounds.stop()
    assert "db is away" in caplog.text and "a bug" in caplog.text


# -- the whole -----------------------------------------------------------------------------------

QUICK = Intervals(0.02, 0.05, 0.05, 0.05, 0.05, 0.1, 0.05)


class Service:
    def __init__(self, nova: NovaDatabases, world: World) -> None:  # noqa: F811
        self.heard: queue.Queue[Any] = queue.Queue()
        mirror = PlacementMirror(world.client)
        self.reads = NodeReads(mirror, self.heard.put, time.monotonic)
        self.spoken_for: set[str] = set()
        self.poller = Poller(
            nova.api(), mirror, self.reads, self.heard.put, self.spoken_for.__contains__,
            intervals=QUICK, rng=random.Random(1),
        )  # fmt: skip
        self.reads.start()
        self.poller.start()

    def wait_for(self, kind: type, what: Any = lambda event: True) -> Any:
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            event = self.heard.get(timeout=WAIT_S)
            if isinstance(event, kind) and what(event):
                return event
        raise AssertionError(f"no such {kind.__name__} was heard")


@pytest.fixture
def service(nova: NovaDatabases, world: World) -> Iterator[Service]:  # noqa: F811
    one = Service(nova, world)
    one.poller.use({nova.cell_uuid: nova.cell()}, {})
    yield one
    one.poller.stop()
    one.reads.stop()


def test_everything_is_polled(nova: NovaDatabases, world: World, service: Service) -> None:  # noqa: F811
    nova.aggregate("az", ("cmp-1",), availability_zone="az")
    service.wait_for(AggregatesRead, lambda event: event.complete and event.aggregates)
    own = nova.compute("cmp-1", world.provider())
    service.wait_for(ServicesRead, lambda event: event.services)
    assert service.wait_for(NodeRead).node == own


def test_a_release_on_a_node_without_an_agent_is_found(
    nova: NovaDatabases, world: World, service: Service  # noqa: F811
) -> None:
    own = nova.compute("cmp-1", world.provider())
    instance = nova.instance("cmp-1")
    world.take(instance, {own: {"VCPU": 1}})
    service.wait_for(NodeRead, lambda event: instance in event.consumers)
    world.ok("DELETE", f"/allocations/{instance}")
    service.wait_for(NodeRead, lambda event: not event.consumers)


def test_a_changed_inventory_is_found(nova: NovaDatabases, world: World, service: Service) -> None:  # noqa: F811
    own = nova.compute("cmp-1", world.provider(vcpus=8))
    service.wait_for(NodeRead)
    world.set(own, "inventories", {"VCPU": {"total": 16}})
    service.wait_for(
        NodeRead, lambda event: event.leaves[f"rp.{own}"]["inventories"]["VCPU"][0] == 16
    )


def test_the_core_may_ask(nova: NovaDatabases, world: World) -> None:  # noqa: F811
    service = Service(nova, world)
    own = nova.compute("cmp-1", world.provider())
    service.spoken_for.add(own)
    service.poller.use({nova.cell_uuid: nova.cell()}, {own: nova.cell_uuid})
    service.poller.refresh(RefreshNode(nova.cell_uuid, own, "doubt"))
    assert service.wait_for(NodeRead).node == own
    service.poller.stop()
    service.reads.stop()


def test_cells_come_and_go(nova: NovaDatabases, world: World, service: Service) -> None:  # noqa: F811
    nova.compute("cmp-1", world.provider())
    service.wait_for(NodeRead)
    service.poller.use({}, {})
    while not service.heard.empty():
        service.heard.get()
    service.wait_for(AggregatesRead)
    assert not [one for one in list(service.heard.queue) if isinstance(one, ServicesRead)]
    service.poller.use({nova.cell_uuid: nova.cell()}, {})
    service.wait_for(ServicesRead)


def test_a_cell_whose_database_moved_is_polled_there(
    nova: NovaDatabases, world: World, service: Service  # noqa: F811
) -> None:
    known = nova.compute("cmp-1", world.provider())
    service.wait_for(NodeRead, lambda event: event.node == known)
    before = service.poller.polls()[nova.cell_uuid]

    moved = nova.cell()
    service.poller.use({nova.cell_uuid: moved}, {})

    after = service.poller.polls()[nova.cell_uuid]
    assert after is not before
    assert after.nodes == {known}  # what is gone by now will be noticed
    service.wait_for(ServicesRead)


def test_a_cell_is_opened_again_only_where_it_moved(nova: NovaDatabases, world: World) -> None:  # noqa: F811
    opened: list[Cell] = []

    def open_cell(asked: Cell) -> CellDatabase:
        opened.append(asked)
        return nova.open_cell(asked)

    reading = Reading(
        nova.api(), open_cell, PlacementMirror(world.client), lambda event: None, lambda node: False, QUICK
    )
    here = Cell(nova.cell_uuid, "cell1", nova.cell_url, "rabbit://here/")
    there = replace(here, database_url=f"{nova.cell_url}?timeout=7")
    for cells in (here, here, there):
        reading.use((cells,))
    reading.stop()
    assert opened == [here, there]
