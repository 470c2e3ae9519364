# SPDX-License-Identifier: Apache-2.0
"""Questions for single hosts, put together, return the same as a question for the whole cloud."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable
from typing import Any

import pytest

from shared_scheduler.core.effects import AskCandidates
from shared_scheduler.core.events import Candidate
from shared_scheduler.model.providers import SHARING_TRAIT, Provider
from shared_scheduler.model.resources import Inventory
from shared_scheduler.placement.mirror import PlacementMirror
from shared_scheduler.placement.questions import PlacementQuestions, divisions, needs_whole_cloud
from tests.unit.placement.real_placement import World

Canonical = set[tuple[frozenset[tuple[str, str, int]], frozenset[tuple[str, frozenset[str]]]]]

Sharing = tuple[Provider, ...]

CLOUDS = 3
QUERIES = 6
TRAITS = ("STORAGE_DISK_SSD", "STORAGE_DISK_HDD", "HW_CPU_X86_AVX")


def canonical(candidates: Any) -> Canonical:
    return {
        (
            frozenset((rp, rc, n) for rp, part in one.allocations.items() for rc, n in part.items()),
            frozenset((name, frozenset(rps)) for name, rps in one.mappings.items()),
        )
        for one in candidates
    }


@pytest.fixture
def questions(world: World) -> PlacementQuestions:
    return PlacementQuestions(world.client, lambda group: frozenset(), lambda *_: {})


def ours(questions: PlacementQuestions, node: str, query: str, sharing: Sharing) -> Canonical:
    answer = questions.answer(AskCandidates("ask", node, (query,), "", sharing))
    assert answer.error == ""
    return canonical(answer.candidates)  # type: ignore[union-attr]


def sharing_with(world: World, node: str) -> Sharing:
    """What the table finds: sharing providers with an aggregate of the node's tree."""
    listed = world.client.providers(in_tree=node)
    tree = [one.uuid for one in listed]
    aggregates = {name for one in listed for name in world.client.provider(one).aggregates}
    found = PlacementMirror(world.client).sharing()
    return tuple(one for rp, one in found.items() if rp not in tree and one.aggregates & aggregates)


def stocks(world: World, query: str, nodes: Iterable[str]) -> dict[str, Canonical]:
    """By host, of one question for all of them."""
    found = world.client.candidates(query).requests
    return {node: canonical(one for one in found if node in one.allocations) for node in nodes}


