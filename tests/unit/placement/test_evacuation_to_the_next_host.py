# SPDX-License-Identifier: Apache-2.0
"""An evacuation whose write got no answer, and whose next host is written: the first write may be carried out at any
time, and is this scheduler's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import requests

from shared_scheduler.core.effects import WriteAllocation
from shared_scheduler.core.events import WriteCode
from shared_scheduler.placement.allocation_writer import AllocationWriter
from tests.unit.placement.intents import undo
from tests.unit.placement.real_placement import World, carried_out
from tests.unit.placement.test_allocation_writer import evacuated, give_up
from tests.unit.placement.test_known_generation import known


def to_the_next_host(world: World, effect: WriteAllocation) -> tuple[str, WriteAllocation]:
    """The same evacuation to another host, by a scheduler that reads what stands in Placement first."""
    host = world.provider()
    allocations = {host: {"VCPU": 1}}
    return host, replace(effect, claim_id="next", allocations=allocations, mappings={"": (host,)}, standing=None)


def still_under_way(_: str, __: str, ___: Callable[[], requests.Response]) -> requests.Response:
    """Placement has got the request, and has not carried it out yet."""
    raise requests.exceptions.ReadTimeout("read timed out")


@pytest.mark.parametrize("is_known", [False, True])
def test_a_write_that_was_carried_out_without_an_answer_is_replaced(
    world: World, allocation_writer: AllocationWriter, is_known: bool
) -> None:
    # given an evacuation that was given up, but carried out
    source, first, effect = evacuated(world)
    evacuation = known(world, effect)
    give_up(world, allocation_writer, evacuation)
    assert (world.used(source), world.used(first)) == (1, 1)

    # when the same request is written for its next host, with or without a read before
    second, again = to_the_next_host(world, effect)
    answer = allocation_writer.write(replace(again, standing=evacuation.standing) if is_known else again)

    # then the first host has nothing, and a failed request leaves the source alone
    assert (answer.code, answer.before) == (WriteCode.WRITTEN, {source: {"VCPU": 1}})
    assert (world.used(source), world.used(first), world.used(second)) == (1, 0, 1)
    delete = replace(undo(again, answer.before, answer.written), generation=answer.generation)
    assert allocation_writer.delete(delete).gone
    assert (world.used(source), world.used(second)) == (1, 0)


def test_a_write_that_is_carried_out_after_the_read_is_no_conflict_with_others(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given an evacuation that got no answer until its deadline
    source, first, effect = evacuated(world)
    world.http.every_write = still_under_way
    assert allocation_writer.write(effect).code is WriteCode.UNREACHABLE
    world.http.every_write = None

    # when Placement carries it out between the read and the write for the next host
    second, again = to_the_next_host(world, effect)

    def arrives_before(_: str, __: str, go: Callable[[], requests.Response]) -> requests.Response:
        world.take(effect.consumer, {source: {"VCPU": 1}, first: {"VCPU": 1}}, generation=1)
        return go()

    world.http.faults = [carried_out, arrives_before]
    answer = allocation_writer.write(replace(again, deadline_s=again.deadline_s + 60))

    # then nobody else has written, and the server is on its source and its next host
    assert (answer.code, answer.before) == (WriteCode.WRITTEN, {source: {"VCPU": 1}})
    assert (world.used(source), world.used(first), world.used(second)) == (1, 0, 1)
    assert allocation_writer.foreign_changes.report()["changes"] == []
