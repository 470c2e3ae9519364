# SPDX-License-Identifier: Apache-2.0
"""A request to Placement that is carried out after its sender has stopped waiting, and a late clean-up of a loser.

The server was requested again meanwhile, and placed.  A generation alone does not protect its allocations: Placement
removes the record of a consumer with its last allocation, and the next record begins with the same generation.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import requests

from shared_scheduler.core.effects import DeleteAllocation, WriteAllocation
from shared_scheduler.core.events import AllocationWritten, WriteCode
from shared_scheduler.placement.allocation_writer import AllocationWriter
from shared_scheduler.placement.connection import Reply
from shared_scheduler.placement.in_doubt_writes import AGAIN_AFTER_S, CHECKS_AFTER_S
from shared_scheduler.placement.reconciler import ServerActivity, ServerLocation, without_nova
from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S
from tests.unit.placement.intents import intent, undo
from tests.unit.placement.real_placement import (
    Clock,
    Fault,
    World,
    carried_out,
    in_trouble,
    lost_reply,
    never_sent,
    refused,
)
from tests.unit.placement.test_allocation_writer import evacuated
from tests.unit.placement.test_known_generation import known
from tests.unit.placement.test_whose_conflict import drop_record, orphan

#: longer than any proxy or server keeps a request
LONG_S = 2 * CARRIED_OUT_WITHIN_S


class Held:
    """A request that is delayed: its sender gets no answer, and it arrives later."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], requests.Response]] = []

    def __call__(self, _: str, __: str, go: Callable[[], requests.Response]) -> requests.Response:
        self.waiting.append(go)
        raise requests.exceptions.ReadTimeout("read timed out")

    def arrive(self) -> list[int]:
        """All of them are carried out; their HTTP status codes."""
        waiting, self.waiting = self.waiting, []
        return [go().status_code for go in waiting]


def clean_up(writer: AllocationWriter, delete: DeleteAllocation, clock: Clock) -> None:
    """Delete as the core does: again and again, until the allocations are gone."""
    until_s = clock.now + LONG_S
    while not writer.delete(delete).gone and clock.now < until_s:
        clock.now += 5.0


def placed_again(world: World, writer: AllocationWriter, effect: WriteAllocation, clock: Clock) -> WriteAllocation:
    """The same server is asked for again, and another scheduler places it on another host."""
    again = intent(world.provider(), consumer=effect.consumer, deadline_s=clock.now + 30.0)
    assert writer.write(again).code is WriteCode.WRITTEN
    return again


def holds(world: World, effect: WriteAllocation) -> bool:
    return world.client.consumer(effect.consumer).allocations == effect.allocations


def test_a_delete_that_arrives_late_leaves_the_next_attempt(
    world: World, allocation_writer: AllocationWriter, other_writer: AllocationWriter, clock: Clock
) -> None:
    # given a claim that is cleaned up, and a delete that is stuck on its way
    held, effect = Held(), intent(world.provider())
    allocation_writer.write(effect)
    world.http.faults, sent_s = [carried_out, held], clock.now
    allocation_writer.delete(undo(effect))
    clean_up(allocation_writer, undo(effect), clock)

    # when the server is placed again as soon as it can be, and the delete arrives at last
    winner = placed_again(world, other_writer, effect, clock)
    if clock.now < sent_s + CARRIED_OUT_WITHIN_S:
        held.arrive()

    # then the server keeps what it was answered
    assert holds(world, winner)


def test_a_replacement_that_arrives_late_leaves_the_next_attempt(
    world: World, allocation_writer: AllocationWriter, other_writer: AllocationWriter, clock: Clock
) -> None:
    # given a write that was given up and came after all
    held, first = Held(), intent(world.provider())
    world.http.faults = [lost_reply] + [never_sent] * 1000
    assert allocation_writer.write(first).code is WriteCode.UNREACHABLE
    world.http.faults = []

    # and the next host, with a write that replaces the first one, and is stuck on its way
    second = intent(world.provider(), consumer=first.consumer, deadline_s=clock.now + 30.0)
    world.http.faults = [carried_out, carried_out, held, *[never_sent] * 1000]
    sent_s = clock.now
    assert allocation_writer.write(second).code is WriteCode.UNREACHABLE
    world.http.faults = []

    # when both are cleaned up, and the server is placed again at once
    clean_up(allocation_writer, undo(second), clock)
    while world.client.consumer(first.consumer).allocations and clock.now < sent_s + LONG_S:
        clock.now += AGAIN_AFTER_S
        allocation_writer.sweep(busy=lambda _: False)
    winner = placed_again(world, other_writer, first, clock)
    if clock.now < sent_s + CARRIED_OUT_WITHIN_S:
        held.arrive()

    # then the server keeps what it was answered
    assert holds(world, winner)


