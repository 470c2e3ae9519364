# SPDX-License-Identifier: Apache-2.0
"""An evacuated server whose disk is in a pool that source and target share, on a real Placement."""

from __future__ import annotations

import pytest

from shared_scheduler.core.effects import ConsumerPolicy, WriteAllocation
from shared_scheduler.core.events import WriteCode
from shared_scheduler.placement.allocation_writer import AllocationWriter
from tests.unit.placement.intents import intent, undo
from tests.unit.placement.real_placement import World, carried_out, never_sent

DISK = {"DISK_GB": 10}


@pytest.fixture
def evacuated(world: World) -> WriteAllocation:
    """To a host of the pool; the server holds its source and its disk."""
    source, target = world.provider(), world.provider()
    pool = world.provider(inventories={"DISK_GB": {"total": 1000}})
    effect = intent(target, policy=ConsumerPolicy.MERGE, allocations={target: {"VCPU": 1}, pool: DISK})
    world.take(effect.consumer, {source: {"VCPU": 1}, pool: DISK})
    return effect


def test_a_delete_restores_the_allocations_before_the_write(
    world: World, allocation_writer: AllocationWriter, evacuated: WriteAllocation
) -> None:
    found = world.client.consumer(evacuated.consumer).allocations

    answer = allocation_writer.write(evacuated)
    assert answer.code is WriteCode.WRITTEN
    gone = allocation_writer.delete(undo(evacuated, answer.before, answer.written))

    assert gone.gone
    assert world.client.consumer(evacuated.consumer).allocations == found


def test_a_write_that_never_arrived_is_not_mistaken_for_another_writers(
    world: World, allocation_writer: AllocationWriter, evacuated: WriteAllocation
) -> None:
    # given a Placement that goes after it was read, and comes back
    found = world.client.consumer(evacuated.consumer).allocations
    world.http.faults = [carried_out, *[never_sent] * 1000]
    answer = allocation_writer.write(evacuated)
    assert answer.code is WriteCode.UNREACHABLE
    world.http.faults = []

    gone = allocation_writer.delete(undo(evacuated, answer.before, answer.written))

    assert gone.gone and not gone.left_alone
    assert world.client.consumer(evacuated.consumer).allocations == found
