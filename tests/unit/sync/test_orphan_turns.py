# SPDX-License-Identifier: Apache-2.0
"""Schedulers take turns with shelved servers: a delete that comes late must not find the next unshelve."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest
import requests

from shared_scheduler.core.effects import DeleteAllocation
from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S
from shared_scheduler.sync.orphan_search import LAG_S, TURN_S, TURN_WAIT_S, Turns
from shared_scheduler.sync.orphan_sweeper import LISTEN_S, LastingTurns
from tests.unit.placement.conftest import placement_app, world
from tests.unit.sync.orphan_site import SWEEP_S, Site, site


class HeldWrites:
    """Writes that a proxy holds; their callers give them up."""

    def __init__(self) -> None:
        self._held: list[Callable[[], requests.Response]] = []

    def hold(self, _: str, __: str, carry_out: Callable[[], requests.Response]) -> requests.Response:
        """A fault for a write."""
        self._held.append(carry_out)
        raise requests.exceptions.ReadTimeout("read timed out")

    def __len__(self) -> int:
        return len(self._held)

    def arrive(self) -> None:
        """Placement carries them out."""
        for carry_out in self._held:
            carry_out()


def turn_of(server: str, turn: int) -> Turns:
    """The turns of the one of two schedulers that checks a server in this turn."""
    return next(turns for turns in (Turns(0, 2), Turns(1, 2)) if turns.has_turn(server, TURN_WAIT_S) is (turn == 0))


def test_a_delete_that_comes_late_does_not_find_the_next_unshelve(site: Site) -> None:
    # given a shelved server with an orphaned allocation, and two schedulers
    node, server, held = site.world.provider(), site.shelved(), HeldWrites()
    first, second = (site.scheduler(turn_of(server, turn)) for turn in (0, 1))
    site.take(server, node)
    # when the delete of one gets no answer, and the other one sweeps
    site.world.http.every_write = held.hold
    site.sweep_in_turn(first)
    site.world.http.every_write = None
    site.wait(5.0)
    list(second.sweep())
    # then the record stays until the delete has come: an unshelve would make one with the same generation
    assert site.holds(server)
    held.arrive()
    site.take(server, node)
    assert site.holds(server)


def test_a_delete_of_the_request_that_failed_does_not_find_the_next_unshelve(site: Site) -> None:
    # given an unshelve that another scheduler has ended without an answer to its own delete
    node, server, held = site.world.provider(), site.shelved(), HeldWrites()
    site.take(server, node)
    delete = DeleteAllocation("claim", server, {node: {"VCPU": 1}}, "req", sole_until_s=float("inf"))
    site.world.http.every_write = held.hold
    assert not site.new_writer().delete(delete).gone
    site.world.http.every_write = None
    site.nova.change_instance(server, task_state=None)
    # when the allocation is found
    site.wait(SWEEP_S)
    site.sweep_in_turn()
    # then the record stays until the delete has come: an unshelve would make one with the same generation
    assert site.holds(server)
    held.arrive()
    site.take(server, node)
    assert site.holds(server)


@pytest.mark.parametrize("restart", [False, True], ids=["known", "forgotten"])
@pytest.mark.parametrize("count", [2, 3])
def test_no_scheduler_deletes_while_the_delete_of_another_one_may_arrive(site: Site, count: int, restart: bool) -> None:
    # given schedulers whose deletes get no answer; each sweeps at a time of its own, and may forget between its
    # turns what it has done
    server, held, sent = site.shelved(), HeldWrites(), list[tuple[float, int]]()
    site.take(server, site.world.provider())
    site.world.http.every_write = held.hold
    schedulers = [site.scheduler(Turns(rank, count)) for rank in range(count)]
    # when they sweep for some turns
    while site.now_s < 2 * count * TURN_S:
        for rank in range(count):
            deletes = len(held)
            if restart and site.now_s % TURN_S < TURN_WAIT_S:
                schedulers[rank] = site.scheduler(Turns(rank, count))
            list(schedulers[rank].sweep())
            sent += [(site.now_s, rank)] * (len(held) - deletes)
            site.wait(SWEEP_S / count)
    # then each has tried it, and none before the delete of the one before has arrived
    assert {rank for _, rank in sent} == {*range(count)}
    changes = [(at_s, later_s) for (at_s, one), (later_s, other) in pairwise(sent) if one != other]
    assert min(later_s - at_s for at_s, later_s in changes) >= CARRIED_OUT_WITHIN_S


def test_another_scheduler_deletes_what_the_first_one_does_not(site: Site) -> None:
    # given a shelved server with an orphaned allocation in the first turn of a scheduler that does not sweep
    node, server = site.world.provider(), site.shelved()
    second = site.scheduler(turn_of(server, 1))
    site.take(server, node)
    list(second.sweep())
    site.wait(TURN_S)
    # when it is the turn of another one
    told = site.sweep_in_turn(second)
    # then
    assert not site.holds(server)
    assert [event.node for event in told] == [node]


def test_a_record_stays_while_a_write_of_its_scheduler_may_arrive(site: Site) -> None:
    # given an unshelve that was given up, and its scheduler, whose delete got no answer
    node, server, held = site.world.provider(), site.shelved(), HeldWrites()
    site.take(server, node)
    site.world.http.every_write = held.hold
    written = {node: {"VCPU": 1}}
    assert not site.writer.delete(DeleteAllocation("claim", server, written, "req", sole_until_s=float("inf"))).gone
    site.world.http.every_write = None
    # when
    site.sweep_in_turn()
    # then
    assert site.holds(server)
    site.wait(TURN_S)
    site.sweep_in_turn()
    assert not site.holds(server)


def test_a_scheduler_does_not_delete_after_its_turn(site: Site) -> None:
    # given two schedulers, and a Placement that takes so long to be read that the turn of the first one is over
    node, server = site.world.provider(), site.shelved()
    first, second = (site.scheduler(turn_of(server, turn)) for turn in (0, 1))
    site.take(server, node)

    def slowly(_: str, __: str, carry_out: Callable[[], requests.Response]) -> requests.Response:
        site.wait(TURN_S - TURN_WAIT_S)
        return carry_out()

    list(first.sweep())
    site.wait(LAG_S)
    site.world.http.faults = [slowly]
    list(first.sweep())
    # then it leaves the server to the second one
    assert site.holds(server)
    site.wait(TURN_WAIT_S)
    site.sweep_in_turn(second)
    assert not site.holds(server)


def test_a_server_that_changed_in_the_future_is_not_checked(site: Site) -> None:
    # given a nova-conductor whose clock is fast, and an unshelve that it has given up a moment ago
    server = site.shelved()
    site.take(server, site.world.provider())
    site.wait(15.0 - TURN_WAIT_S)
    # when it is found by the scheduler that counts the turn as its own
    for scheduler in (site.sut, *(site.scheduler(turn_of(server, turn)) for turn in (0, 1))):
        site.nova.now -= timedelta(seconds=30.0)
        list(scheduler.sweep())
        site.nova.now += timedelta(seconds=30.0)
    # then the delete of another scheduler may still arrive
    assert site.holds(server)


def test_a_scheduler_does_not_repeat_the_delete_of_its_sweep_while_it_may_arrive(site: Site) -> None:
    # given a sweep whose delete got no answer
    node, server, held = site.world.provider(), site.shelved(), HeldWrites()
    site.take(server, node)
    site.world.http.every_write = held.hold
    site.sweep_in_turn()
    site.world.http.every_write = None
    # when the scheduler deletes what it wrote for the unshelve
    delete = DeleteAllocation("claim", server, {node: {"VCPU": 1}}, "req", sole_until_s=float("inf"))
    # then it waits
    assert not site.writer.delete(delete).gone
    assert site.holds(server)
    site.wait(CARRIED_OUT_WITHIN_S)
    assert site.writer.delete(delete).gone


def test_schedulers_that_hear_nothing_of_each_other_keep_their_turns() -> None:
    # given three schedulers that have heard of each other, and a message queue that is away
    now_s, live = 0.0, ["a", "b", "c"]
    schedulers = LastingTurns(lambda: ("b", live), lambda: now_s)
    schedulers.turns()
    now_s = LISTEN_S
    assert schedulers.turns() == Turns(1, 3)
    live, now_s = ["b"], 1800.0
    # then the others have their turns still
    assert schedulers.turns() == Turns(1, 3)
    # but not for ever
    now_s = 3600.0 + LISTEN_S
    assert schedulers.turns() == Turns(0, 1)


def test_a_scheduler_that_hears_of_no_other_one_waits_for_the_turn_that_it_had(site: Site) -> None:
    # given a shelved server in the turn of another scheduler that is not heard any more
    server = site.shelved()
    site.take(server, site.world.provider())
    sweeper = site.scheduler(turns_now=lambda: turn_of(server, 1))
    # then its allocations are left to that one, until the next turn
    list(sweeper.sweep())
    assert site.holds(server)
    site.wait(TURN_S)
    site.sweep_in_turn(sweeper)
    assert not site.holds(server)


def test_a_scheduler_that_has_just_started_takes_no_turn_of_those_that_it_has_not_heard_yet(site: Site) -> None:
    # given a shelved server in the turn of a scheduler that serves, and another one that starts
    server, now_s, live = site.shelved(), 0.0, ["b"]
    site.take(server, site.world.provider())
    turns = LastingTurns(lambda: ("b", live), lambda: now_s)
    starting = site.scheduler(turns_now=turns.turns)
    # when it sweeps before it has heard of the others
    list(starting.sweep())
    # then it deletes nothing
    assert site.holds(server)
    # and takes its own turns as soon as it must have heard of them
    live, now_s = ["a", "b"], LISTEN_S
    assert turns.turns() == Turns(1, 2)


def lasting(own: str, *heard: tuple[str, ...]) -> Turns | None:
    """The turns of a scheduler that has heard of these, one set of live ones after the other."""
    now_s, left = 0.0, list(heard)
    turns = LastingTurns(lambda: (own, left[0]), lambda: now_s)
    while len(left) > 1:
        turns.turns()
        now_s += 10.0
        left.pop(0)
    turns.turns()
    now_s += LISTEN_S
    return turns.turns()


def test_a_scheduler_that_was_started_again_has_the_turns_that_it_had() -> None:
    # given two schedulers, the second of which was started again: the first has heard of both of its processes
    own = "ssched.scheduler.a.5.8c9dae0f"
    before, after = "ssched.scheduler.b.7.0a1b2c3d", "ssched.scheduler.b.9.4e5f6a7b"
    # then both count two schedulers, so their turns are not the same ones
    assert lasting(own, (own, before), (own, after)) == Turns(0, 2)
    assert lasting(after, (own, after)) == Turns(1, 2)


def test_a_scheduler_that_sweeps_before_its_channels_are_open_counts_once() -> None:
    # given a scheduler that has no address yet at its first sweep, because it still reads the databases
    name, own, other = "a", "ssched.scheduler.a.5.8c9dae0f", "ssched.scheduler.b.7.0a1b2c3d"
    now_s = 0.0
    seen: tuple[str, tuple[str, ...]] = name, (name,)
    turns = LastingTurns(lambda: seen, lambda: now_s)
    turns.turns()
    # when it has read them, after a while
    now_s, seen = LISTEN_S, (own, (own,))
    # then it listens before it takes a turn
    assert turns.turns() is None
    # and has the turns that the other one leaves to it
    now_s, seen = 2 * LISTEN_S, (own, (own, other))
    assert turns.turns() == Turns(0, 2)


def test_schedulers_that_are_started_again_and_again_leave_the_others_their_turns() -> None:
    # given a scheduler that ends every ten seconds
    own = "ssched.scheduler.a.5.8c9dae0f"
    live = [(own, f"ssched.scheduler.b.{process}.4e5f6a7b") for process in range(300)]
    # then the other one has every second turn still
    assert lasting(own, *live) == Turns(0, 2)


def test_two_workers_of_a_machine_have_different_turns() -> None:
    live = ("ssched.scheduler.a.worker0.5.8c9dae0f", "ssched.scheduler.a.worker1.6.4e5f6a7b")
    assert [lasting(own, live) for own in live] == [Turns(0, 2), Turns(1, 2)]


def test_a_name_with_dots_is_not_taken_for_a_process() -> None:
    # given a cell without a state channel, where the address of a scheduler is its name
    live = ("a.example.org", "b.example.org")
    assert lasting(live[0], live) == Turns(0, 2)