class Cloud:
    """Hosts with or without a disk, pools, and children with devices, at random."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.rng = rng
        self.aggregates = [str(uuid.uuid4()) for _ in range(3)]
        self.pools = [self._pool(world) for _ in range(rng.randint(1, 3))]
        self.nodes = [self._node(world) for _ in range(4)]

    def _some(self, names: Any) -> tuple[str, ...]:
        return tuple(one for one in names if self.rng.random() < 0.5)

    def _pool(self, world: World) -> str:
        held = {"DISK_GB": {"total": 100, "max_unit": self.rng.choice([5, 50, 100]),
                            "step_size": self.rng.choice([1, 1, 5])}}  # fmt: skip
        return world.provider(
            inventories=held, traits=(SHARING_TRAIT, *self._some(TRAITS)),
            aggregates=self._some(self.aggregates),
        )  # fmt: skip

    def _node(self, world: World) -> str:
        held: dict[str, Any] = {"VCPU": {"total": 8}, "MEMORY_MB": {"total": 4096}}
        if self.rng.random() < 0.4:
            held["DISK_GB"] = {"total": 20}
        node = world.provider(inventories=held, traits=self._some(TRAITS), aggregates=self._some(self.aggregates))
        for _ in range(self.rng.randint(0, 2)):
            world.provider(parent=node, inventories={"VGPU": {"total": 1}},
                           aggregates=self._some(self.aggregates))  # fmt: skip
        return node

    def query(self) -> str:
        """As Nova words them; the unnumbered group always asks of the root."""
        rng = self.rng
        parts = [f"resources=VCPU:1,MEMORY_MB:64,DISK_GB:{rng.choice([1, 7, 10, 30])}"]
        if traits := self._some(TRAITS)[:2]:
            parts.append("required=" + ",".join(rng.choice(["", "!"]) + one for one in traits))
        if rng.random() < 0.5:
            parts.append("member_of=in:" + ",".join(rng.sample(self.aggregates, 2)))
        if rng.random() < 0.2:
            parts.append("member_of=!in:" + rng.choice(self.aggregates))
        if rng.random() < 0.3:
            parts.append("resources_gpu=VGPU:1&group_policy=none")
        if rng.random() < 0.2:
            parts.append(f"root_required={rng.choice(TRAITS)}")
        return "&".join(parts)


@pytest.mark.parametrize("seed", range(CLOUDS))
def test_the_same_candidates_as_placement_for_the_whole_cloud(
    world: World, questions: PlacementQuestions, seed: int
) -> None:
    cloud = Cloud(world, random.Random(seed))
    sharing = {node: sharing_with(world, node) for node in cloud.nodes}
    shared = 0
    for query in [cloud.query() for _ in range(QUERIES)]:
        for node, wanted in stocks(world, query, cloud.nodes).items():
            found = ours(questions, node, query, sharing[node])
            assert found == wanted, (seed, query)
            shared += any(rp in cloud.pools for rows, _ in found for rp, _, _ in rows)
    assert shared, "no pool gave anything: the cloud tests nothing"


def test_a_numbered_group_from_a_pool_is_asked_of_the_whole_cloud(world: World, questions: PlacementQuestions) -> None:
    aggregate = str(uuid.uuid4())
    node = world.provider(aggregates=(aggregate,))
    world.provider(inventories={"DISK_GB": {"total": 100}}, traits=(SHARING_TRAIT,),
                   aggregates=(aggregate,))  # fmt: skip
    query = "resources=VCPU:1&resources1=DISK_GB:10"
    sharing = sharing_with(world, node)
    assert needs_whole_cloud(query, sharing)
    found = ours(questions, node, query, sharing)
    assert found and found == stocks(world, query, [node])[node]


def test_an_unnumbered_group_that_a_pool_gives_alone_beside_numbered_ones(
    world: World, questions: PlacementQuestions
) -> None:
    """A flavor with ``resources1:VCPU`` and ``resources:VCPU=0`` leaves the disk in the unnumbered group."""
    aggregate = str(uuid.uuid4())
    node = world.provider(aggregates=(aggregate,))
    world.provider(inventories={"DISK_GB": {"total": 100}}, traits=(SHARING_TRAIT, "STORAGE_DISK_SSD"),
                   aggregates=(aggregate,))  # fmt: skip
    query = "resources=DISK_GB:10&required=STORAGE_DISK_SSD&resources1=VCPU:1"
    found = ours(questions, node, query, sharing_with(world, node))
    assert found and found == stocks(world, query, [node])[node]


def pool(name: str, *traits: str) -> Provider:
    return Provider(
        name, inventories={"DISK_GB": Inventory(100)}, traits=frozenset({SHARING_TRAIT, *traits}),
        aggregates=frozenset({"a"}),
    )  # fmt: skip


def test_where_nothing_is_shared_nothing_is_divided() -> None:
    assert list(divisions("resources=VCPU:1,DISK_GB:10", ())) == []
    assert not needs_whole_cloud("resources=VCPU:1&resources1=VGPU:1", ())


def test_a_trait_of_the_pool_need_not_be_the_hosts() -> None:
    query = "resources=VCPU:1,DISK_GB:10&required=STORAGE_DISK_SSD,HW_CPU_X86_AVX"
    (one,) = divisions(query, [pool("p", "STORAGE_DISK_SSD")])
    assert one.query == "resources=VCPU:1&required=HW_CPU_X86_AVX"
    assert one.given == {"p": {"DISK_GB": 10}}


def test_both_parts_make_one_candidate() -> None:
    (one,) = divisions("resources=VCPU:1,DISK_GB:10", [pool("p")])
    whole = one.candidate(Candidate({"n": {"VCPU": 1}}, {"": ("n",), "_gpu": ("g",)}))
    assert whole.allocations == {"n": {"VCPU": 1}, "p": {"DISK_GB": 10}}
    assert whole.mappings == {"": ("n", "p"), "_gpu": ("g",)}
