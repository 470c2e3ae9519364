# SPDX-License-Identifier: Apache-2.0
"""An evacuation that knows all allocations of its server, and their generation, reads nothing before it writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import requests

from shared_scheduler.core.effects import WriteAllocation
from shared_scheduler.core.events import WriteCode
from shared_scheduler.placement.allocation_writer import AllocationWriter
from shared_scheduler.protocol.messages import Allocations, Consumer
from tests.unit.placement.intents import undo
from tests.unit.placement.real_placement import Fault, World, carried_out, lost_reply, raced
from tests.unit.placement.test_allocation_writer import evacuated


def known(world: World, effect: WriteAllocation) -> WriteAllocation:
    """The same evacuation, by a scheduler whose table shows what stands in Placement now."""
    standing = world.client.consumer(effect.consumer)
    assert standing.generation is not None
    consumer = Consumer(standing.allocations, True, generation=standing.generation, whole=True)
    world.http.calls.clear()
    return replace(effect, standing=consumer)


def methods(world: World) -> list[str]:
    return [method for method, _ in world.http.calls]


def test_an_evacuation_without_a_known_generation_reads_first(
    world: World, allocation_writer: AllocationWriter
) -> None:
    _, _, effect = evacuated(world)
    world.http.calls.clear()
    assert allocation_writer.write(effect).code is WriteCode.WRITTEN
    assert methods(world) == ["GET", "PUT"]


def test_an_evacuation_with_a_known_generation_takes_one_call(
    world: World, allocation_writer: AllocationWriter
) -> None:
    source, target, effect = evacuated(world)
    answer = allocation_writer.write(known(world, effect))
    assert methods(world) == ["PUT"]
    assert (answer.code, answer.generation) == (WriteCode.WRITTEN, 2)
    assert world.client.consumer(effect.consumer).allocations == {source: {"VCPU": 1}, target: {"VCPU": 1}}


def test_a_server_that_was_written_since_is_read_and_merged(world: World, allocation_writer: AllocationWriter) -> None:
    # given a table that does not know of a port with QoS, which was attached meanwhile
    source, target, effect = evacuated(world)
    evacuation, port = known(world, effect), world.provider()
    with_port: Allocations = {source: {"VCPU": 1}, port: {"VCPU": 3}}
    world.take(effect.consumer, with_port, generation=1)
    world.http.calls.clear()

    # when the server is evacuated
    answer = allocation_writer.write(evacuation)

    # then nothing of what others wrote is lost, and a failed request would restore it
    assert methods(world) == ["PUT", "GET", "PUT"]
    assert world.client.consumer(effect.consumer).allocations == {**with_port, target: {"VCPU": 1}}
    assert (answer.before, answer.generation) == (with_port, 3)


def test_a_server_without_allocations_is_new(world: World, allocation_writer: AllocationWriter) -> None:
    _, target, effect = evacuated(world)
    evacuation = known(world, effect)
    world.ok("DELETE", f"/allocations/{effect.consumer}")
    answer = allocation_writer.write(evacuation)
    assert (answer.code, answer.before, answer.generation) == (WriteCode.WRITTEN, {}, 1)
    assert world.client.consumer(effect.consumer).allocations == {target: {"VCPU": 1}}


def test_other_allocations_of_the_same_generation_are_merged_after_a_conflict(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given a server that was deleted from Placement and written again, so that its generation is 1 again
    source, target, effect = evacuated(world)
    evacuation, other = known(world, effect), world.provider()
    world.ok("DELETE", f"/allocations/{effect.consumer}")
    world.take(effect.consumer, {other: {"VCPU": 2}})

    # when another race is lost first
    world.http.faults = [raced]
    answer = allocation_writer.write(evacuation)

    # then what stands there is merged
    assert answer.before == {other: {"VCPU": 2}}
    assert (world.used(source), world.used(other), world.used(target)) == (0, 2, 1)


@pytest.mark.parametrize("fault", [lost_reply, raced])
def test_a_lost_reply_and_a_lost_race_are_handled_as_after_a_read(
    world: World, allocation_writer: AllocationWriter, fault: Fault
) -> None:
    source, target, effect = evacuated(world)
    evacuation = known(world, effect)
    world.http.faults = [fault]
    assert allocation_writer.write(evacuation).code is WriteCode.WRITTEN
    assert (world.used(source), world.used(target)) == (1, 1)


def test_an_interference_after_the_read_is_a_hard_error(world: World, allocation_writer: AllocationWriter) -> None:
    source, target, effect = evacuated(world)
    evacuation, third = known(world, effect), world.provider()

    def interfere(generation: int) -> Fault:
        def fault(_: str, __: str, go: Callable[[], requests.Response]) -> requests.Response:
            world.take(effect.consumer, {third: {"VCPU": generation}}, generation)
            return go()

        return fault

    # before the first write; then, after our read, before the second one
    world.http.faults = [interfere(1), carried_out, carried_out, interfere(2)]
    assert allocation_writer.write(evacuation).code is WriteCode.CONSUMER_CONFLICT
    assert (world.used(source), world.used(target), world.used(third)) == (0, 0, 2)


def test_what_is_taken_back_is_what_the_table_knew(world: World, allocation_writer: AllocationWriter) -> None:
    source, target, effect = evacuated(world)
    answer = allocation_writer.write(known(world, effect))
    delete = replace(undo(effect, {source: {"VCPU": 1}}, answer.written), generation=answer.generation)
    assert allocation_writer.delete(delete).gone
    assert (world.used(source), world.used(target)) == (1, 0)


def test_what_is_taken_back_is_our_part_although_others_have_written_since_a_lost_reply(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given a write that was carried out without an answer, after which somebody else attached a port with QoS
    source, target, effect = evacuated(world)
    evacuation, port = known(world, effect), world.provider()
    with_port: Allocations = {source: {"VCPU": 1}, port: {"VCPU": 3}}

    def lost_and_attached(_: str, __: str, go: Callable[[], requests.Response]) -> requests.Response:
        go()
        world.take(effect.consumer, {**with_port, target: {"VCPU": 1}}, generation=2)
        raise requests.exceptions.ReadTimeout("read timed out")

    world.http.faults = [lost_and_attached]

    # when the write ends
    answer = allocation_writer.write(evacuation)

    # then the scheduler knows what the others have, and a failed request restores that
    assert (answer.code, answer.before) == (WriteCode.WRITTEN, with_port)
    delete = replace(undo(effect, answer.before, answer.written), generation=answer.generation)
    assert allocation_writer.delete(delete).gone
    assert world.client.consumer(effect.consumer).allocations == with_port