def test_a_loser_leaves_what_the_winner_wrote_after_its_own_late_write_was_deleted(
    world: World, allocation_writer: AllocationWriter, other_writer: AllocationWriter
) -> None:
    # given one request that two schedulers got, and a write of the first one that was given up and came after all
    effect = intent(world.provider())
    world.http.faults = [lost_reply] + [never_sent] * 1000
    given_up = allocation_writer.write(effect)
    assert given_up.code is WriteCode.UNREACHABLE
    world.http.faults = []

    # when it deletes that, and the second one answers with the same host
    assert allocation_writer.delete(replace(undo(effect), generation=given_up.generation)).gone
    assert other_writer.write(replace(effect, claim_id="of-the-winner")).code is WriteCode.WRITTEN

    # then the first one finds no other host
    other_host = intent(world.provider(), consumer=effect.consumer)
    assert allocation_writer.write(other_host).code is WriteCode.CONSUMER_CONFLICT
    assert holds(world, effect)


def test_a_loser_leaves_what_the_winner_wrote_after_its_delete_got_no_answer(
    world: World, allocation_writer: AllocationWriter, other_writer: AllocationWriter, clock: Clock
) -> None:
    # given one request that two schedulers got, and a write of the first one that was given up and came after all
    effect = intent(world.provider())
    world.http.faults = [lost_reply] + [never_sent] * 1000
    given_up = allocation_writer.write(effect)
    world.http.faults = []

    # when it deletes that, and does not hear of it, and the second one answers with the same host
    world.http.faults = [carried_out, lost_reply]
    assert allocation_writer.delete(replace(undo(effect), generation=given_up.generation)).gone
    assert other_writer.write(replace(effect, deadline_s=clock.now + 30.0)).code is WriteCode.WRITTEN

    # then the first one finds no other host
    other_host = intent(world.provider(), consumer=effect.consumer, deadline_s=clock.now + 30.0)
    assert allocation_writer.write(other_host).code is WriteCode.CONSUMER_CONFLICT
    assert holds(world, effect)


def test_a_loser_leaves_what_the_winner_wrote_after_a_check_has_deleted_its_own_late_write(
    world: World, allocation_writer: AllocationWriter, other_writer: AllocationWriter, clock: Clock
) -> None:
    # given one request that two schedulers got, and a write of the first one that arrives after its claim was deleted
    held, effect = Held(), intent(world.provider())
    world.http.faults = [held, *[never_sent] * 1000]
    given_up = allocation_writer.write(effect)
    world.http.faults = []
    assert allocation_writer.delete(replace(undo(effect), generation=given_up.generation)).gone
    held.arrive()
    assert holds(world, effect)

    # when a check deletes that, and the second one answers with the same host
    clock.now += CHECKS_AFTER_S[0]
    allocation_writer.sweep(busy=lambda _: False)
    assert other_writer.write(replace(effect, deadline_s=clock.now + 30.0)).code is WriteCode.WRITTEN

    # then the first one finds no other host
    other_host = intent(world.provider(), consumer=effect.consumer, deadline_s=clock.now + 30.0)
    assert allocation_writer.write(other_host).code is WriteCode.CONSUMER_CONFLICT
    assert holds(world, effect)


