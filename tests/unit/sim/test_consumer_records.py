# SPDX-License-Identifier: Apache-2.0
"""The records of consumers in the simulated Placement, and a writer that finds one without allocations."""

from __future__ import annotations

import pytest

from shared_scheduler.core.effects import Answer
from shared_scheduler.core.events import WriteCode
from shared_scheduler.placement.conflict_patience import ORPHAN
from shared_scheduler.placement.consumer_conflicts import ConsumerAllocations
from shared_scheduler.sim.computes import Size
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.placement import SimPlacement
from shared_scheduler.sim.rest import heal
from shared_scheduler.sim.workload import FLAVORS, Workload
from shared_scheduler.sim.world import Sizes, World
from tests.unit.sim.single_requests import ask_for

ALLOCATIONS = {"node-1": {"VCPU": 1}}
OURS, ANOTHER = "scheduler-0.0", "scheduler-1.0"

Dropped = list[tuple[str, str, bool]]


@pytest.fixture
def dropped() -> Dropped:
    return []


@pytest.fixture
def placement(dropped: Dropped) -> SimPlacement:
    made = SimPlacement(dropped=lambda *what: dropped.append(what))
    made.add_provider("node-1", "host-1", Size().inventories())
    return made


def test_a_write_makes_the_record_when_it_begins_and_deletes_it_when_it_fails(
    placement: SimPlacement, dropped: Dropped
) -> None:
    write = placement.begin_write("vm-1", ALLOCATIONS, writer=OURS)
    assert placement.records["vm-1"].generation == ORPHAN
    assert placement.standing("vm-1") == ConsumerAllocations()
    placement.fail(write)
    assert placement.records == {}
    assert dropped == [(OURS, "vm-1", False)]


def test_each_write_changes_the_generation_and_a_delete_ends_the_record(placement: SimPlacement) -> None:
    placement.end_write(placement.begin_write("vm-1", ALLOCATIONS))
    assert placement.standing("vm-1") == ConsumerAllocations(ALLOCATIONS, 1)
    placement.end_write(placement.begin_write("vm-1", ALLOCATIONS, generation=1))
    assert placement.standing("vm-1") == ConsumerAllocations(ALLOCATIONS, 2)
    assert placement.used("node-1") == {"VCPU": 1}
    placement.delete("vm-1")
    assert placement.records == {}


def test_a_record_under_way_refuses_null_and_accepts_zero(placement: SimPlacement) -> None:
    placement.begin_write("vm-1", ALLOCATIONS, writer=OURS)
    assert placement.end_write(placement.begin_write("vm-1", ALLOCATIONS))[0] is WriteCode.PROVIDER_CONFLICT
    assert placement.end_write(placement.begin_write("vm-1", ALLOCATIONS, ORPHAN))[0] is WriteCode.WRITTEN


@pytest.mark.parametrize("writer", [OURS, ANOTHER])
def test_a_write_that_fails_deletes_the_record_under_the_allocations_of_the_one_that_took_it_over(
    placement: SimPlacement, dropped: Dropped, writer: str
) -> None:
    # given a write that lasts long, and another one, of this scheduler or another one, that has taken its record over
    first = placement.begin_write("vm-1", ALLOCATIONS, writer=OURS)
    placement.end_write(placement.begin_write("vm-1", ALLOCATIONS, ORPHAN, writer))
    # when the first one fails
    assert placement.end_write(first)[0] is WriteCode.CONSUMER_CONFLICT
    # then the allocations are counted, and nobody reads or deletes them
    assert dropped == [(OURS, "vm-1", True)]
    assert placement.standing("vm-1") == ConsumerAllocations()
    placement.delete("vm-1")
    assert placement.used("node-1") == {"VCPU": 1}


@pytest.fixture
def world() -> World:
    """A cloud at rest, whose Placement takes half a second for a call."""
    workload = Workload(
        0.0001, lifetime_s=1e6, several=0.0, not_root_only=0.0, build_fails=0.0, asks_again=0.0, flavors=FLAVORS[:1]
    )
    made = World(1, Sizes(nodes=2, schedulers=1), workload, NetworkFaults())
    made.run(5.0)
    made.slow_placement(0.0, call_s=0.5)
    return made


def test_a_write_whose_answer_is_lost_is_read_and_goes_on_when_placement_is_back(world: World) -> None:
    # given a write under way when Placement stops
    asked = ask_for(world, 1, patience_s=30.0)
    while not world.placement.records:
        world.run(0.01)
    world.set_placement(False)
    world.run(1.0)
    assert asked.outcome is None

    # when it is back, then the server is placed, because the write was carried out or is sent again
    world.set_placement(True)
    world.run(10.0)
    assert isinstance(asked.outcome, Answer)
    assert world.placement.consumers.keys() == {*asked.request.instance_uuids}
    world.slow_placement(0.0)
    heal(world)
    assert world.checkers.violations == []
