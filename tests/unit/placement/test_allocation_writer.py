# SPDX-License-Identifier: Apache-2.0
"""One consumer to its end, on a real Placement, with each way in which a write can go wrong."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest
import requests

from shared_scheduler.core.effects import ConsumerPolicy, WriteAllocation
from shared_scheduler.core.events import WriteCode
from shared_scheduler.placement.allocation_writer import AllocationWriter
from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.in_doubt_writes import AGAIN_AFTER_S, CHECKS_AFTER_S
from shared_scheduler.placement.reconciler import ServerActivity, ServerLocation, without_nova
from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S
from tests.unit.placement.intents import intent, undo
from tests.unit.placement.real_placement import (
    Clock,
    Fault,
    World,
    another_service,
    carried_out,
    in_trouble,
    lost_reply,
    never_sent,
    not_found,
    raced,
    refused,
)

# -- new -----------------------------------------------------------------------------------------


def test_a_new_consumer_needs_one_call_and_no_read(world: World, allocation_writer: AllocationWriter) -> None:
    effect = intent(world.provider())
    world.http.calls.clear()
    answer = allocation_writer.write(effect)
    assert (answer.code, answer.written) == (WriteCode.WRITTEN, effect.allocations)
    assert world.http.calls == [("PUT", f"/allocations/{effect.consumer}")]
    assert world.http.headers[-1]["X-OpenStack-Request-ID"] == effect.request_id


def test_a_full_provider_is_reported_as_no_capacity(world: World, allocation_writer: AllocationWriter) -> None:
    effect = intent(world.provider(vcpus=1), vcpus=2)
    assert allocation_writer.write(effect).code is WriteCode.NO_CAPACITY
    assert not world.client.consumer(effect.consumer).allocations


def test_a_class_without_inventory_is_reported_as_no_capacity(
    world: World, allocation_writer: AllocationWriter
) -> None:
    node = world.provider()
    effect = intent(node, allocations={node: {"PCPU": 1}})
    assert allocation_writer.write(effect).code is WriteCode.NO_CAPACITY


def test_a_provider_that_is_gone_is_unknown(world: World, allocation_writer: AllocationWriter) -> None:
    assert allocation_writer.write(intent(str(uuid.uuid4()))).code is WriteCode.UNKNOWN_PROVIDER


def test_nonsense_is_rejected(world: World, allocation_writer: AllocationWriter) -> None:
    node = world.provider()
    effect = intent(node, allocations={node: {"NO_SUCH_CLASS": 1}})
    assert allocation_writer.write(effect).code is WriteCode.REJECTED


@pytest.mark.parametrize("fault", [lost_reply, in_trouble, never_sent])
def test_an_unanswered_write_is_written_once(world: World, allocation_writer: AllocationWriter, fault: Fault) -> None:
    node = world.provider()
    effect = intent(node)
    world.http.faults = [fault]
    assert allocation_writer.write(effect).code is WriteCode.WRITTEN
    assert world.used(node) == 1


def test_a_lost_reply_is_recognised_by_the_allocations(world: World, allocation_writer: AllocationWriter) -> None:
    effect = intent(world.provider())
    world.http.calls.clear()
    world.http.faults = [lost_reply]
    answer = allocation_writer.write(effect)
    assert (answer.code, answer.generation) == (WriteCode.WRITTEN, 2)
    # it is written once more, because another scheduler may have written the same, and may delete it
    assert [method for method, _ in world.http.calls] == ["PUT", "GET", "PUT"]


def timed_out(clock: Clock, effect: WriteAllocation) -> Fault:
    """The write is carried out, and its answer does not come in time."""

    def fault(method: str, path: str, go: Callable[[], requests.Response]) -> requests.Response:
        clock.now = effect.deadline_s
        return lost_reply(method, path, go)

    return fault


def test_a_lost_reply_at_the_deadline_costs_only_a_read(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    effect = intent(world.provider())
    world.http.calls.clear()
    world.http.faults = [timed_out(clock, effect)]
    answer = allocation_writer.write(effect)
    assert (answer.code, answer.generation) == (WriteCode.WRITTEN, 1)
    assert [method for method, _ in world.http.calls] == ["PUT", "GET"]


def test_a_lost_reply_costs_only_a_read_when_the_scheduler_stops(world: World, clock: Clock) -> None:
    # given a writer that must not wait until it writes again, because it stops or its host is not free in time
    writer = AllocationWriter(world.client, clock, lambda _: True, random.Random(1), without_nova)
    effect = intent(world.provider())
    world.http.faults = [lost_reply]
    answer = writer.write(effect)
    # then what stands counts as written, and as found
    assert (answer.code, answer.found, answer.generation) == (WriteCode.WRITTEN, True, 1)
    assert writer.in_doubt() == 0


@pytest.mark.parametrize("again", [lost_reply, never_sent])
def test_allocations_that_were_written_twice_without_an_answer_are_deleted(
    world: World, allocation_writer: AllocationWriter, clock: Clock, again: Fault
) -> None:
    # given a write whose reply is lost, and which is sent once more, perhaps in vain, when Placement goes away
    node = world.provider()
    effect = intent(node)
    world.http.faults = [lost_reply, carried_out, again, *[never_sent] * 1000]
    answer = allocation_writer.write(effect)
    assert answer.code is WriteCode.UNREACHABLE
    world.http.faults = []

    # when it is deleted, as soon as none of its writes can arrive any more
    clock.now += CARRIED_OUT_WITHIN_S
    gone = allocation_writer.delete(replace(undo(effect), generation=answer.generation)).gone

    # then nothing stays, whichever of the two was carried out last
    assert gone
    assert world.used(node) == 0


def test_the_same_intent_sent_twice_is_written_once(world: World, allocation_writer: AllocationWriter) -> None:
    node = world.provider()
    effect = intent(node)
    allocation_writer.write(effect)
    assert allocation_writer.write(effect).code is WriteCode.WRITTEN
    assert world.used(node) == 1


def test_a_consumer_with_other_allocations_is_a_hard_error(world: World, allocation_writer: AllocationWriter) -> None:
    mine, theirs = world.provider(), world.provider()
    effect = intent(mine)
    world.take(effect.consumer, {theirs: {"VCPU": 1}})
    assert allocation_writer.write(effect).code is WriteCode.CONSUMER_CONFLICT
    assert world.client.consumer(effect.consumer).allocations == {theirs: {"VCPU": 1}}


def test_a_lost_race_for_a_provider_is_run_again(world: World, allocation_writer: AllocationWriter) -> None:
    node = world.provider()
    world.http.faults = [raced, carried_out, raced, carried_out]
    assert allocation_writer.write(intent(node)).code is WriteCode.WRITTEN
    assert world.used(node) == 1


def test_an_evacuation_that_loses_a_race_for_a_provider_runs_again(
    world: World, allocation_writer: AllocationWriter
) -> None:
    source, target, effect = evacuated(world)
    world.http.faults = [carried_out, raced, carried_out]
    assert allocation_writer.write(effect).code is WriteCode.WRITTEN
    assert (world.used(source), world.used(target)) == (1, 1)


def test_placement_away_until_the_deadline_is_unreachable(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    node = world.provider()
    effect = intent(node)
    world.http.faults = [never_sent] * 1000
    answer = allocation_writer.write(effect)
    world.http.faults = []
    assert answer.code is WriteCode.UNREACHABLE
    assert clock.now <= effect.deadline_s
    assert world.used(node) == 0


def test_a_write_that_never_left_does_not_delete_what_another_scheduler_has_written(
    world: World, allocation_writer: AllocationWriter, other_writer: AllocationWriter, clock: Clock
) -> None:
    # given a move that two schedulers got, and one of them cannot connect to Placement
    effect = intent(world.provider())
    world.http.faults = [refused] * 1000
    answer = allocation_writer.write(effect)
    world.http.faults = []
    # when the other one writes it
    assert other_writer.write(effect).code is WriteCode.WRITTEN
    # then the first one has nothing to delete
    assert answer.code is WriteCode.NOT_SERVED
    assert allocation_writer.in_doubt() == 0
    clock.now += CHECKS_AFTER_S[0]
    allocation_writer.sweep(busy=lambda _: False)
    assert world.client.consumer(effect.consumer).allocations == effect.allocations


def test_a_write_at_the_address_of_another_service_was_not_carried_out(
    world: World, allocation_writer: AllocationWriter
) -> None:
    effect = intent(world.provider())
    world.http.faults = [not_found]
    assert allocation_writer.write(effect).code is WriteCode.NOT_SERVED
    assert allocation_writer.in_doubt() == 0


@pytest.mark.parametrize(
    ("faults", "code", "in_doubt"),
    [
        ([raced, *[never_sent] * 1000], WriteCode.PROVIDER_CONFLICT, 0),  # another scheduler may write the same now
        ([lost_reply, *[refused] * 1000], WriteCode.UNREACHABLE, 1),
    ],
    ids=["refused and not read", "lost and not sent again"],
)
def test_only_a_call_without_an_answer_leaves_something_to_delete(
    world: World, allocation_writer: AllocationWriter, faults: list[Fault], code: WriteCode, in_doubt: int
) -> None:
    effect = intent(world.provider())
    world.http.faults = faults
    answer = allocation_writer.write(effect)
    world.http.faults = []
    assert (answer.code, allocation_writer.in_doubt()) == (code, in_doubt)


def test_an_answer_that_is_not_of_placement_is_no_answer(world: World, allocation_writer: AllocationWriter) -> None:
    # given a proxy that answers with success in the place of Placement
    node = world.provider()
    world.http.faults = [another_service, another_service]
    # when it answers a write, and the read after that
    answer = allocation_writer.write(intent(node))
    # then the write is sent again
    assert (answer.code, answer.may_arrive, world.used(node)) == (WriteCode.WRITTEN, True, 1)


class UnexpectedError(Exception):
    """An error that nobody has foreseen."""


def broken(_: str, __: str, ___: Callable[[], requests.Response]) -> requests.Response:
    raise UnexpectedError


def test_an_unexpected_error_after_a_refused_write_leaves_nothing_to_delete(
    world: World, allocation_writer: AllocationWriter
) -> None:
    effect = intent(world.provider())
    world.http.faults = [raced, broken]
    assert allocation_writer.write(effect).code is WriteCode.PROVIDER_CONFLICT
    assert allocation_writer.in_doubt() == 0


@pytest.mark.parametrize("faults", [[lost_reply, broken], [broken]], ids=["of the read", "of the call"])
def test_an_unexpected_error_does_not_forget_what_may_have_been_written(
    world: World, allocation_writer: AllocationWriter, faults: list[Fault]
) -> None:
    source, target, effect = evacuated(world)
    world.http.faults = [carried_out, *faults]
    answer = allocation_writer.write(effect)
    assert (answer.code, answer.generation) == (WriteCode.UNREACHABLE, 2)
    assert (answer.written, answer.before) == ({source: {"VCPU": 1}, target: {"VCPU": 1}}, {source: {"VCPU": 1}})
    assert allocation_writer.in_doubt() == 1


def test_an_unexpected_error_of_the_check_does_not_forget_what_was_written(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given an evacuation to a node without an agent, which is written
    source, target, effect = evacuated(world)
    world.http.faults = [carried_out, carried_out, broken]
    answer = allocation_writer.write(replace(effect, serialise=True))
    # then the core gets what it needs to take it back
    assert (answer.code, answer.generation) == (WriteCode.UNREACHABLE, 2)
    assert (answer.written, answer.before) == ({source: {"VCPU": 1}, target: {"VCPU": 1}}, {source: {"VCPU": 1}})


def test_what_was_written_with_an_unknown_generation_is_kept_for_a_new_server_that_has_an_answer(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    # given one request that two schedulers got; one of them has answered, and the write of the other one was lost
    node = world.provider()
    effect, there = intent(node), ServerLocation(ServerActivity.AT_REST, node)
    loser = AllocationWriter(world.client, clock, clock.pause, random.Random(1), lambda _: there)
    assert allocation_writer.write(effect).code is WriteCode.WRITTEN
    # when that one deletes what it may have written
    assert loser.delete(undo(effect, is_new=True, generation=None)).left_alone
    # then what the server has is kept
    assert world.used(node) == 1


def test_an_evacuation_whose_consumer_cannot_be_read_is_not_sent(
    world: World, allocation_writer: AllocationWriter
) -> None:
    _, _, effect = evacuated(world)
    world.http.faults = [never_sent] * 1000
    answer = allocation_writer.write(effect)
    world.http.faults = []
    assert answer.code is WriteCode.NOT_SERVED
    assert allocation_writer.in_doubt() == 0


def test_an_evacuation_whose_consumer_is_read_too_late_is_not_sent(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    # given an agent that keeps its claim until the deadline of the write
    _, target, effect = evacuated(world)

    def slow(_: str, __: str, go: Callable[[], requests.Response]) -> requests.Response:
        clock.now = effect.deadline_s
        return go()

    world.http.faults = [slow]
    assert allocation_writer.write(effect).code is WriteCode.NOT_SERVED
    assert world.used(target) == 0


def test_a_proxy_that_answers_for_placement_after_a_refused_write_says_nothing_about_the_provider(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given a write that Placement finds malformed, although its provider exists
    provider = world.provider()
    effect = intent(provider, allocations={provider: {"NO_CLASS": 1}})
    assert allocation_writer.write(effect).code is WriteCode.REJECTED
    # when a proxy has no page for the read of the provider
    world.http.faults = [carried_out, not_found]
    # then the provider is not taken for one that Placement does not have
    assert allocation_writer.write(effect).code is WriteCode.PROVIDER_CONFLICT


def test_a_refused_write_whose_providers_cannot_be_read_leaves_nothing_to_delete(
    world: World, allocation_writer: AllocationWriter
) -> None:
    effect = intent(str(uuid.uuid4()))
    world.http.faults = [carried_out, *[never_sent] * 1000]
    answer = allocation_writer.write(effect)
    world.http.faults = []
    assert answer.code is WriteCode.PROVIDER_CONFLICT
    assert allocation_writer.in_doubt() == 0


def test_refused_credentials_are_not_retried(world: World, allocation_writer: AllocationWriter) -> None:
    from shared_scheduler.placement.connection import KeystoneTransport

    effect = intent(world.provider())
    nobody = KeystoneTransport(_Anonymous(world))
    clock = Clock()
    stranger = AllocationWriter(PlacementClient(nobody), clock, clock.pause, random.Random(1), without_nova)
    world.http.calls.clear()
    assert stranger.write(effect).code is WriteCode.DENIED
    assert len(world.http.calls) == 1
    assert stranger.in_doubt() == 0


class _Anonymous:
    """An adapter with an invalid token."""

    def __init__(self, world: World) -> None:
        import requests
        from keystoneauth1 import adapter, noauth, session

        from tests.unit.placement.real_placement import ENDPOINT

        http = requests.Session()
        http.mount(ENDPOINT, world.http)
        auth = noauth.NoAuth(endpoint=ENDPOINT)
        self._adapter = adapter.Adapter(session.Session(session=http), auth=auth, service_type="placement")

    def request(self, *args: object, **kwargs: object) -> object:
        return self._adapter.request(*args, **kwargs)


# -- given up, and then it came ------------------------------------------------------------------


def give_up(world: World, allocation_writer: AllocationWriter, effect: WriteAllocation) -> None:
    """The write arrives, but we never hear of it and report it as not written."""
    world.http.faults = [lost_reply] + [never_sent] * 1000
    assert allocation_writer.write(effect).code is WriteCode.UNREACHABLE
    world.http.faults = []
    assert allocation_writer.in_doubt() == 1


def test_a_late_write_of_an_abandoned_request_is_deleted(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    node = world.provider()
    effect = intent(node)
    give_up(world, allocation_writer, effect)
    assert world.used(node) == 1
    clock.now += CHECKS_AFTER_S[0]
    allocation_writer.sweep(busy=lambda _: False)
    assert world.used(node) == 0


def test_what_was_answered_and_could_not_be_deleted_is_checked_soon(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    # given a write that was answered, which Nova knows long afterwards
    node = world.provider()
    effect = intent(node, nova_knows_s=clock.now + 1000.0)
    assert allocation_writer.write(effect).code is WriteCode.WRITTEN
    # when nobody has heard of that, and the delete gets no answer
    world.http.faults = [never_sent] * 1000
    assert not allocation_writer.delete(undo(effect, generation=1)).gone
    world.http.faults = []
    # then the next check does not wait for Nova
    clock.now += CHECKS_AFTER_S[0]
    allocation_writer.sweep(busy=lambda _: False)
    assert world.used(node) == 0


def test_an_unexpected_error_of_one_check_keeps_no_other_server_from_its_own(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    # given late writes of two servers, the first of which cannot be checked
    first, second = world.provider(), world.provider()
    world.http.faults = [lost_reply, *[never_sent] * 1000]
    for node in (first, second):
        world.http.faults[0] = lost_reply
        allocation_writer.write(intent(node, deadline_s=clock.now + 5.0))
    # when both are due
    clock.now += CHECKS_AFTER_S[0]
    world.http.faults = [broken]
    allocation_writer.sweep(busy=lambda _: False)
    # then the second one is deleted, and the first one when it can be checked
    assert (world.used(first), world.used(second)) == (1, 0)
    clock.now += AGAIN_AFTER_S
    allocation_writer.sweep(busy=lambda _: False)
    assert world.used(first) == 0


def test_the_write_for_the_next_host_replaces_a_late_write(world: World, allocation_writer: AllocationWriter) -> None:
    first, second = world.provider(), world.provider()
    effect = intent(first)
    give_up(world, allocation_writer, effect)
    again = intent(second, consumer=effect.consumer)
    assert allocation_writer.write(again).code is WriteCode.WRITTEN
    assert (world.used(first), world.used(second)) == (0, 1)
    assert allocation_writer.in_doubt() == 0


def test_later_allocations_of_another_writer_are_not_deleted(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    node, other = world.provider(), world.provider()
    effect = intent(node)
    give_up(world, allocation_writer, effect)
    world.take(effect.consumer, {other: {"VCPU": 1}}, generation=1)
    for wait_s in CHECKS_AFTER_S:
        clock.now += wait_s
        allocation_writer.sweep(busy=lambda _: False)
    assert world.used(other) == 1
    assert allocation_writer.in_doubt() == 0


# -- merge ---------------------------------------------------------------------------------------


def evacuated(world: World) -> tuple[str, str, WriteAllocation]:
    source, target = world.provider(), world.provider()
    effect = intent(target, policy=ConsumerPolicy.MERGE)
    world.take(effect.consumer, {source: {"VCPU": 1}})
    return source, target, effect


def test_an_evacuation_writes_the_union(world: World, allocation_writer: AllocationWriter) -> None:
    source, target, effect = evacuated(world)
    answer = allocation_writer.write(effect)
    assert answer.code is WriteCode.WRITTEN
    assert answer.written == {source: {"VCPU": 1}, target: {"VCPU": 1}}
    assert world.client.consumer(effect.consumer).allocations == answer.written


def test_an_evacuation_of_an_instance_that_holds_nothing_is_new(
    world: World, allocation_writer: AllocationWriter
) -> None:
    effect = intent(world.provider(), policy=ConsumerPolicy.MERGE)
    answer = allocation_writer.write(effect)
    assert (answer.code, answer.written) == (WriteCode.WRITTEN, effect.allocations)


def test_an_evacuation_whose_answer_is_lost(world: World, allocation_writer: AllocationWriter) -> None:
    source, target, effect = evacuated(world)
    world.http.faults = [carried_out, lost_reply]
    assert allocation_writer.write(effect).code is WriteCode.WRITTEN
    assert (world.used(source), world.used(target)) == (1, 1)


def test_an_evacuation_with_a_concurrent_writer_fails_and_changes_nothing(
    world: World, allocation_writer: AllocationWriter
) -> None:
    source, target, effect = evacuated(world)
    third = world.provider()

    def interfere(method: str, path: str, go: object) -> object:
        world.take(effect.consumer, {third: {"VCPU": 1}}, generation=1)
        return go()  # type: ignore[operator]

    world.http.faults = [carried_out, interfere]  # type: ignore[list-item]
    assert allocation_writer.write(effect).code is WriteCode.CONSUMER_CONFLICT
    assert (world.used(source), world.used(target), world.used(third)) == (0, 0, 1)


def test_taking_an_evacuation_back_leaves_the_source(world: World, allocation_writer: AllocationWriter) -> None:
    source, target, effect = evacuated(world)
    answer = allocation_writer.write(effect)
    gone = allocation_writer.delete(undo(effect, {source: {"VCPU": 1}}, answer.written))
    assert gone.gone
    assert (world.used(source), world.used(target)) == (1, 0)


# -- delete --------------------------------------------------------------------------------------


def test_our_own_allocations_are_deleted(world: World, allocation_writer: AllocationWriter) -> None:
    node = world.provider()
    effect = intent(node)
    allocation_writer.write(effect)
    assert allocation_writer.delete(undo(effect)).gone
    assert world.used(node) == 0


def test_deleting_twice_is_deleting_once(world: World, allocation_writer: AllocationWriter) -> None:
    effect = intent(world.provider())
    allocation_writer.write(effect)
    assert allocation_writer.delete(undo(effect)).gone
    assert allocation_writer.delete(undo(effect)).gone


def test_a_delete_whose_answer_is_lost(world: World, allocation_writer: AllocationWriter) -> None:
    effect = intent(world.provider())
    allocation_writer.write(effect)
    world.http.faults = [carried_out, lost_reply]
    assert allocation_writer.delete(undo(effect)).gone


def test_later_allocations_of_another_writer_are_not_touched(world: World, allocation_writer: AllocationWriter) -> None:
    mine, theirs = world.provider(), world.provider()
    effect = intent(mine)
    allocation_writer.write(effect)
    world.take(effect.consumer, {theirs: {"VCPU": 1}}, generation=1)
    assert allocation_writer.delete(undo(effect)).gone  # ours is no part of it
    assert world.used(theirs) == 1


def test_extended_allocations_are_not_touched_and_reported(world: World, allocation_writer: AllocationWriter) -> None:
    mine, theirs = world.provider(), world.provider()
    effect = intent(mine)
    allocation_writer.write(effect)
    world.take(effect.consumer, {mine: {"VCPU": 1}, theirs: {"VCPU": 1}}, generation=1)
    answer = allocation_writer.delete(undo(effect))
    assert not answer.gone and "left alone" in answer.detail
    assert world.used(mine) == 1


def test_a_delete_that_loses_a_race_reads_again(world: World, allocation_writer: AllocationWriter) -> None:
    mine, theirs = world.provider(), world.provider()
    effect = intent(mine)
    allocation_writer.write(effect)

    def overtake(method: str, path: str, go: object) -> object:
        world.take(effect.consumer, {theirs: {"VCPU": 1}}, generation=1)
        return go()  # type: ignore[operator]

    world.http.faults = [carried_out, overtake]  # type: ignore[list-item]
    assert allocation_writer.delete(undo(effect)).gone
    assert world.used(theirs) == 1


def test_a_delete_without_an_answer_is_repeated_later(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    node = world.provider()
    effect = intent(node)
    allocation_writer.write(effect)
    world.http.faults = [never_sent] * 1000
    assert not allocation_writer.delete(undo(effect)).gone
    world.http.faults = []
    clock.now += CHECKS_AFTER_S[0]
    allocation_writer.sweep(busy=lambda _: False)
    assert world.used(node) == 0