@pytest.mark.parametrize("activity", [ServerActivity.NO_OWNER, ServerActivity.UNDER_WAY, ServerActivity.AT_REST])
@pytest.mark.parametrize("deletes", [False, True])
def test_a_loser_leaves_what_stands_for_a_new_server_that_has_an_answer(
    world: World, other_writer: AllocationWriter, clock: Clock, activity: ServerActivity, deletes: bool
) -> None:
    # given one request that two schedulers got, and a write of the first one that was given up and never came
    node = world.provider()
    location, effect = ServerLocation(activity, node), intent(node, is_new=True)
    loser = AllocationWriter(world.client, clock, clock.pause, random.Random(1), lambda _: location)
    world.http.faults = [Held(), *[never_sent] * 1000]
    given_up = loser.write(effect)
    assert given_up.code is WriteCode.UNREACHABLE
    world.http.faults = []
    assert other_writer.write(replace(effect, claim_id="of-the-winner")).code is WriteCode.WRITTEN

    # when the first one deletes what it may have written, or goes on with another host
    answered = activity is not ServerActivity.NO_OWNER
    if deletes:
        gone = loser.delete(replace(undo(effect), generation=given_up.generation, is_new=True)).gone
        assert gone != answered
    else:
        answer = loser.write(intent(world.provider(), consumer=effect.consumer, is_new=True))
        assert answer.code is (WriteCode.CONSUMER_CONFLICT if answered else WriteCode.WRITTEN)

    # then what stands is kept, if the second one has answered, so that Nova has the server in a cell
    assert holds(world, effect) == answered


#: how long Nova may not know of an answer here
NOVA_KNOWS_S = 20.0


def placed_twice(
    world: World, loser: AllocationWriter, winner: AllocationWriter, clock: Clock, there: str, deletes: bool = False
) -> str:
    """A new server that two schedulers have answered: the winner with this host, and the loser with another one.

    The first write of the loser was given up and never came, so it took what the winner had written for its own, and
    replaced it, or ``deletes`` it first.  The uuid of the server."""
    effect = intent(there, is_new=True)
    world.http.faults = [Held(), *[never_sent] * 1000]
    given_up = loser.write(effect)
    assert given_up.code is WriteCode.UNREACHABLE
    world.http.faults = []
    assert winner.write(replace(effect, claim_id="of-the-winner")).code is WriteCode.WRITTEN
    if deletes:
        assert loser.delete(replace(undo(effect), generation=given_up.generation, is_new=True)).gone
    knows_s = clock.now + NOVA_KNOWS_S
    other_host = intent(world.provider(), consumer=effect.consumer, is_new=True, nova_knows_s=knows_s)
    assert loser.write(other_host).code is WriteCode.WRITTEN
    assert holds(world, other_host)
    return effect.consumer


def checked_for_long(writer: AllocationWriter, clock: Clock) -> None:
    """The writes in doubt are checked as long as there are any."""
    until_s = clock.now + LONG_S
    while clock.now < until_s:
        clock.now += AGAIN_AFTER_S
        writer.sweep(busy=lambda _: False)


@pytest.mark.parametrize(("deletes", "is_given_up"), [(False, False), (True, False), (False, True)])
def test_a_server_that_two_schedulers_have_answered_keeps_nothing_where_it_does_not_live(
    world: World, other_writer: AllocationWriter, clock: Clock, deletes: bool, is_given_up: bool
) -> None:
    there, found = world.provider(), [ServerLocation(ServerActivity.NO_OWNER)]
    loser = AllocationWriter(world.client, clock, clock.pause, random.Random(1), lambda _: found[-1])
    server = placed_twice(world, loser, other_writer, clock, there, deletes)
    # when it is built where the winner has placed it, or Nova has given that up
    clock.now += NOVA_KNOWS_S
    found.append(ServerLocation(ServerActivity.UNDER_WAY))
    loser.sweep(busy=lambda _: False)
    buried = ServerLocation(ServerActivity.NO_OWNER, deleted=True)
    found.append(buried if is_given_up else ServerLocation(ServerActivity.AT_REST, there))
    checked_for_long(loser, clock)
    # then the other host is free again, and what it lacks can be written by nova-manage
    assert not world.client.consumer(server).allocations


