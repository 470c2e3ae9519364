# SPDX-License-Identifier: Apache-2.0
"""Provider trees as an agent would publish them, read again only where something changed."""

from __future__ import annotations

import uuid

from shared_scheduler.model.providers import SHARING_TRAIT
from shared_scheduler.placement.mirror import SUM_OF, PlacementMirror
from tests.unit.placement.real_placement import World


def gets(world: World) -> list[str]:
    return [path.rsplit("/", 1)[-1] for method, path in world.http.calls if method == "GET"]


def test_a_tree_in_the_shape_of_leaves(world: World) -> None:
    aggregate = str(uuid.uuid4())
    node = world.provider(
        inventories={"VCPU": {"total": 8, "allocation_ratio": 4.0, "reserved": 1}},
        traits=("HW_CPU_X86_AVX", "COMPUTE_NODE"), aggregates=(aggregate,),
    )  # fmt: skip
    gpu = world.provider(parent=node, inventories={"VGPU": {"total": 2, "max_unit": 1}})
    instance = str(uuid.uuid4())
    world.take(instance, {node: {"VCPU": 2}, gpu: {"VGPU": 1}})
    tree = PlacementMirror(world.client).read(node)
    assert tree.leaves[f"rp.{node}"] == {
        "name": f"node-{node}", "parent": None, "generation": world.generation(node),
        "inventories": {"VCPU": [8, 1, 1, 2147483647, 1, 4.0]},
        "traits": ["COMPUTE_NODE", "HW_CPU_X86_AVX"], "aggregates": [aggregate],
    }  # fmt: skip
    assert tree.leaves[f"rp.{gpu}"]["parent"] == node  # type: ignore[index,call-overload]
    assert tree.consumers == {instance: {node: {"VCPU": 2}, gpu: {"VGPU": 1}}}


def test_a_node_that_placement_does_not_know_has_no_tree(world: World) -> None:
    tree = PlacementMirror(world.client).read(str(uuid.uuid4()))
    assert (tree.leaves, tree.consumers) == ({}, {})


def test_a_quiet_node_costs_three_small_reads(world: World) -> None:
    node, mirror = world.provider(), PlacementMirror(world.client)
    world.take(str(uuid.uuid4()), {node: {"VCPU": 1}})
    before = mirror.read(node)
    world.http.calls.clear()
    assert mirror.read(node) == before
    assert gets(world) == ["resource_providers", "aggregates", "usages"]


def test_a_moved_provider_is_detected_although_its_generation_is_the_same(world: World) -> None:
    node, mirror = world.provider(), PlacementMirror(world.client)
    gpu = world.provider()
    mirror.read(gpu)
    world.put_below(gpu, node)
    leaf = mirror.read(node).leaves[f"rp.{gpu}"]
    assert leaf["parent"] == node  # type: ignore[index,call-overload]


def test_an_aggregate_is_seen_that_was_set_without_the_generation(world: World) -> None:
    """Nova's documentation of tenant isolation sets it with ``--os-placement-api-version=1.2``."""
    node, mirror, aggregate = world.provider(), PlacementMirror(world.client), str(uuid.uuid4())
    mirror.read(node)
    generation = world.generation(node)
    world.set_without_generation(node, [aggregate])
    assert world.generation(node) == generation
    assert mirror.read(node).leaves[f"rp.{node}"]["aggregates"] == [aggregate]  # type: ignore[index,call-overload]
    world.set_without_generation(node, [])
    assert mirror.read(node).leaves[f"rp.{node}"]["aggregates"] == []  # type: ignore[index,call-overload]


def test_sharing_providers_are_read_with_their_free_amounts(world: World) -> None:
    aggregate, mirror = str(uuid.uuid4()), PlacementMirror(world.client)
    share = world.provider(
        inventories={"DISK_GB": {"total": 100, "max_unit": 64}},
        traits=(SHARING_TRAIT,), aggregates=(aggregate,),
    )  # fmt: skip
    assert mirror.sharing()[share].inventories["DISK_GB"].max_unit == 64
    world.take(str(uuid.uuid4()), {share: {"DISK_GB": 64}})
    world.take(str(uuid.uuid4()), {share: {"DISK_GB": 26}})
    found = mirror.sharing()[share]
    assert found.aggregates == {aggregate}
    assert found.inventories["DISK_GB"].max_unit == 16, "10 are left, rounded up"
    world.take(str(uuid.uuid4()), {share: {"DISK_GB": 10}})
    assert mirror.sharing()[share].inventories == {}


