# SPDX-License-Identifier: Apache-2.0
"""Changes that no message announces are read before a decision."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nova.db.main import models

from shared_scheduler.core.events import NodeRead, NodesGone, NodesListed, ServicesRead
from shared_scheduler.sync import placement_reads
from shared_scheduler.sync.databases import DatabaseError
from shared_scheduler.sync.decision_reads import DecisionReads
from shared_scheduler.sync.fleet import KnownNodes
from shared_scheduler.sync.read_registry import NODE_LIST, RETRY_MOST_S, SERVICES, SOURCES
from shared_scheduler.sync.refusal_ages import REFUSALS_BURST
from shared_scheduler.sync.revalidator import Revalidator
from tests.unit.placement.conftest import placement_app, world
from tests.unit.placement.real_placement import World, in_trouble
from tests.unit.sync.nova_databases import NovaDatabases
from tests.unit.sync.one_cell import Site

WAIT_S = 60.0


class Waiting:
    """One cell of several, whose database answers when all of them have been asked."""

    nodes: frozenset[str] = frozenset({"node"})

    def __init__(self, cell: str, all_asked: threading.Barrier) -> None:
        self.cell = cell
        self.asked: list[str] = []
        self._all_asked = all_asked

    def ask(self, what: str) -> list[Any]:
        self._all_asked.wait(WAIT_S)
        self.asked.append(what)
        return [ServicesRead(self.cell, (), complete=False)]

    def silent(self) -> list[str]:
        return []


@pytest.fixture
def nova(tmp_path: Path) -> NovaDatabases:
    return NovaDatabases(tmp_path)


@pytest.fixture
def site(nova: NovaDatabases, world: World) -> Site:
    return Site(nova, world, nodes_max=2)


def nodes_read(heard: list[Any]) -> list[str]:
    return sorted(event.node for event in heard if isinstance(event, NodeRead))


def test_a_compute_that_was_forced_down_is_known_down_at_the_next_decision(
    nova: NovaDatabases,
    world: World,
    site: Site,
) -> None:
    site.agent(nova.compute("cmp-1", world.provider()))
    site.decide()
    assert site.decide() == []

    nova.change(models.Service, "cmp-1", forced_down=True)

    [event] = site.decide()
    assert isinstance(event, ServicesRead)
    assert [(one.host, one.forced_down) for one in event.services] == [("cmp-1", True)]


def test_a_request_for_which_something_is_written_does_not_wait_for_the_services(
    nova: NovaDatabases,
    world: World,
    site: Site,
) -> None:
    site.agent(nova.compute("cmp-1", world.provider()))
    site.decide()
    nova.change(models.Service, "cmp-1", forced_down=True)
    assert site.decide(writes=True) == []


def test_a_host_without_an_agent_is_read_when_it_has_changed_and_only_then(
    nova: NovaDatabases,
    world: World,
    site: Site,
) -> None:
    own = nova.compute("cmp-1", world.provider())
    site.refuse()
    assert nodes_read(site.decide()) == []

    nova.change(models.ComputeNode, "cmp-1", vcpus_used=5)
    [event] = site.decide()
    assert (event.node, event.leaves["cn.vcpus_used"]) == (own, 5)

    instance = nova.instance("cmp-1")
    [event] = site.decide()
    assert event.members == {instance}
    assert site.decide() == []


def test_writes_of_others_to_placement_are_known_at_the_next_decision(
    nova: NovaDatabases,
    world: World,
    site: Site,
) -> None:
    own = nova.compute("cmp-1", world.provider())
    site.refuse()
    site.decide()

    world.set(own, "traits", ["HW_CPU_X86_AVX2"])

    [event] = site.decide()
    assert event.leaves[f"rp.{own}"]["traits"] == ["HW_CPU_X86_AVX2"]


def test_a_host_with_an_agent_is_not_read(nova: NovaDatabases, world: World, site: Site) -> None:
    site.agent(nova.compute("cmp-1", world.provider()))
    other = nova.compute("cmp-2", world.provider())
    site.refuse()
    nova.change(models.ComputeNode, "cmp-1", vcpus_used=5)
    nova.change(models.ComputeNode, "cmp-2", vcpus_used=5)
    assert nodes_read(site.decide()) == [other]


def test_where_all_nodes_have_an_agent_no_decision_and_no_refusal_asks_placement(
    nova: NovaDatabases,
    world: World,
    site: Site,
) -> None:
    # given a small cloud that has been read
    own = site.agent(nova.compute("cmp-1", world.provider()))
    site.refuse()
    # when servers come, which changes the generations of its providers, and somebody writes a trait
    world.take(nova.instance("cmp-1"), {own: {"VCPU": 1}})
    world.set(own, "traits", ["HW_CPU_X86_AVX2"])
    world.http.calls.clear()
    # then nobody waits for a read of Placement
    assert site.decide() == []
    assert not site.refuse()
    assert world.http.calls == []


@pytest.mark.parametrize("hosts", [2, 4])
def test_where_all_nodes_have_an_agent_a_decision_that_writes_waits_for_no_read(
    nova: NovaDatabases,
    world: World,
    site: Site,
    hosts: int,
) -> None:
    # given a small cloud, and one with more nodes than are read for a decision
    for number in range(hosts):
        site.agent(nova.compute(f"cmp-{number}", world.provider()))
    site.refuse()
    world.http.calls.clear()
    before = site.reads()
    # when servers are requested
    for _ in range(3):
        assert site.decide(writes=True) == []
    # then neither database nor Placement has been read
    assert site.reads() == before
    assert world.http.calls == []


def test_a_new_compute_whose_agent_has_spoken_is_read_before_the_next_decision(
    nova: NovaDatabases,
    world: World,
    site: Site,
) -> None:
    # given a cloud in which all nodes have an agent
    site.agent(nova.compute("cmp-1", world.provider()))
    site.refuse()
    # when a compute is added, and the core hears its agent
    new = site.agent(nova.compute("cmp-2", world.provider()))
    site.unlisted.add(new)
    # then the next decision knows it, and the one after that waits for nothing
    [event] = site.decide(writes=True)
    assert isinstance(event, NodesListed)
    assert new in event.hosts
    site.unlisted.clear()
    before = site.reads()
    assert site.decide(writes=True) == []
    assert site.reads() == before


def test_where_many_have_no_agent_they_are_left_to_the_poller(
    nova: NovaDatabases,
    world: World,
    site: Site,
) -> None:
    for number in range(3):
        nova.compute(f"cmp-{number}", world.provider())
    assert site.refuse()
    nova.change(models.ComputeNode, "cmp-1", vcpus_used=5)
    assert site.decide() == []


def test_in_a_large_cloud_a_host_without_an_agent_causes_no_read_of_the_others(
    nova: NovaDatabases,
    world: World,
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given more hosts than are looked at, of which one has no agent
    monkeypatch.setattr(placement_reads, "PROVIDERS_A_TREE", 2)
    spoken_for = [site.agent(nova.compute(f"cmp-{number}", world.provider())) for number in range(4)]
    silent = nova.compute("cmp-silent", world.provider())
    site.refuse()
    assert nodes_read(site.heard) == [silent]
    # when others write to all of them
    for node in (*spoken_for, silent):
        world.set(node, "traits", ["HW_CPU_X86_AVX2"])
    world.http.urls.clear()
    # then Placement is asked about that one only
    assert [event.node for event in site.decide()] == [silent]
    assert world.http.urls and all(silent in url for url in world.http.urls)


def test_in_a_large_cloud_several_hosts_without_an_agent_are_seen_to_move_in_one_call(
    nova: NovaDatabases,
    world: World,
    site: Site,
) -> None:
    spoken_for = [site.agent(nova.compute(f"cmp-{number}", world.provider())) for number in range(4)]
    silent = {nova.compute(f"cmp-silent-{number}", world.provider()) for number in range(2)}
    site.refuse()
    moved = max(silent)
    for node in (*spoken_for, moved):
        world.set(node, "traits", ["HW_CPU_X86_AVX2"])
    world.http.urls.clear()
    assert [event.node for event in site.decide()] == [moved]
    assert world.http.urls.count("/resource_providers") == 1
    assert not any(node in url for node in spoken_for for url in world.http.urls)


def test_before_no_leaves_new_computes_are_found_and_gone_ones_forgotten(
    nova: NovaDatabases,
    world: World,
    site: Site,
) -> None:
    site.refuse()
    assert not site.refuse()
    own = nova.compute("cmp-1", world.provider())
    assert site.refuse()
    assert nodes_read(site.heard) == [own]
    nova.change(models.ComputeNode, "cmp-1", deleted=1)
    assert site.refuse()
    assert NodesGone(nova.cell_uuid, frozenset({own})) in site.heard


def test_a_cell_that_does_not_answer_holds_up_one_request_and_not_the_next(
    nova: NovaDatabases,
    world: World,
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nova.compute("cmp-1", world.provider())
    asked: list[float] = []

    def away(*_: Any) -> Any:
        asked.append(site.now_s)
        raise DatabaseError("cell1 is away")

    with monkeypatch.context() as outage:
        outage.setattr(site.cell, "services", away)
        for _ in range(3):
            site.decide()
    assert len(asked) == 1

    # when it answers again, the next poll learns what has changed, and decisions wait for it as before
    site.now_s += RETRY_MOST_S
    site.poll()
    assert [type(event) for event in site.heard][:1] == [ServicesRead]
    nova.change(models.Service, "cmp-1", disabled=True)
    # and for its other sources, which nobody asked meanwhile
    assert [type(event) for event in site.decide()] == [ServicesRead, NodeRead]


def test_cells_are_asked_side_by_side() -> None:
    # given cells of which none answers before all of them have been asked
    all_asked = threading.Barrier(3)
    cells = {f"cell-{number}": Waiting(f"cell-{number}", all_asked) for number in range(3)}
    fleet = KnownNodes(0, time.monotonic)
    fleet.cells = cells  # type: ignore[assignment]
    quiet = [replace(each, poll_s=None) for each in SOURCES]  # nobody but the decisions asks them
    revalidator = Revalidator(lambda event: None, sources=quiet, max_wait_s=WAIT_S)
    revalidator.provide({
        SERVICES: lambda key, _: cells[key[0]].ask(SERVICES),
        NODE_LIST: lambda key, _: cells[key[0]].ask(NODE_LIST),
    })  # fmt: skip
    revalidator.start()
    for cell in cells:
        revalidator.add_cell(cell)
    decision_reads = DecisionReads(revalidator, fleet, time.monotonic)

    decision_reads.before_decision(writes=False)
    decision_reads.before_no()

    revalidator.stop()
    assert [cell.asked[:3] for cell in cells.values()] == [[SERVICES, SERVICES, NODE_LIST]] * 3
    assert revalidator.news >= 9


def test_a_mistake_in_a_read_costs_no_request(
    nova: NovaDatabases, site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> bool:
        raise RuntimeError("a bug")

    monkeypatch.setattr(site.cell, "services", broken)
    assert site.decide() == []
    assert "a bug" in caplog.text


# -- what must not be missed -----------------------------------------------------------------------


def test_a_change_during_a_read_is_newer_than_what_was_read(
    nova: NovaDatabases,
    world: World,
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a database that takes two seconds
    nova.compute("cmp-1", world.provider())
    read = site.cell.database.nodes

    def slowly(*nodes: Any) -> Any:
        found = read(*nodes)
        site.now_s += 2.0
        return found

    monkeypatch.setattr(site.cell.database, "nodes", slowly)
    # when its node is read
    site.refuse()
    # then the row is as old as the beginning of the read
    [event] = [event for event in site.heard if isinstance(event, NodeRead)]
    assert site.now_s - event.read_at_s >= 2.0


def test_a_change_counts_as_read_only_when_placement_has_answered(
    nova: NovaDatabases,
    world: World,
    site: Site,
) -> None:
    # given a record that changes while Placement is away
    own = nova.compute("cmp-1", world.provider())
    site.refuse()
    nova.change(models.ComputeNode, "cmp-1", vcpus_used=5)
    world.http.faults = [in_trouble] * 2
    assert nodes_read(site.decide()) == []
    # when it is back
    world.http.faults.clear()
    site.now_s += RETRY_MOST_S
    site.poll()
    # then the change is read
    assert own in nodes_read(site.heard)


def test_a_node_is_read_again_after_its_agent_has_started_and_stopped(
    nova: NovaDatabases,
    world: World,
    site: Site,
) -> None:
    # given a node that was read, and whose agent has changed the row since
    own = nova.compute("cmp-1", world.provider())
    site.refuse()
    assert nodes_read(site.decide()) == []
    site.agent(own)
    site.decide()
    # when the agent is gone, and nothing else has changed
    site.spoken_for.clear()
    # then it is read
    assert nodes_read(site.decide()) == [own]


def test_a_request_that_is_decided_twice_has_its_time_once(
    nova: NovaDatabases,
    world: World,
    site: Site,
) -> None:
    # given a host that comes while a request, which takes 7 s to find nothing, is decided
    within_s: list[float] = []

    def decide(timeout_s: float) -> str:
        nova.compute(f"cmp-{len(within_s)}", world.provider())
        within_s.append(timeout_s)
        site.now_s += 7.0
        return "no"

    # when it has 10 s, it is decided again in the 3 s that are left; when it has 5 s, it is not
    assert site.sync.decision_reads.deciding(decide, lambda outcome: outcome == "no", 10.0, writes=True) == "no"
    assert within_s == [10.0, 3.0]
    site.sync.decision_reads.deciding(decide, lambda outcome: outcome == "no", 5.0, writes=True)
    assert within_s == [10.0, 3.0, 5.0]


def test_a_storm_of_refusals_reads_the_list_of_nodes_about_once_a_second(
    nova: NovaDatabases,
    world: World,
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given many nodes, whose list takes 30 ms to read
    nova.compute("cmp-1", world.provider())
    asked: list[float] = []
    read = site.cell.database.node_hosts

    def slowly() -> frozenset[str]:
        asked.append(site.now_s)
        site.now_s += 0.03
        return read()

    monkeypatch.setattr(site.cell.database, "node_hosts", slowly)
    # when 60 requests a second are refused
    begun_s = site.now_s
    while site.now_s < begun_s + 10.0:
        site.now_s += 1 / 60
        site.sync.decision_reads.before_no()
    # then the first ones are checked each by a read of its own, and then they share one a second
    assert len(asked) <= 10.0 + REFUSALS_BURST + 1
    # and when it is over, each is checked again
    for _ in range(3):
        site.now_s += 10.0
        before = len(asked)
        site.sync.decision_reads.before_no()
        assert len(asked) == before + 1