@pytest.mark.parametrize("activity", ServerActivity)
def test_a_server_that_two_schedulers_have_answered_keeps_what_it_may_need(
    world: World, other_writer: AllocationWriter, clock: Clock, activity: ServerActivity
) -> None:
    found = [ServerLocation(ServerActivity.NO_OWNER)]
    loser = AllocationWriter(world.client, clock, clock.pause, random.Random(1), lambda _: found[-1])
    server = placed_twice(world, loser, other_writer, clock, world.provider())
    standing = world.client.consumer(server)
    (here,) = standing.allocations
    # when it is built where the loser has placed it, or Nova does not show yet where
    found.append(ServerLocation(activity, here))
    checked_for_long(loser, clock)
    # then that stays
    assert world.client.consumer(server) == standing


def test_a_claim_asks_nova_before_it_deletes_what_another_one_of_its_scheduler_was_answered_with(
    world: World, clock: Clock
) -> None:
    # given a new server that was answered, and has come to its host
    node = world.provider()
    there, effect = ServerLocation(ServerActivity.AT_REST, node), intent(node, is_new=True, nova_knows_s=clock.now + 60)
    writer = AllocationWriter(world.client, clock, clock.pause, random.Random(1), lambda _: there)
    assert writer.write(effect).code is WriteCode.WRITTEN
    # when another claim takes back the same, in the generation of a first write
    answer = writer.delete(replace(undo(effect), claim_id="another", generation=1, is_new=True))
    # then that stays
    assert (answer.gone, answer.left_alone) == (False, True)
    assert holds(world, effect)


def test_a_loser_leaves_what_the_winner_wrote_again(
    world: World, allocation_writer: AllocationWriter, other_writer: AllocationWriter
) -> None:
    # given one request that two schedulers got, and both chose the same host
    effect = intent(world.provider())
    lost = allocation_writer.write(effect)
    assert lost.code is WriteCode.WRITTEN
    assert other_writer.write(replace(effect, claim_id="of-the-winner")).code is WriteCode.WRITTEN

    # when the first one cleans up before its deadline, at which nobody asks Nova
    delete = replace(undo(effect), generation=lost.generation)
    answer = allocation_writer.delete(delete)

    # then the allocations stay, although their amounts are those that it wrote
    assert (answer.gone, answer.left_alone) == (False, True)
    assert holds(world, effect)


@pytest.mark.parametrize("deletes_first", [False, True])
def test_a_winner_whose_write_got_no_answer_keeps_what_a_loser_has_written(
    world: World, allocation_writer: AllocationWriter, other_writer: AllocationWriter, deletes_first: bool
) -> None:
    # given one request that two schedulers got, and the loser has created the consumer
    effect = intent(world.provider())
    loser = other_writer.write(replace(effect, claim_id="of-the-loser"))
    delete = replace(undo(effect), generation=loser.generation)

    # when the write of the winner gets no answer, and is not carried out; and the loser, which finds no host for
    # another server of the request, cleans up before its deadline: after the answer of the winner, or before
    def overtaken(method: str, path: str, go: Callable[[], requests.Response]) -> requests.Response:
        assert other_writer.delete(delete).gone
        return go()

    world.http.faults = [Held(), carried_out, *[overtaken] * deletes_first]
    assert allocation_writer.write(effect).code is WriteCode.WRITTEN
    if not deletes_first:
        assert other_writer.delete(delete).left_alone

    # then the allocations stay: the winner answers with them
    assert holds(world, effect)


def test_a_winner_whose_write_got_no_answer_keeps_what_a_loser_has_written_again_at_the_same_moment(
    world: World, allocation_writer: AllocationWriter, other_writer: AllocationWriter
) -> None:
    # given one request that two schedulers got, and the winner has created the consumer, without an answer
    effect, losers = intent(world.provider()), []

    # when both write that again, and the loser is faster
    def overtaken(method: str, path: str, go: Callable[[], requests.Response]) -> requests.Response:
        losers.append(other_writer.write(replace(effect, claim_id="of-the-loser")))
        return go()

    world.http.faults = [lost_reply, carried_out, overtaken]
    winner = allocation_writer.write(effect)
    assert [winner.code, losers[0].code] == [WriteCode.WRITTEN] * 2

    # and the loser cleans up before its deadline
    other_writer.delete(replace(undo(effect), generation=losers[0].generation))

    # then the allocations stay: the winner answers with them
    assert holds(world, effect)


