# SPDX-License-Identifier: Apache-2.0
"""A read of a cell yields the changes, and requests only nodes without an agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from nova.db.main import models

from shared_scheduler.core.events import BuildRead, BuildsRead, BuildState, NodesGone, NodesListed, ServicesRead
from shared_scheduler.sync.cell_reads import CellReads
from shared_scheduler.sync.databases import DatabaseError
from shared_scheduler.sync.flight import ReadRequest
from tests.unit.sync.nova_databases import NovaDatabases, naive

#: when each read of the nodes begins
BEGAN_S = 7.0


@pytest.fixture
def nova(tmp_path: Path) -> NovaDatabases:
    return NovaDatabases(tmp_path)


@dataclass
class Poll:
    """The reads of one cell, and the events that they yield."""

    nova: NovaDatabases
    yielded: list[Any] = field(default_factory=list)
    spoken_for: set[str] = field(default_factory=set)
    unlisted: bool = False

    def __post_init__(self) -> None:
        self.cell = CellReads(self.nova.cell(), self.spoken_for.__contains__, has_unlisted=lambda: self.unlisted)

    def services(self) -> dict[str, Any]:
        """Read the services that are not as they should be; what is yielded, by host."""
        self.yielded = list(self.cell.services())
        return {one.host: one for event in self.yielded for one in event.services}

    def wishes(self, source: str) -> list[str]:
        """The nodes that a source wants read."""
        began = (BEGAN_S,) if source == "node_list" else ()
        self.yielded = list(getattr(self.cell, source)(*began))
        return sorted(each.key[1] for each in self.yielded if isinstance(each, ReadRequest))


@pytest.fixture
def poll(nova: NovaDatabases) -> Poll:
    return Poll(nova)


# -- services ------------------------------------------------------------------------------------


def test_a_healthy_cell_yields_nothing_after_the_first_read(nova: NovaDatabases, poll: Poll) -> None:
    nova.service("cmp-1")
    assert set(poll.services()) == {"cmp-1"}
    assert isinstance(poll.yielded[0], ServicesRead) and poll.yielded[0].complete
    assert poll.services() == {}


def test_disabled_and_enabled_again(nova: NovaDatabases, poll: Poll) -> None:
    nova.service("cmp-1")
    poll.services()
    nova.change(models.Service, "cmp-1", disabled=True, disabled_reason="disk")
    assert poll.services()["cmp-1"].disabled
    assert poll.yielded[0].complete is False
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


def test_a_heartbeat_of_a_disabled_service_yields_nothing(nova: NovaDatabases, poll: Poll) -> None:
    nova.service("cmp-1", disabled=True)
    poll.services()
    nova.change(models.Service, "cmp-1", report_count=8, last_seen_up=naive(nova.now))
    assert poll.services() == {}


def test_a_new_compute_is_known_at_the_next_read(nova: NovaDatabases, poll: Poll) -> None:
    nova.service("cmp-1")
    poll.services()
    nova.service("cmp-2")
    assert set(poll.services()) == {"cmp-2"}
    assert poll.services() == {}


def test_an_exception_with_a_low_id_does_not_make_the_others_news(nova: NovaDatabases, poll: Poll) -> None:
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
    poll.wishes("node_list")
    assert poll.yielded[0] == NodesGone(nova.cell_uuid, frozenset([own]))


def test_hosts_are_passed_on_for_unlisted_and_moved_nodes(nova: NovaDatabases, poll: Poll) -> None:
    own = nova.node("cmp-1")

    def told() -> list[NodesListed]:
        poll.wishes("node_list")
        return [each for each in poll.yielded if isinstance(each, NodesListed)]

    assert told() == []
    poll.unlisted = True
    assert told() == [NodesListed(nova.cell_uuid, {own: "cmp-1"}, frozenset(), BEGAN_S)]
    poll.unlisted = False
    nova.move_node(own, "cmp-2")
    assert told() == [NodesListed(nova.cell_uuid, {own: "cmp-2"}, frozenset({own}), BEGAN_S)]
    assert told() == []


def test_a_node_with_an_agent_is_left_to_it(nova: NovaDatabases, poll: Poll) -> None:
    own, other = nova.node("cmp-1"), nova.node("cmp-2")
    poll.spoken_for.add(own)
    assert poll.wishes("node_list") == [other]
    poll.wishes("reported")
    nova.now += timedelta(seconds=10)
    nova.change(models.ComputeNode, "cmp-1", updated_at=naive(nova.now))
    assert own not in poll.wishes("reported")
    assert poll.cell.silent() == [other]


def test_a_node_whose_agent_has_left_is_read_again_though_nothing_has_changed_in_the_databases(
    nova: NovaDatabases, poll: Poll
) -> None:
    own = nova.node("cmp-1")
    assert poll.wishes("node_list") == [own]
    (seen,) = poll.cell.seen([own])
    poll.cell.was_read(seen)
    assert poll.wishes("records") == []
    # when an agent speaks for it, which changes its row, and leaves
    poll.spoken_for.add(own)
    assert poll.wishes("records") == []
    poll.spoken_for.discard(own)
    # then
    assert poll.wishes("records") == [own]


def test_a_node_that_reported_is_read_twice_and_then_left_alone(nova: NovaDatabases, poll: Poll) -> None:
    own = nova.node("cmp-1")
    for ask in ("node_list", "reported", "reported"):
        poll.wishes(ask)
    assert poll.wishes("reported") == []
    nova.now += timedelta(seconds=10)
    nova.change(models.ComputeNode, "cmp-1", updated_at=naive(nova.now))
    assert [poll.wishes("reported") for _ in range(4)] == [[own], [own], [], []]


@pytest.mark.parametrize("before", [True, False], ids=["before the start", "later"])
def test_a_report_by_a_clock_that_is_fast_does_not_hide_those_of_other_nodes(
    nova: NovaDatabases, poll: Poll, before: bool
) -> None:
    own, _ = nova.node("cmp-1"), nova.node("cmp-2")
    if not before:
        poll.wishes("reported")
    # given a report that a nova-conductor has written whose clock was an hour ahead
    nova.change(models.ComputeNode, "cmp-2", updated_at=naive(nova.now + timedelta(hours=1)))
    for ask in ("node_list", "reported", "reported", "reported"):
        poll.wishes(ask)
    # when another node reports, some seconds after the last read
    nova.now += timedelta(seconds=4)
    nova.change(models.ComputeNode, "cmp-1", updated_at=naive(nova.now))
    nova.now += timedelta(seconds=4)
    # then it is read, and the first one is not read for ever
    assert [poll.wishes("reported") for _ in range(3)] == [[own], [own], []]


def test_a_fleet_with_agents_everywhere_is_not_asked_for_changes(
    nova: NovaDatabases, poll: Poll, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll.spoken_for.add(nova.node("cmp-1"))
    poll.wishes("node_list")
    asked: list[Any] = []
    monkeypatch.setattr(poll.cell.database, "nodes_changed_since", asked.append)
    poll.wishes("reported")
    assert asked == []


# -- builds --------------------------------------------------------------------------------------


def test_builds_that_could_not_be_read_are_read_by_the_repetition(poll: Poll, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a server whose build is to be read while the database does not answer
    stands = (BuildRead("server-1", BuildState.UNDER_WAY),)
    answers: list[Exception | tuple[BuildRead, ...]] = [DatabaseError("away"), stands]
    asked: list[dict[str, float]] = []

    def builds(servers: Mapping[str, float], _hosts: Any) -> tuple[BuildRead, ...]:
        asked.append(dict(servers))
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(poll.cell.database, "builds", builds)
    poll.cell.want_build("server-1", 15.0)
    with pytest.raises(DatabaseError):
        list(poll.cell.builds())
    # when another one is wanted, and the read is repeated
    poll.cell.want_build("server-2", 15.0)
    # then it reads both, once
    assert list(poll.cell.builds()) == [BuildsRead(stands)]
    assert asked == [{"server-1": 15.0}, {"server-1": 15.0, "server-2": 15.0}]
    assert list(poll.cell.builds()) == []
