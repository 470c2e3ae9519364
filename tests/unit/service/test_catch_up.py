# SPDX-License-Identifier: Apache-2.0
"""What nobody tells is looked for at the moment of a decision."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from nova.db.main import models

from shared_scheduler.core.events import NodeDoubted, NodeRead, NodesGone, ServicesRead
from shared_scheduler.placement.mirror import PlacementMirror
from shared_scheduler.service import catch_up
from shared_scheduler.service.catch_up import AGENT_LOOKS_S, LEFT_ALONE_S, CatchUp, SharedLook
from shared_scheduler.service.databases import DatabaseError
from shared_scheduler.service.poller import CellPoll
from tests.unit.placement.conftest import placement_app, world  # noqa: F401 (fixtures)
from tests.unit.placement.world import World
from tests.unit.service.nova_databases import NovaDatabases

WAIT_S = 60.0


class Waiting:
    """One cell of several, whose database answers when all of them have been asked."""

    nodes: frozenset[str] = frozenset({"node"})

    def __init__(self, cell: str, all_asked: threading.Barrier) -> None:
        self.cell = cell
        self.asked: list[str] = []
        self._all_asked = all_asked

    def exceptions(self) -> bool:
        return self._ask("exceptions")

    def node_list(self) -> bool:
        return self._ask("node_list")

    def _ask(self, what: str) -> bool:
        self._all_asked.wait(WAIT_S)
        self.asked.append(what)
        return True

    def silent_nodes(self) -> list[str]:
        return []


class Site:
    """One cell, whose scheduler hears what the catching up says."""

    def __init__(self, nova: NovaDatabases, world: World) -> None:  # noqa: F811
        self.nova = nova
        self.heard: list[Any] = []
        self.spoken_for: set[str] = set()
        self.rows: dict[str, Any] = {}
        self.deaf: set[str] = set()
        self.mirror = PlacementMirror(world.client)
        self.now_s = 100.0
        self.poll = CellPoll(
            nova.cell(), self.heard.append, lambda _cell, _node: None, self.speaks_for
        )
        self.catch_up = self.of(world, nodes_max=2)

    def of(self, world: World, nodes_max: int) -> CatchUp:  # noqa: F811
        return CatchUp(
            PlacementMirror(world.client), lambda: {self.nova.cell_uuid: self.poll},
            self.hear, lambda node: self.rows[node], self.speaks_for, self.clock, nodes_max,
        )  # fmt: skip

    def clock(self) -> float:
        """Time passes while an agent that is deaf is waited for."""
        self.now_s += AGENT_LOOKS_S / 4 if self.deaf else 0.0
        return self.now_s

    def speaks_for(self, node: str) -> bool:
        return node in self.spoken_for

    def agent(self, node: str) -> str:
        """This node has an agent, which has looked into Placement."""
        self.spoken_for.add(node)
        self.rows[node] = self.mirror.read(node).leaves
        return node

    def hear(self, event: Any) -> None:
        self.heard.append(event)
        if isinstance(event, NodeDoubted) and event.node not in self.deaf:
            self.agent(event.node)

    def decide(self) -> list[Any]:
        """A request comes some time later; what is heard before it is decided."""
        self.now_s += 1.5
        self.heard.clear()
        self.catch_up.before_decision()
        return list(self.heard)

    def refuse(self) -> bool:
        """A request has no host; whether there is reason to decide it again."""
        self.now_s += 1.5
        self.heard.clear()
        known = self.catch_up.news
        self.catch_up.before_no()
        return self.catch_up.news != known


@pytest.fixture
def nova(tmp_path: Path) -> NovaDatabases:
    return NovaDatabases(tmp_path)


@pytest.fixture
def site(nova: NovaDatabases, world: World) -> Site:  # noqa: F811
    return Site(nova, world)


def nodes_read(heard: list[Any]) -> list[str]:
    return sorted(event.node for event in heard if isinstance(event, NodeRead))


def test_a_compute_that_was_forced_down_is_known_down_at_the_next_decision(
    nova: NovaDatabases, world: World, site: Site  # noqa: F811
) -> None:
    site.agent(nova.compute("cmp-1", world.provider()))
    site.decide()
    assert site.decide() == []

    nova.change(models.Service, "cmp-1", forced_down=True)

    [event] = site.decide()
    assert isinstance(event, ServicesRead)
    assert [(one.host, one.forced_down) for one in event.services] == [("cmp-1", True)]


def test_a_host_without_an_agent_is_read_when_it_has_changed_and_only_then(
    nova: NovaDatabases, world: World, site: Site  # noqa: F811
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


def test_what_others_write_to_placement_is_known_at_the_next_decision(
    nova: NovaDatabases, world: World, site: Site  # noqa: F811
) -> None:
    own = nova.compute("cmp-1", world.provider())
    site.refuse()
    site.decide()

    world.set(own, "traits", ["HW_CPU_X86_AVX2"])

    [event] = site.decide()
    assert event.leaves[f"rp.{own}"]["traits"] == ["HW_CPU_X86_AVX2"]


def test_a_host_with_an_agent_is_not_read(nova: NovaDatabases, world: World, site: Site) -> None:  # noqa: F811
    site.agent(nova.compute("cmp-1", world.provider()))
    other = nova.compute("cmp-2", world.provider())
    site.refuse()
    nova.change(models.ComputeNode, "cmp-1", vcpus_used=5)
    nova.change(models.ComputeNode, "cmp-2", vcpus_used=5)
    assert nodes_read(site.decide()) == [other]


def test_an_agent_looks_when_others_have_written_to_its_providers(
    nova: NovaDatabases, world: World, site: Site  # noqa: F811
) -> None:
    own = site.agent(nova.compute("cmp-1", world.provider()))
    site.refuse()
    site.decide()
    world.set(own, "traits", ["HW_CPU_X86_AVX2"])
    assert [type(event) for event in site.decide()] == [NodeDoubted]
    assert site.rows[own][f"rp.{own}"]["traits"] == ["HW_CPU_X86_AVX2"]


def test_a_tree_that_has_grown_is_read_by_its_agent_alone(
    nova: NovaDatabases, world: World, site: Site  # noqa: F811
) -> None:
    # given somebody who has put a provider below an agent's node
    own = site.agent(nova.compute("cmp-1", world.provider()))
    site.refuse()
    site.decide()
    child = world.provider(parent=own)
    world.http.calls.clear()
    # when
    assert [type(event) for event in site.decide()] == [NodeDoubted]
    # then the row has it, and it was not read twice for that
    assert f"rp.{child}" in site.rows[own]
    assert world.http.calls.count(("GET", f"/resource_providers/{child}/inventories")) == 1


def test_an_agent_that_does_not_look_holds_up_one_decision_and_not_the_next(
    nova: NovaDatabases, world: World, site: Site  # noqa: F811
) -> None:
    own = site.agent(nova.compute("cmp-1", world.provider()))
    site.deaf.add(own)
    site.refuse()
    site.decide()
    for trait in ("HW_CPU_X86_AVX2", "HW_CPU_X86_AVX512F"):
        world.set(own, "traits", [trait])
        site.decide()
    assert site.heard == []


def test_an_agent_whose_providers_were_only_taken_from_is_left_alone(
    nova: NovaDatabases, world: World, site: Site  # noqa: F811
) -> None:
    own = site.agent(nova.compute("cmp-1", world.provider()))
    site.refuse()
    site.decide()
    world.take(nova.instance("cmp-1"), {own: {"VCPU": 1}})
    assert site.decide() == []


def test_where_many_have_no_agent_they_are_left_to_the_poller(
    nova: NovaDatabases, world: World, site: Site  # noqa: F811
) -> None:
    for number in range(3):
        nova.compute(f"cmp-{number}", world.provider())
    assert site.refuse()
    nova.change(models.ComputeNode, "cmp-1", vcpus_used=5)
    assert site.decide() == []


def test_in_a_large_cloud_a_host_without_an_agent_costs_no_look_at_the_others(
    nova: NovaDatabases, world: World, site: Site, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    # given more hosts than are looked at, of which one has no agent
    monkeypatch.setattr(catch_up, "PROVIDERS_A_TREE", 2)
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
    nova: NovaDatabases, world: World, site: Site  # noqa: F811
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
    nova: NovaDatabases, world: World, site: Site  # noqa: F811
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
    nova: NovaDatabases, world: World, site: Site, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    nova.compute("cmp-1", world.provider())
    asked: list[float] = []

    def away(*_: Any) -> Any:
        asked.append(site.now_s)
        raise DatabaseError("cell1 is away")

    with monkeypatch.context() as outage:
        outage.setattr(site.poll, "exceptions", away)
        for _ in range(3):
            site.decide()
    assert len(asked) == 1

    site.now_s += LEFT_ALONE_S
    assert [type(event) for event in site.decide()][:1] == [ServicesRead]


def test_cells_are_asked_side_by_side(world: World) -> None:  # noqa: F811
    # given cells of which none answers before all of them have been asked
    all_asked = threading.Barrier(3)
    polls = [Waiting(f"cell-{number}", all_asked) for number in range(3)]
    found = CatchUp(
        PlacementMirror(world.client), lambda: {poll.cell: poll for poll in polls},  # type: ignore[misc]
        lambda event: None, lambda node: {}, lambda node: False, time.monotonic, nodes_max=0,
    )  # fmt: skip

    found.before_decision()
    found.before_no()

    assert [poll.asked for poll in polls] == [["exceptions", "exceptions", "node_list"]] * 3
    assert found.news == 9


def test_a_mistake_in_a_look_costs_no_request(
    nova: NovaDatabases, site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> bool:
        raise RuntimeError("a bug")

    monkeypatch.setattr(site.poll, "exceptions", broken)
    assert site.decide() == []
    assert "a bug" in caplog.text


def test_requests_that_come_together_share_a_look_that_began_after_all_of_them() -> None:
    begun, go_on = threading.Semaphore(0), threading.Semaphore(0)
    looks: list[int] = []

    def look() -> None:
        looks.append(len(looks))
        begun.release()
        assert go_on.acquire(timeout=WAIT_S)

    shared = SharedLook(look, lambda: float(len(looks)))
    first = threading.Thread(target=shared.take)
    first.start()
    assert begun.acquire(timeout=WAIT_S)
    late = [threading.Thread(target=shared.take) for _ in range(5)]
    for thread in late:
        thread.start()
    while shared.waiting < 5:
        time.sleep(0.01)

    go_on.release()
    assert begun.acquire(timeout=WAIT_S)
    go_on.release()
    for thread in (first, *late):
        thread.join(WAIT_S)

    assert not any(thread.is_alive() for thread in (first, *late))
    assert looks == [0, 1]


def test_a_look_that_fails_frees_those_who_wait() -> None:
    answers = iter([RuntimeError("a bug"), None])
    done = []

    def look() -> None:
        answer = next(answers)
        if answer is not None:
            raise answer
        done.append(True)

    shared = SharedLook(look, lambda: 0.0)
    with pytest.raises(RuntimeError):
        shared.take()
    shared.take()
    assert done == [True]


def test_a_look_that_hangs_holds_up_one_request_and_not_those_that_come_meanwhile() -> None:
    begun, answer = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        assert answer.wait(WAIT_S)

    # given a look at a source that does not answer
    shared = SharedLook(hang, time.monotonic, patience_s=0.05)
    first = threading.Thread(target=shared.take)
    first.start()
    assert begun.wait(WAIT_S)
    # when others come
    late = [threading.Thread(target=shared.take, daemon=True) for _ in range(3)]
    for thread in late:
        thread.start()
    for thread in late:
        thread.join(WAIT_S / 2)
    # then they go on without it, and who looks still waits
    assert not any(thread.is_alive() for thread in late)
    assert first.is_alive() and shared.waiting == 0
    answer.set()
    first.join(WAIT_S)
    assert not first.is_alive()


def test_a_request_that_is_decided_twice_has_its_time_once(
    nova: NovaDatabases, world: World, site: Site  # noqa: F811
) -> None:
    # given a host that comes while a request, which takes 7 s to find nothing, is decided
    within_s: list[float] = []

    def decide(timeout_s: float) -> str:
        nova.compute(f"cmp-{len(within_s)}", world.provider())
        within_s.append(timeout_s)
        site.now_s += 7.0
        return "no"

    # when it has 10 s, it is decided again in the 3 s that are left; when it has 5 s, it is not
    assert site.catch_up.deciding(decide, lambda outcome: outcome == "no", 10.0) == "no"
    assert within_s == [10.0, 3.0]
    site.catch_up.deciding(decide, lambda outcome: outcome == "no", 5.0)
    assert within_s == [10.0, 3.0, 5.0]