def test_a_release_is_seen_although_the_generation_stays(world: World) -> None:
    node, mirror, instance = world.provider(), PlacementMirror(world.client), str(uuid.uuid4())
    world.take(instance, {node: {"VCPU": 1}})
    assert mirror.read(node).consumers == {instance: {node: {"VCPU": 1}}}
    generation = world.generation(node)
    world.ok("DELETE", f"/allocations/{instance}")
    assert world.generation(node) == generation
    assert mirror.read(node).consumers == {}


def test_one_gone_and_another_come_of_the_same_size(world: World) -> None:
    node, mirror = world.provider(), PlacementMirror(world.client)
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    world.take(first, {node: {"VCPU": 1}})
    mirror.read(node)
    world.ok("DELETE", f"/allocations/{first}")
    world.take(second, {node: {"VCPU": 1}})
    assert set(mirror.read(node).consumers) == {second}


def test_a_read_of_all_generations_returns_the_changed_trees(world: World) -> None:
    node, quiet = world.provider(), world.provider()
    child = world.provider(parent=node)
    mirror = PlacementMirror(world.client)
    assert {node, quiet} <= mirror.sweep()
    assert mirror.sweep() == frozenset()
    world.set(child, "traits", ["HW_CPU_X86_AVX"])
    assert mirror.sweep() == {node}
    world.ok("DELETE", f"/resource_providers/{child}")
    assert mirror.sweep() == {node}
    new = world.provider()
    assert mirror.sweep() == {new}


def test_reads_of_single_trees_return_the_changed_ones(world: World) -> None:
    node, quiet, other = world.provider(), world.provider(), world.provider()
    child = world.provider(parent=node)
    mirror = PlacementMirror(world.client)
    assert mirror.changed_among({node, quiet}) == {node, quiet}
    world.set(child, "traits", ["HW_CPU_X86_AVX"])
    world.set(other, "traits", ["HW_CPU_X86_AVX"])
    assert mirror.changed_among({node, quiet}) == {node}
    world.ok("DELETE", f"/resource_providers/{child}")
    assert mirror.changed_among({node, quiet, other}) == {node, other}
    assert mirror.changed_among(set()) == frozenset()


def test_an_overview_of_all_nodes_in_one_call(world: World) -> None:
    node = world.provider(
        inventories={"MEMORY_MB": {"total": 4096, "reserved": 512, "allocation_ratio": 1.5},
                     "VCPU": {"total": 8}},
        traits=("HW_CPU_X86_AVX",),
    )  # fmt: skip
    full = world.provider(inventories={"MEMORY_MB": {"total": 1}})
    world.take(str(uuid.uuid4()), {node: {"MEMORY_MB": 1024}})
    world.take(str(uuid.uuid4()), {full: {"MEMORY_MB": 1}})
    world.http.calls.clear()
    trees = PlacementMirror(world.client).overview()
    assert len(world.http.calls) == 1
    leaf = trees[node].leaves[f"rp.{node}"]
    assert leaf["inventories"]["MEMORY_MB"] == [5376, 0, 1, 2147483647, 1, 1.0]  # type: ignore[index,call-overload]
    assert leaf["traits"] == ["HW_CPU_X86_AVX"]  # type: ignore[index,call-overload]
    assert trees[node].consumers == {SUM_OF + node: {node: {"MEMORY_MB": 1024}}}
    assert full not in trees


def test_memory_is_bounded(world: World) -> None:
    mirror = PlacementMirror(world.client, max_providers=1)
    nodes = [world.provider(), world.provider()]
    assert [set(mirror.read(node).leaves) for node in nodes] == [{f"rp.{n}"} for n in nodes]
    assert len(mirror._known) == 1