def test_what_was_written_twice_is_deleted_although_the_second_write_arrives_after_its_deadline(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    # given a write whose reply is lost, and which is sent once more, and has no answer until its deadline
    held, effect = Held(), intent(world.provider())

    def timed_out(method: str, path: str, go: Callable[[], requests.Response]) -> requests.Response:
        clock.now = effect.deadline_s
        return held(method, path, go)

    world.http.faults = [lost_reply, carried_out, timed_out]
    answer = allocation_writer.write(effect)
    assert answer.code is WriteCode.WRITTEN

    # when it arrives, and the request has ended meanwhile
    assert held.arrive() == [204]
    clean_up(allocation_writer, replace(undo(effect), generation=answer.generation), clock)

    # then nothing stays
    assert not world.client.consumer(effect.consumer).allocations


def test_a_loser_whose_write_got_no_answer_does_not_take_the_winners_for_its_own(
    world: World, allocation_writer: AllocationWriter, other_writer: AllocationWriter, clock: Clock
) -> None:
    # given a write that was given up and came after all, and the same host for the server again
    effect = intent(world.provider())
    world.http.faults = [lost_reply] + [never_sent] * 1000
    lost = allocation_writer.write(effect)
    world.http.faults = []
    winner = replace(effect, claim_id="of-the-winner", deadline_s=clock.now + 30.0)
    assert other_writer.write(winner).code is WriteCode.WRITTEN

    # when the loser cleans up, by its delete and by its checks
    delete = replace(undo(effect), generation=lost.generation, sole_until_s=clock.now + 30.0)
    allocation_writer.delete(delete)
    for wait_s in CHECKS_AFTER_S:
        clock.now += wait_s
        allocation_writer.sweep(busy=lambda _: False)

    # then the server keeps what it was answered
    assert holds(world, winner)


@pytest.mark.parametrize("fault", [carried_out, lost_reply])
def test_a_new_server_that_another_scheduler_has_answered_is_not_written_again(
    world: World, other_writer: AllocationWriter, clock: Clock, fault: Fault
) -> None:
    # given a server that another scheduler has placed, so that Nova has it in a cell
    effect = intent(world.provider(), is_new=True)
    assert other_writer.write(effect).code is WriteCode.WRITTEN
    in_cell = ServerLocation(ServerActivity.UNDER_WAY)
    loser = AllocationWriter(world.client, clock, clock.pause, random.Random(1), lambda _: in_cell)
    # when the same is written for the second copy of the request
    world.http.faults = [fault]
    answer = loser.write(replace(effect, claim_id="of-the-loser"))
    # then it stays as it is: the server may begin to move now, and its record begin anew with the same generation
    assert answer.code is WriteCode.CONSUMER_CONFLICT
    assert world.client.consumer(effect.consumer).generation == 1


@pytest.mark.parametrize("reads_first", [False, True])
@pytest.mark.parametrize("winner_fails", [False, True])
def test_an_evacuation_keeps_what_another_scheduler_has_merged_for_it(
    world: World, clock: Clock, reads_first: bool, winner_fails: bool
) -> None:
    # given one evacuation that two schedulers got, and both chose the same host
    under_way = ServerLocation(ServerActivity.UNDER_WAY)
    winner, loser = (
        AllocationWriter(world.client, clock, clock.pause, random.Random(seed), lambda _: under_way) for seed in (1, 2)
    )
    source, target, effect = evacuated(world)
    effect = effect if reads_first else known(world, effect)
    answers: list[AllocationWritten] = []

    def overtaken(_: str, __: str, go: Callable[[], requests.Response]) -> requests.Response:
        answers.append(winner.write(replace(effect, claim_id="of-the-winner")))
        return go()

    # when the write of the winner comes first, so that Placement refuses the one of the loser
    world.http.faults = [*[carried_out] * reads_first, overtaken]
    answers.append(loser.write(effect))
    assert [answer.code for answer in answers] == [WriteCode.WRITTEN] * 2

    # and one of them fails before its deadline, and cleans up
    answer, writer = (answers[0], winner) if winner_fails else (answers[1], loser)
    writer.delete(replace(undo(effect, answer.before, answer.written), generation=answer.generation))

    # then the allocations stay: the other one answers with them
    assert (world.used(source), world.used(target)) == (1, 1)


@pytest.mark.parametrize("refused_by_placement", [False, True])
def test_an_evacuation_whose_answer_was_lost_is_kept_when_the_scheduler_that_wrote_the_same_fails(
    world: World, clock: Clock, refused_by_placement: bool
) -> None:
    # given one evacuation that two schedulers got, and both chose the same host
    under_way = ServerLocation(ServerActivity.UNDER_WAY)
    winner, loser = (
        AllocationWriter(world.client, clock, clock.pause, random.Random(seed), lambda _: under_way) for seed in (1, 2)
    )
    source, target, effect = evacuated(world)
    effect = known(world, effect)
    answers: list[AllocationWritten] = []

    def overtaken_and_lost(_: str, __: str, go: Callable[[], requests.Response]) -> requests.Response:
        answers.append(winner.write(replace(effect, claim_id="of-the-winner")))
        if refused_by_placement:
            go()
        raise requests.exceptions.ReadTimeout("read timed out")

    # when the one that writes later gets no answer, and finds what the other one has written
    world.http.faults = [overtaken_and_lost]
    assert loser.write(effect).code is WriteCode.WRITTEN

    # and the other one fails before its deadline, and cleans up
    (answer,) = answers
    winner.delete(replace(undo(effect, answer.before, answer.written), generation=answer.generation))

    # then the allocations stay
    assert (world.used(source), world.used(target)) == (1, 1)


@pytest.mark.parametrize("fault", [Held(), lost_reply])
def test_a_write_without_an_answer_is_reported_as_possibly_late(
    world: World, allocation_writer: AllocationWriter, clock: Clock, fault: Fault
) -> None:
    effect = intent(world.provider(), deadline_s=clock.now + 5.0)
    world.http.faults = [fault, *[never_sent] * 1000]
    answer = allocation_writer.write(effect)
    assert (answer.code, answer.may_arrive) == (WriteCode.UNREACHABLE, True)


@pytest.mark.parametrize("sent", [True, False], ids=["sent", "never sent"])
def test_a_write_of_a_batch_without_an_answer_may_be_carried_out_if_the_batch_was_sent(
    world: World, allocation_writer: AllocationWriter, clock: Clock, sent: bool
) -> None:
    # given a batch without an answer, and a Placement that is away since then
    effect = intent(world.provider(), deadline_s=clock.now + 5.0)
    world.http.faults = [refused] * 1000
    # when the write is completed alone
    answer = allocation_writer.write(effect, Reply(0, sent=sent))
    # then the core learns whether it has to wait for the batch
    code = WriteCode.UNREACHABLE if sent else WriteCode.NOT_SERVED
    assert (answer.code, answer.may_arrive) == (code, sent)


def test_a_write_that_a_failing_placement_has_answered_is_over(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    effect = intent(world.provider(), deadline_s=clock.now + 5.0)
    world.http.every_write = in_trouble
    answer = allocation_writer.write(effect)
    assert (answer.code, answer.may_arrive) == (WriteCode.UNREACHABLE, False)


class Unfinished:
    """A write of a new consumer that Placement has begun: its sender gets no answer, and later it loses a race."""

    def __init__(self, consumer: str) -> None:
        self.consumer = consumer

    def __call__(self, *_: object) -> requests.Response:
        self.begin()
        raise requests.exceptions.ReadTimeout("read timed out")

    def begin(self) -> None:
        """Placement has committed the record of the consumer, and writes its allocations."""
        orphan(self.consumer)

    def lose(self) -> None:
        """Placement has used up its retries, and deletes the record that this write made."""
        drop_record(self.consumer)


@pytest.mark.parametrize("in_a_batch", [False, True], ids=["alone", "in a batch"])
def test_a_new_consumer_that_placement_may_still_be_writing_is_not_taken_for_an_orphan(
    world: World, allocation_writer: AllocationWriter, clock: Clock, in_a_batch: bool
) -> None:
    # given a write that Placement carries out for longer than anybody waits
    effect = intent(world.provider())
    unfinished = Unfinished(effect.consumer)
    if in_a_batch:
        unfinished.begin()
        allocation_writer.batch_failed((effect,), Reply(0))
    else:
        world.http.faults = [unfinished]

    # when the scheduler goes on, and the write fails at last
    answer = allocation_writer.write(effect, Reply(0, sent=True) if in_a_batch else None)
    unfinished.lose()

    # then no allocation is left without its consumer
    assert (answer.code, answer.may_arrive) == (WriteCode.PROVIDER_CONFLICT, True)
    assert world.used(next(iter(effect.allocations))) == 0

    # and the server can be placed again at once
    placed_again(world, allocation_writer, effect, clock)


def test_the_write_that_has_left_its_record_takes_it_over_when_it_cannot_arrive_any_more(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    # given a write whose Placement is killed after it has made the record, and is away for a while
    node, began_s = world.provider(), clock.now
    effect = intent(node, deadline_s=began_s + LONG_S)

    def killed(*_: object) -> requests.Response:
        clock.now += 0.75 * CARRIED_OUT_WITHIN_S
        return Unfinished(effect.consumer)()

    world.http.faults = [killed]

    # then it goes on until nobody can carry it out any more, and is written
    assert allocation_writer.write(effect).code is WriteCode.WRITTEN
    assert world.used(node) == 1
    assert CARRIED_OUT_WITHIN_S <= clock.now - began_s < LONG_S


def test_the_writes_of_a_batch_wait_for_their_records_together(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    # given a batch whose Placement is killed after it has made the records, and is away for a while
    effects = [intent(world.provider(), deadline_s=clock.now + LONG_S) for _ in range(2)]
    for effect in effects:
        orphan(effect.consumer)
    allocation_writer.batch_failed(effects, Reply(0))
    clock.now += 0.75 * CARRIED_OUT_WITHIN_S
    # when they are completed one after the other, then the second one does not wait as long again
    assert [allocation_writer.write(effect, Reply(0)).code for effect in effects] == [WriteCode.WRITTEN] * 2


def test_a_write_that_waits_for_its_record_ends_with_the_service(world: World, clock: Clock) -> None:
    # given a scheduler that stops, and a write whose Placement was killed after it had made the record
    writer = AllocationWriter(world.client, clock, lambda _: True, random.Random(1), without_nova)
    effect = intent(world.provider())
    orphan(effect.consumer)
    writer.batch_failed((effect,), Reply(0))
    world.http.calls.clear()
    # when the write is refused, then it is not sent again
    answer = writer.write(effect, Reply(0, sent=True))
    assert (answer.code, answer.may_arrive) == (WriteCode.PROVIDER_CONFLICT, True)
    assert [method for method, _ in world.http.calls] == ["GET", "PUT", "GET"]


def given_up(world: World, writer: AllocationWriter, clock: Clock) -> tuple[WriteAllocation, Unfinished]:
    """A write that is under way in Placement, and that its scheduler does not await any more."""
    effect = intent(world.provider(), deadline_s=clock.now + 1.0)
    unfinished = Unfinished(effect.consumer)
    world.http.faults = [unfinished]
    writer.write(effect)
    return effect, unfinished


def test_the_next_host_does_not_take_over_the_record_of_a_write_under_way(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    # given a server whose first write is under way in Placement, and was given up
    first, _ = given_up(world, allocation_writer, clock)

    # when its next host is written, then the record is left alone
    second = intent(world.provider(), consumer=first.consumer, deadline_s=clock.now + 30.0)
    assert allocation_writer.write(second).code is WriteCode.PROVIDER_CONFLICT

    # until the first write cannot be under way any more
    clock.now += CARRIED_OUT_WITHIN_S
    placed_again(world, allocation_writer, first, clock)


def test_another_scheduler_does_not_take_over_the_record_of_a_write_under_way(
    world: World, allocation_writer: AllocationWriter, other_writer: AllocationWriter, clock: Clock
) -> None:
    # given a server whose write is under way in Placement, and was given up by its scheduler
    first, unfinished = given_up(world, allocation_writer, clock)

    # when the server is asked for again by way of a scheduler that knows nothing of it, and the first write fails
    again = intent(world.provider(), consumer=first.consumer, deadline_s=clock.now + 30.0)
    answer = other_writer.write(again)
    unfinished.lose()

    # then no allocation is left without its consumer
    assert answer.code is WriteCode.CONSUMER_CONFLICT
    assert world.used(next(iter(again.allocations))) == 0
