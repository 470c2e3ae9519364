# SPDX-License-Identifier: Apache-2.0
"""A write that no agent has judged is checked, and taken back if it over-commits; on a real Placement."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable

import requests

from shared_scheduler.core.effects import ConsumerPolicy, WriteAllocation
from shared_scheduler.core.events import WriteCode
from shared_scheduler.placement.allocation_writer import AllocationWriter
from shared_scheduler.placement.connection import ANNOUNCED, ANNOUNCEMENT
from shared_scheduler.placement.consumer_write import first_write
from shared_scheduler.placement.reconciler import ServerActivity, ServerLocation, without_nova
from tests.unit.placement.intents import intent, undo
from tests.unit.placement.real_placement import Clock, Fault, World, carried_out, never_sent, raced


def racing(world: World, provider: str) -> Fault:
    """The write is carried out beside a racing one: they take one unit more than the provider has."""

    def fault(_: str, __: str, go: Callable[[], requests.Response]) -> requests.Response:
        answer = go()
        world.take(str(uuid.uuid4()), {provider: {"VCPU": 8 - world.used(provider)}})
        world.set(provider, "inventories", {"VCPU": {"total": 7}})
        return answer

    return fault


def late_over_commit(world: World, clock: Clock, provider: str, seen_s: float) -> Fault:
    """The same, and the read that shows it is answered at ``seen_s``."""

    def usages(_: str, __: str, go: Callable[[], requests.Response]) -> requests.Response:
        clock.now = seen_s
        return go()

    def fault(method: str, path: str, go: Callable[[], requests.Response]) -> requests.Response:
        answer = racing(world, provider)(method, path, go)
        world.http.faults = [usages]  # the next call
        return answer

    return fault


def unseen_over_commit(world: World, provider: str, reads: int) -> Fault:
    """The same, and the next reads get no answer."""

    def fault(method: str, path: str, go: Callable[[], requests.Response]) -> requests.Response:
        answer = racing(world, provider)(method, path, go)
        world.http.faults = [never_sent] * reads
        return answer

    return fault


def written_by(world: World, effect: WriteAllocation) -> int:
    """How often the allocations of a consumer were replaced."""
    return world.http.calls.count(("PUT", f"/allocations/{effect.consumer}"))


def test_a_write_without_an_agent_is_checked_and_deleted_on_over_commit(
    world: World, allocation_writer: AllocationWriter
) -> None:
    node = world.provider(vcpus=8)
    effect = intent(node, serialise=True)
    world.http.faults = [racing(world, node)]
    assert allocation_writer.write(effect).code is WriteCode.NO_CAPACITY
    assert written_by(world, effect) == 3  # written, taken back, refused
    assert world.used(node) == 7


def test_an_over_commit_is_seen_although_the_first_reads_get_no_answer(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given a write that over-commits a host, after which Placement is away for a moment
    node = world.provider(vcpus=8)
    effect = intent(node, serialise=True)
    world.http.faults = [unseen_over_commit(world, node, reads=2)]
    # when
    answer = allocation_writer.write(effect)
    # then it is read again, and taken back
    assert answer.code is WriteCode.NO_CAPACITY
    assert world.used(node) == 7


def test_a_write_that_could_not_be_checked_until_its_deadline_is_left_to_the_core(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given a write that over-commits a host, after which Placement is away
    node = world.provider(vcpus=8)
    effect = intent(node, serialise=True)
    world.http.faults = [unseen_over_commit(world, node, reads=1000)]
    # when
    answer = allocation_writer.write(effect)
    # then the core hears what stands, so that it can delete it: nobody knows whether there is room for it
    assert (answer.code, answer.written, answer.generation) == (WriteCode.UNREACHABLE, effect.allocations, 1)


def test_a_write_that_was_not_checked_before_the_scheduler_stops_is_written(world: World, clock: Clock) -> None:
    # given a scheduler that stops, so that nobody would delete the write
    node = world.provider(vcpus=8)
    effect = intent(node, serialise=True)
    sut = AllocationWriter(world.client, clock, lambda _: True, random.Random(1), without_nova)
    world.http.faults = [carried_out, never_sent]
    assert sut.write(effect).code is WriteCode.WRITTEN


def test_an_over_commit_that_could_not_be_taken_back_is_left_to_the_core(world: World, clock: Clock) -> None:
    # given a move, which Nova shows as under way, and a Placement so slow that the check ends after the deadline
    node = world.provider(vcpus=8)
    effect = intent(node, serialise=True)
    under_way = ServerLocation(ServerActivity.UNDER_WAY)
    sut = AllocationWriter(world.client, clock, clock.pause, random.Random(1), lambda _: under_way)
    world.http.faults = [late_over_commit(world, clock, node, effect.deadline_s)]
    # when
    answer = sut.write(effect)
    # then the core hears what stands, so that it can delete it: for it, no capacity means that nothing is written
    assert world.client.consumer(effect.consumer).allocations == effect.allocations
    assert (answer.code, answer.written, answer.generation) == (WriteCode.UNREACHABLE, effect.allocations, 1)
    sut.delete(undo(effect, generation=answer.generation, sole_until_s=float("inf")))
    assert not world.client.consumer(effect.consumer).allocations


def test_a_write_that_was_taken_back_is_not_sent_again_after_its_deadline(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    # given a write that over-commits, which shows after the deadline
    node = world.provider(vcpus=8)
    effect = intent(node, serialise=True)
    world.http.faults = [late_over_commit(world, clock, node, effect.deadline_s)]
    # when
    answer = allocation_writer.write(effect)
    # then it is taken back, and not sent again: an agent relies on the deadline
    assert (answer.code, written_by(world, effect)) == (WriteCode.NO_CAPACITY, 2)
    assert not world.client.consumer(effect.consumer).allocations


def test_a_write_that_was_taken_back_is_not_sent_again_while_the_scheduler_stops(world: World, clock: Clock) -> None:
    node = world.provider(vcpus=8)
    effect = intent(node, serialise=True)
    sut = AllocationWriter(world.client, clock, lambda _: True, random.Random(1), without_nova)
    world.http.faults = [racing(world, node)]
    assert sut.write(effect).code is WriteCode.NO_CAPACITY
    assert written_by(world, effect) == 2


def test_a_write_that_was_taken_back_may_arrive_after_all(world: World, allocation_writer: AllocationWriter) -> None:
    # given a write without an answer, which Placement has not begun, and a second one that over-commits
    node = world.provider(vcpus=8)
    effect = intent(node, serialise=True)

    def held(_: str, __: str, ___: Callable[[], requests.Response]) -> requests.Response:
        raise requests.exceptions.ReadTimeout("read timed out")

    world.http.faults = [held, carried_out, racing(world, node)]
    # when the second one is taken back, and a third one is refused
    answer = allocation_writer.write(effect)
    # then the first one still finds no record when it arrives, so what it takes must stay reserved
    assert (answer.code, answer.may_arrive) == (WriteCode.NO_CAPACITY, True)
    assert not world.client.consumer(effect.consumer).allocations


def test_what_another_scheduler_may_have_answered_with_is_not_deleted_on_over_commit(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given a request that was delivered to two schedulers, of which the other one has written
    node = world.provider(vcpus=8)
    effect = intent(node, serialise=True)
    world.client.write(first_write(effect))

    # when this one writes the same, and the host seems overfull afterwards
    world.http.faults = [carried_out, carried_out, racing(world, node)]
    answer = allocation_writer.write(effect)

    # then the server keeps its allocations, to which this write has added nothing
    assert (answer.code, answer.generation) == (WriteCode.WRITTEN, 2)
    assert world.client.consumer(effect.consumer).allocations == effect.allocations


def announced(_: str, __: str, go: Callable[[], requests.Response]) -> requests.Response:
    """Placement with ``shared_scheduler.placement_app`` says that racing writes do not over-commit."""
    answer = go()
    answer.headers[ANNOUNCEMENT] = ANNOUNCED
    return answer


def test_a_write_is_not_checked_where_placement_announces_that_it_lets_nobody_over_commit(
    world: World, allocation_writer: AllocationWriter
) -> None:
    node = world.provider(vcpus=8)
    world.http.faults = [announced]
    world.http.calls.clear()
    assert allocation_writer.write(intent(node, serialise=True)).code is WriteCode.WRITTEN
    assert [method for method, _ in world.http.calls] == ["PUT"]


def race_without_an_answer(world: World, provider: str, *then: Fault) -> Fault:
    """A write that over-commits a provider is carried out, and its answer is lost; ``then`` come after it."""

    def fault(method: str, path: str, go: Callable[[], requests.Response]) -> requests.Response:
        racing(world, provider)(method, path, go)
        world.http.faults = list(then)
        raise requests.exceptions.ReadTimeout("read timed out")

    return fault


def test_a_write_is_checked_if_only_the_answer_to_its_repetition_announces_it(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given two Placements, of which one is plain, and a write through that one, which over-commits without an answer
    node = world.provider(vcpus=8)
    effect = intent(node, serialise=True)
    # when the other one answers the same write, which adds nothing any more
    world.http.faults = [race_without_an_answer(world, node, carried_out, announced)]
    answer = allocation_writer.write(effect)
    # then it is checked, and taken back
    assert answer.code is WriteCode.NO_CAPACITY
    assert world.used(node) == 7


def test_a_write_is_checked_if_only_a_refusal_announces_it(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    # given the same two Placements
    node = world.provider(vcpus=8)
    effect = intent(node, serialise=True)

    def refused_late(method: str, path: str, go: Callable[[], requests.Response]) -> requests.Response:
        clock.now = effect.deadline_s
        return announced(method, path, lambda: raced(method, path, go))

    # when the other one refuses the repetition, and there is no time for another one
    world.http.faults = [race_without_an_answer(world, node, carried_out, refused_late)]
    answer = allocation_writer.write(effect)
    # then what stands is checked, and does not stay
    assert answer.code is not WriteCode.WRITTEN
    assert world.used(node) == 7


def test_racers_that_all_take_back_try_again(world: World, allocation_writer: AllocationWriter) -> None:
    node, rival = world.provider(vcpus=8), str(uuid.uuid4())
    effect = intent(node, serialise=True, vcpus=5)

    def race(method: str, path: str, go: Callable[[], requests.Response]) -> requests.Response:
        answer = go()
        world.set(node, "inventories", {"VCPU": {"total": 4}})
        return answer

    def rival_gives_way(method: str, path: str, go: Callable[[], requests.Response]) -> requests.Response:
        world.set(node, "inventories", {"VCPU": {"total": 8}})
        return go()

    world.take(rival, {node: {"VCPU": 1}})
    # the write, then usages and inventories, the read and the taking back, and the second write
    world.http.faults = [race, *[carried_out] * 4, rival_gives_way]
    assert allocation_writer.write(effect).code is WriteCode.WRITTEN
    assert world.used(node) == 6


def test_a_check_that_found_room_does_not_apply_to_the_next_write(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given a large host of which a check has just found 36 free, and other schedulers that take all of them but one
    node = world.provider(vcpus=128)
    world.take(str(uuid.uuid4()), {node: {"VCPU": 91}})
    assert allocation_writer.write(intent(node, serialise=True)).code is WriteCode.WRITTEN
    world.take(str(uuid.uuid4()), {node: {"VCPU": 35}})

    # when this scheduler and another one race for the last unit, and Placement accepts both
    def race(method: str, path: str, go: Callable[[], requests.Response]) -> requests.Response:
        answer = go()
        world.set(node, "inventories", {"VCPU": {"total": 129}})
        world.take(str(uuid.uuid4()), {node: {"VCPU": 1}})
        world.set(node, "inventories", {"VCPU": {"total": 128}})
        return answer

    world.http.faults = [race]
    answer = allocation_writer.write(intent(node, serialise=True))

    # then this one notices it, and gives way
    assert answer.code is WriteCode.NO_CAPACITY
    assert world.used(node) == 128


def test_of_a_provider_that_is_known_only_usages_are_read(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    node = world.provider(vcpus=8)
    allocation_writer.write(intent(node, serialise=True))
    world.http.calls.clear()
    allocation_writer.write(intent(node, serialise=True))
    assert [path.rsplit("/", 1)[-1] for method, path in world.http.calls if method == "GET"] == ["usages"]


def test_an_evacuation_is_not_taken_back_for_a_pool_of_which_it_takes_nothing_more(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given a server with its disk in a pool that both hosts share, which its operator has made too small since
    pool = world.provider(inventories={"DISK_GB": {"total": 100}})
    source, target, server = world.provider(), world.provider(), str(uuid.uuid4())
    world.take(server, {source: {"VCPU": 1}, pool: {"DISK_GB": 80}})
    world.set(pool, "inventories", {"DISK_GB": {"total": 50, "max_unit": 100}})

    # when it is evacuated, which Placement permits, because the pool has to give nothing more
    wanted = {target: {"VCPU": 1}, pool: {"DISK_GB": 80}}
    effect = intent(target, consumer=server, policy=ConsumerPolicy.MERGE, serialise=True, allocations=wanted)
    answer = allocation_writer.write(effect)

    # then it stays
    assert answer.code is WriteCode.WRITTEN
    assert world.client.consumer(server).allocations == {source: {"VCPU": 1}, **wanted}


def test_a_provider_that_has_grown_is_not_taken_for_overfull(world: World, allocation_writer: AllocationWriter) -> None:
    node = world.provider(vcpus=1)
    assert allocation_writer.write(intent(node, serialise=True)).code is WriteCode.WRITTEN
    world.set(node, "inventories", {"VCPU": {"total": 2}})
    assert allocation_writer.write(intent(node, serialise=True)).code is WriteCode.WRITTEN
