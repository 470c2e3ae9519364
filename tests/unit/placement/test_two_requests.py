# SPDX-License-Identifier: Apache-2.0
"""Two requests for one server in one scheduler, on a real Placement: the write of one gets no answer, and what stands
was written for the other.  Nova does not know the server before that one is answered, and soon afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
import requests

from shared_scheduler.core import effects as ef
from shared_scheduler.core.events import AllocationDeleted, AllocationWritten, WriteCode
from shared_scheduler.model.moves import Move
from shared_scheduler.placement.connection import Reply
from shared_scheduler.placement.reconciler import ServerActivity, ServerLocation
from tests.unit.core.scheduler_driver import of_kind, request
from tests.unit.placement.one_scheduler import Nova, OneScheduler, node
from tests.unit.placement.real_placement import Clock, Fault, World, lost_reply, never_sent

SERVER, OTHER = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
LONG_S = 300.0


@pytest.fixture
def scheduler(world: World, clock: Clock, nova: Nova) -> OneScheduler:
    for consumer in (SERVER, OTHER):
        if world.client.consumer(consumer).allocations:
            world.ok("DELETE", f"/allocations/{consumer}")
    return OneScheduler(world, clock, nova)


def asked(scheduler: OneScheduler, request_id: str, *servers: str, **more: Any) -> list[ef.WriteAllocation]:
    scheduler.driver.now = max(scheduler.driver.now, scheduler.clock.now)
    return of_kind(ef.WriteAllocation, scheduler.driver.ask(request(*servers, request_id=request_id, **more)))


def carried_out(scheduler: OneScheduler, write: ef.WriteAllocation) -> None:
    """Placement answers the write, and all that follows is carried out."""
    scheduler.carry_out(scheduler.driver.give(scheduler.writer.write(write)))


def carried_out_in_a_batch(scheduler: OneScheduler, write: ef.WriteAllocation) -> None:
    """The same for one of many writes in one call."""
    scheduler.world.take(write.consumer, write.allocations)
    written = scheduler.writer.written(write, Reply(204))
    scheduler.carry_out(scheduler.driver.give(written))


def lost(_: str, __: str, ___: Callable[[], requests.Response]) -> requests.Response:
    """The call never reaches Placement, and nobody can tell."""
    raise requests.exceptions.ReadTimeout("read timed out")


def unanswered(
    scheduler: OneScheduler, do: Callable[[], AllocationWritten | AllocationDeleted], first: Fault = lost
) -> None:
    """A call is lost, and Placement is away until the end of the write or delete; then it is back."""
    scheduler.world.http.faults = [first, *[never_sent] * 1000]
    event = do()
    scheduler.world.http.faults = []
    scheduler.driver.now = scheduler.clock.now
    scheduler.carry_out(scheduler.driver.give(event))


def wait(scheduler: OneScheduler, for_s: float) -> None:
    """Time passes, with the checks of writes in doubt."""
    scheduler.carry_out(scheduler.driver.wait(for_s))
    scheduler.clock.now = max(scheduler.clock.now, scheduler.driver.now)
    scheduler.writer.sweep(busy=lambda _: False)


def told(scheduler: OneScheduler, write: ef.WriteAllocation, code: WriteCode) -> None:
    """The write of the other server ends so, after a long time; that server does not matter here."""
    event = AllocationWritten(write.claim_id, code, "", write.allocations, generation=1, cause=write.cause)
    scheduler.carry_out(scheduler.driver.give(event))


def outcomes(scheduler: OneScheduler) -> dict[str, type[ef.Effect]]:
    """How the requests have ended so far."""
    return {one.request.request_id: type(one) for one in scheduler.outcomes}


def one_is_written_and_one_is_lost(
    world: World, scheduler: OneScheduler, *, with_next_host: bool = True, in_a_batch: bool = False
) -> tuple[str, ef.WriteAllocation]:
    """The node of a server that is written for a request of two servers, and the write of the second one.  The write
    of another request for the first server has got no answer."""
    there = node(world)
    scheduler.driver.without_agents(there)
    first, second = asked(scheduler, "written", SERVER, OTHER)
    (again,) = asked(scheduler, "lost", SERVER)
    (carried_out_in_a_batch if in_a_batch else carried_out)(scheduler, first)
    if with_next_host:
        scheduler.driver.without_agents(node(world))
    unanswered(scheduler, lambda: scheduler.writer.write(again))
    return there, second


def test_a_request_does_not_take_what_another_has_written_to_the_next_host(
    world: World, scheduler: OneScheduler
) -> None:
    # given a request of two servers, one of which is written; the write of another request for it was lost
    there, second = one_is_written_and_one_is_lost(world, scheduler)
    # then that one has tried the next host, and has failed
    assert outcomes(scheduler) == {"lost": ef.Fail}
    # and when the first one is answered, what it was answered with stands
    told(scheduler, second, WriteCode.WRITTEN)
    assert outcomes(scheduler)["written"] is ef.Answer
    assert list(scheduler.stands(SERVER)) == [there]


@pytest.mark.parametrize("in_a_batch", [False, True])
@pytest.mark.parametrize("stops", [False, True])
def test_a_check_of_a_write_in_doubt_does_not_delete_what_another_request_has_written(
    world: World, scheduler: OneScheduler, in_a_batch: bool, stops: bool
) -> None:
    there, second = one_is_written_and_one_is_lost(world, scheduler, with_next_host=False, in_a_batch=in_a_batch)
    # when the writes in doubt are checked, before the first request is answered; all of them, if the scheduler stops
    scheduler.clock.now += 5.0
    scheduler.writer.sweep(busy=lambda _: False, everything=stops)
    told(scheduler, second, WriteCode.WRITTEN)
    # then what was answered stands
    assert outcomes(scheduler)["written"] is ef.Answer
    assert list(scheduler.stands(SERVER)) == [there]


def test_nothing_stands_when_both_requests_have_failed(world: World, scheduler: OneScheduler) -> None:
    _, second = one_is_written_and_one_is_lost(world, scheduler)
    # when the first request fails too, and the delete is lost as well
    fails = AllocationWritten(second.claim_id, WriteCode.CONSUMER_CONFLICT, "elsewhere", cause=second.cause)
    (delete,) = of_kind(ef.DeleteAllocation, scheduler.driver.give(fails))
    unanswered(scheduler, lambda: scheduler.writer.delete(delete))
    # then it is deleted nevertheless
    wait(scheduler, LONG_S)
    assert set(outcomes(scheduler).values()) == {ef.Fail}
    assert scheduler.stands(SERVER) == {}
    scheduler.driver.idle()


def test_a_request_that_comes_after_the_answer_does_not_delete_what_was_answered(
    world: World, scheduler: OneScheduler, nova: Nova
) -> None:
    # given an answer, and the same request, delivered again
    there = node(world)
    scheduler.driver.without_agents(there)
    carried_out(scheduler, *asked(scheduler, "answered", SERVER))
    (again,) = asked(scheduler, "lost", SERVER)
    # when its write is lost, before Nova knows the server
    unanswered(scheduler, lambda: scheduler.writer.write(again))
    wait(scheduler, 1.0)
    nova.found = ServerLocation(ServerActivity.AT_REST, there)
    wait(scheduler, LONG_S)
    # then what was answered stands
    assert list(scheduler.stands(SERVER)) == [there]
    scheduler.driver.idle()


def test_what_was_written_is_not_deleted_however_long_its_request_takes(world: World, scheduler: OneScheduler) -> None:
    # given a request of two servers, one of which is written
    there = node(world)
    scheduler.driver.without_agents(there)
    first, second = asked(scheduler, "written", SERVER, OTHER)
    carried_out(scheduler, first)
    # when the write of another request for it is lost some time later, and writes in doubt are checked
    scheduler.clock.now += 30.0
    (again,) = asked(scheduler, "lost", SERVER)
    unanswered(scheduler, lambda: scheduler.writer.write(again))
    scheduler.clock.now += 5.0
    scheduler.writer.sweep(busy=lambda _: False)
    # then what the first one is answered with at last stands
    told(scheduler, second, WriteCode.WRITTEN)
    assert outcomes(scheduler) == {"lost": ef.Fail, "written": ef.Answer}
    assert list(scheduler.stands(SERVER)) == [there]


def test_a_lost_write_that_arrives_after_a_failed_build_is_deleted(
    world: World, scheduler: OneScheduler, nova: Nova
) -> None:
    # given two requests for a server at once: one is answered, and the write of the other one is under way for long
    scheduler.driver.without_agents(node(world))
    (first,), (again,) = asked(scheduler, "answered", SERVER), asked(scheduler, "lost", SERVER)
    carried_out(scheduler, first)
    nova.found = ServerLocation(ServerActivity.UNDER_WAY)
    under_way: list[Callable[[], requests.Response]] = []

    def held(_: str, __: str, carry_out: Callable[[], requests.Response]) -> requests.Response:
        under_way.append(carry_out)
        raise requests.exceptions.ReadTimeout("read timed out")

    unanswered(scheduler, lambda: scheduler.writer.write(again), held)
    # when nova-compute cannot build the server, and removes its allocations, and the write arrives
    scheduler.remove_all(SERVER)
    under_way[0]()
    assert scheduler.stands(SERVER) != {}
    nova.found = ServerLocation(ServerActivity.AT_REST)
    # then it is deleted
    for _ in range(10):
        wait(scheduler, LONG_S / 10)
    assert scheduler.stands(SERVER) == {}
    scheduler.driver.idle()


def test_the_build_of_a_server_does_not_hide_a_write_of_its_unshelve(
    world: World, scheduler: OneScheduler, nova: Nova
) -> None:
    # given a server that was built, and shelved at once
    scheduler.driver.without_agents(node(world))
    carried_out(scheduler, *asked(scheduler, "build", SERVER))
    scheduler.remove_all(SERVER)
    nova.found = ServerLocation(ServerActivity.UNDER_WAY)
    # when it is unshelved to the same host, and that write is carried out without an answer
    scheduler.clock.now += 5.0
    (write,) = asked(scheduler, "unshelve", SERVER, move=Move.UNSHELVE)
    other = node(world)
    scheduler.driver.without_agents(other)
    unanswered(scheduler, lambda: scheduler.writer.write(write), lost_reply)
    # then the next host takes its place
    assert outcomes(scheduler) == {"build": ef.Answer, "unshelve": ef.Answer}
    assert list(scheduler.stands(SERVER)) == [other]
