# SPDX-License-Identifier: Apache-2.0
"""A change of others between two actions of a scheduler is found at the second one, also if Placement does not refuse
it: after a removal, the consumer looks new."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from shared_scheduler.core.effects import SeenBy
from shared_scheduler.model.moves import Move
from shared_scheduler.placement.reconciler import ServerActivity, ServerLocation
from tests.unit.core.scheduler_driver import host_of, request, taken
from tests.unit.placement.one_scheduler import Nova, OneScheduler, node
from tests.unit.placement.real_placement import Clock, World


@pytest.fixture
def scheduler(world: World, clock: Clock, nova: Nova) -> OneScheduler:
    return OneScheduler(world, clock, nova)


@pytest.fixture
def server() -> str:
    return str(uuid.uuid4())


def move_to(target: str, source: str, server: str, **changes: Any) -> Any:
    return request(server, ignore_hosts=frozenset([host_of(source)]), force_hosts=(host_of(target),), **changes)


def placed_without_an_agent(world: World, scheduler: OneScheduler, server: str) -> tuple[str, str]:
    """The node on which this scheduler has placed a server, and another one, both without an agent."""
    source, target = node(world), node(world)
    scheduler.driver.without_agents(source, target)
    scheduler.place(request(server, force_hosts=(host_of(source),)))
    return source, target


def test_all_allocations_are_deleted_before_our_delete(world: World, scheduler: OneScheduler, server: str) -> None:
    # given a server that was placed, and whose allocations somebody deletes
    source = node(world)
    scheduler.driver.without_agents(source)
    answer = scheduler.place(request(server))
    scheduler.remove_all(server)
    # when the scheduler deletes them, because its answer was not heard
    scheduler.unheard(answer)
    # then it was not the one that has deleted them
    [change] = scheduler.changes()
    assert (change["consumer"], change["seen_by"]) == (server, SeenBy.DELETE)
    assert (change["before"], change["generation_before"]) == (taken(source), 1)
    assert (change["after"], change["generation_after"]) == ({}, None)


def test_a_port_is_added_before_a_conductor_takes_the_allocations_of_a_move(
    world: World, scheduler: OneScheduler, nova: Nova, server: str
) -> None:
    # given a server to which neutron adds a port
    source, target = placed_without_an_agent(world, scheduler, server)
    port = scheduler.add_port(server)
    # when it is resized, for which nova-conductor gives all its allocations to the migration
    migration = scheduler.hand_over(server)
    nova.found = ServerLocation(ServerActivity.UNDER_WAY, move="resize", migration=migration)
    scheduler.place(move_to(target, source, server, move=Move.RESIZE))
    # then the port is found, although the server had no allocations at the write
    [change] = scheduler.changes()
    assert (change["consumer"], change["seen_by"]) == (server, SeenBy.NEW)
    assert (change["before"], change["generation_before"]) == (taken(source), 1)
    assert change["after"] == {**taken(source), port: {"VCPU": 1}}


def test_all_are_removed_and_written_anew_before_our_delete(world: World, scheduler: OneScheduler, server: str) -> None:
    # given a server whose allocations were removed, and written anew with other amounts in the same generation
    source = node(world)
    scheduler.driver.without_agents(source)
    answer = scheduler.place(request(server))
    scheduler.remove_all(server)
    world.take(server, {source: {"VCPU": 2}})
    # when the scheduler deletes what it wrote
    scheduler.unheard(answer)
    # then it leaves them alone, and tells it
    assert scheduler.stands(server) == {source: {"VCPU": 2}}
    [change] = scheduler.changes()
    assert (change["generation_before"], change["generation_after"]) == (1, 1)


def test_equal_amounts_in_an_equal_generation_look_like_ours(
    world: World, scheduler: OneScheduler, server: str
) -> None:
    # given a server whose allocations were removed and written anew as they were, while no agent reads
    source, target = placed_without_an_agent(world, scheduler, server)
    scheduler.remove_all(server)
    world.take(server, taken(source))
    # when it is evacuated, then nothing shows it: the documentation says so
    scheduler.place(move_to(target, source, server, move=Move.EVACUATION, merge_with_existing=True))
    assert scheduler.changes() == []


def test_two_actions_without_others_between_them_are_no_change(
    world: World, scheduler: OneScheduler, server: str
) -> None:
    source, target = placed_without_an_agent(world, scheduler, server)
    evacuation = move_to(target, source, server, move=Move.EVACUATION, merge_with_existing=True)
    scheduler.unheard(scheduler.place(evacuation))
    assert scheduler.stands(server) == taken(source)
    assert scheduler.changes() == []


def test_a_port_is_added_before_an_evacuation_that_reads(world: World, scheduler: OneScheduler, server: str) -> None:
    # given a server to which neutron adds a port, on a node without an agent
    source, target = placed_without_an_agent(world, scheduler, server)
    port = scheduler.add_port(server)
    # when it is evacuated
    scheduler.place(move_to(target, source, server, move=Move.EVACUATION, merge_with_existing=True))
    # then the port stays, and is found
    assert scheduler.stands(server).keys() == {source, target, port}
    [change] = scheduler.changes()
    assert (change["seen_by"], change["generation_before"], change["generation_after"]) == (SeenBy.MERGE, 1, 2)


def test_all_are_removed_and_written_anew_before_an_evacuation(
    world: World, scheduler: OneScheduler, server: str
) -> None:
    # given a server whose allocations were changed, then removed, and then written anew with other amounts
    source, target = placed_without_an_agent(world, scheduler, server)
    scheduler.remove_all(server)
    other = {source: {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 10}}
    world.take(server, other)
    # when it is evacuated
    scheduler.place(move_to(target, source, server, move=Move.EVACUATION, merge_with_existing=True))
    # then the generation is the same, and the amounts show the change
    [change] = scheduler.changes()
    assert (change["generation_before"], change["generation_after"], change["after"]) == (1, 1, other)
