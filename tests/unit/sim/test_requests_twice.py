# SPDX-License-Identifier: Apache-2.0
"""The broker delivers each request to two schedulers, while Placement is slow and schedulers freeze.

Both write for one server.  The writes of one of them have no answer in time, and are carried out later, or never.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

import pytest

from shared_scheduler.core.events import MessagesArrived
from shared_scheduler.protocol.messages import Increment
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.placement import Write
from shared_scheduler.sim.run import drawn, run
from shared_scheduler.sim.workload import Workload
from shared_scheduler.sim.world import Sizes, World
from tests.unit.sim.single_requests import ask_for

ALLOCATIONS = {"node-1": {"VCPU": 1}}
DEADLINE_S = 100.0
KINDS = ("requests_twice", "placement_slow", "scheduler_freezes")


@pytest.mark.parametrize("seed", [37, 42, 49])
def test_a_server_keeps_the_allocations_of_the_host_that_was_answered(seed: int) -> None:
    world = run(replace(drawn(seed), fault_every_s=0.7, fault_kinds=KINDS, swarm=False))
    assert world.counters["ended_twice"] > 0
    assert world.checkers.violations == []


@pytest.mark.parametrize(("others", "broken"), [(frozenset(), True), (frozenset({"another"}), False)])
def test_a_server_may_be_missing_when_the_claim_of_another_scheduler_for_it_has_ended(
    others: frozenset[str], broken: bool
) -> None:
    # given a server that was answered and is not built yet, and another scheduler that may have claimed its node too
    world = World(1, Sizes(nodes=1, schedulers=1, build_queue_s=60.0), Workload(rate_per_s=1e-9), NetworkFaults())
    world.checkers.rows_every = 1
    (node,), scheduler = world.nodes.values(), world.schedulers[0]
    world.run(5.0)
    server = ask_for(world).servers[0]
    world.run(2.0)
    server.twins = others
    # when the agent reports that nothing of this server is pending, before it has read Placement again
    epoch, sequence = scheduler.core.table.version(node.node)
    gone = Increment(node.node, epoch, sequence + 1, consumers={server.uuid: None})
    scheduler.feed(MessagesArrived(node.cell, (gone,)))
    # then only the claim of another scheduler explains that
    assert any("was promised" in str(one) for one in world.checkers.violations) == broken


@pytest.mark.parametrize(
    ("writer", "is_heard", "broken"),
    [
        ("scheduler-1.1", False, False),
        pytest.param("scheduler-1.1", True, True, id="Placement was heard all the time"),
        pytest.param("scheduler-2.1", False, True, id="a scheduler that did not get the request"),
    ],
)
def test_what_another_scheduler_takes_before_the_answer_was_written_first(
    writer: str, is_heard: bool, broken: bool
) -> None:
    # given two schedulers that got one request, and did not hear Placement for a moment
    world = World(1, Sizes(nodes=2, schedulers=2), Workload(rate_per_s=1e-9), NetworkFaults())
    world.run(5.0)
    server = ask_for(world).servers[0]
    server.twins = frozenset(one.name for one in world.schedulers.values())
    if not is_heard:
        world.mute_placement(True)
        world.mute_placement(False)
    # when one of them has written, and the other one replaces that as a write of its own before the first one answers
    _replace_what_is_written(world, writer)
    world.run(2.0)
    # then only this explains that Placement does not have what was answered
    assert world.counters["answered"] == 1
    assert ("written_first" in {one.name for one in world.checkers.violations}) == broken


def _replace_what_is_written(world: World, writer: str) -> None:
    """Let another writer move what a scheduler writes to the other node, before the scheduler hears of its write."""
    placement, stored = world.placement, world.placement.stored

    def replace_it(consumer: str, grown: Set[str], write: Write | None) -> None:
        stored(consumer, grown, write)
        if write is not None and write.writer != writer:
            world.agenda.after(1e-6, move, consumer)

    def move(consumer: str) -> None:
        ((node, amounts),) = placement.consumers[consumer].items()
        (other,) = world.nodes.keys() - {node}
        generation = placement.standing(consumer).generation
        placement.end_write(placement.begin_write(consumer, {other: amounts}, generation, writer))

    placement.stored = replace_it
