# SPDX-License-Identifier: Apache-2.0
"""A move was abandoned and requested again: the present allocations are the second request's, not the first's."""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest
import requests

from shared_scheduler.core.effects import ConsumerPolicy, DeleteAllocation, WriteAllocation
from shared_scheduler.core.events import AllocationDeleted, WriteCode
from shared_scheduler.placement.allocation_writer import AllocationWriter
from shared_scheduler.placement.in_doubt_writes import AGAIN_AFTER_S, CHECKS_AFTER_S, UNDER_WAY_MAX_S
from shared_scheduler.placement.reconciler import ServerActivity, ServerLocation
from tests.unit.placement.intents import undo
from tests.unit.placement.real_placement import Clock, World, lost_reply, never_sent

UNDER_WAY, NO_OWNER, UNREAD = map(
    ServerLocation, (ServerActivity.UNDER_WAY, ServerActivity.NO_OWNER, ServerActivity.UNREAD)
)
#: Shelved, and on no host.
NOWHERE = ServerLocation(ServerActivity.AT_REST)


def lives_on(node: str) -> ServerLocation:
    return ServerLocation(ServerActivity.AT_REST, node)


class Site:
    """Two schedulers, a Placement, and a Nova that has one server."""

    def __init__(self, world: World, clock: Clock) -> None:
        self.world, self.clock = world, clock
        self.nova = NOWHERE
        self.asked: list[str] = []
        self.first, self.second = self._scheduler(1), self._scheduler(2)

    def _scheduler(self, seed: int) -> AllocationWriter:
        return AllocationWriter(self.world.client, self.clock, self.clock.pause, random.Random(seed), self._locate)

    def _locate(self, server: str) -> ServerLocation:
        self.asked.append(server)
        return self.nova

    def move(self, node: str, server: str = "", **changes: object) -> WriteAllocation:
        given: dict[str, object] = {
            "claim_id": str(uuid.uuid4()), "consumer": server or str(uuid.uuid4()),
            "allocations": {node: {"VCPU": 1}}, "mappings": {"": (node,)}, "project_id": "project",
            "user_id": "user", "policy": ConsumerPolicy.NEW, "serialise": False,
            "request_id": "req-1", "deadline_s": self.clock.now + 30.0,
        }  # fmt: skip
        return WriteAllocation(**(given | changes))  # type: ignore[arg-type]

    def give_up(self, effect: WriteAllocation) -> None:
        """The first scheduler's write arrives, and it never hears of it."""
        if effect.policy is ConsumerPolicy.MERGE:
            self.world.http.faults = [lambda _, __, go: go()]
        self.world.http.faults += [lost_reply, *[never_sent] * 1000]
        assert self.first.write(effect).code is WriteCode.UNREACHABLE
        self.world.http.faults = []
        assert self.first.in_doubt() == 1

    def take_back(self, effect: WriteAllocation, **changes: float) -> AllocationDeleted:
        """The first scheduler deletes what it wrote."""
        return self.first.delete(
            DeleteAllocation(effect.claim_id, effect.consumer, effect.allocations, effect.request_id, **changes)
        )

    def sweep(self, wait_s: float = CHECKS_AFTER_S[0]) -> None:
        self.clock.now += wait_s
        self.first.sweep(busy=lambda _: False)


@pytest.fixture
def site(world: World, clock: Clock) -> Site:
    return Site(world, clock)


def test_the_second_try_keeps_its_place_while_it_is_under_way(site: Site) -> None:
    # given a move that was given up after its write had come, and was taken away by the conductor
    node = site.world.provider()
    effect = site.move(node)
    site.give_up(effect)
    site.world.ok("DELETE", f"/allocations/{effect.consumer}")
    # and the same move again, by another scheduler onto the same host
    site.nova = UNDER_WAY
    assert site.second.write(site.move(node, effect.consumer)).code is WriteCode.WRITTEN
    # when the first one checks
    for wait_s in (*CHECKS_AFTER_S, AGAIN_AFTER_S):
        site.sweep(wait_s)
    # then
    assert site.world.used(node) == 1
    assert site.first.in_doubt() == 1


def test_a_delete_that_outlives_its_request_leaves_what_the_second_try_wrote(site: Site) -> None:
    # given a move that was given up, and the same move again, which another scheduler has answered
    node = site.world.provider()
    effect = site.move(node)
    site.give_up(effect)
    assert site.second.write(site.move(node, effect.consumer)).code is WriteCode.WRITTEN
    # when the delete of the first comes while the server moves, and when it has moved
    site.nova = UNDER_WAY
    early = site.take_back(effect)
    site.nova = lives_on(node)
    late = site.take_back(effect)
    # then it waits, and ends
    assert [(each.gone, each.left_alone) for each in (early, late)] == [(False, False), (False, True)]
    assert site.world.used(node) == 1


@pytest.mark.parametrize("nova", [NOWHERE, NO_OWNER, lives_on("another")])
def test_a_delete_after_its_request_frees_allocations_without_a_server(site: Site, nova: ServerLocation) -> None:
    node = site.world.provider()
    effect = site.move(node)
    site.give_up(effect)
    site.nova = nova
    assert site.take_back(effect).gone
    assert site.world.used(node) == 0


def test_a_delete_during_its_request_reads_no_database(site: Site) -> None:
    # given a write whose request is not answered: nova shows its own operation
    node = site.world.provider()
    effect = site.move(node)
    site.give_up(effect)
    site.nova = UNDER_WAY
    assert site.take_back(effect, sole_until_s=site.clock.now + 1.0).gone
    assert site.asked == []


def test_a_delete_that_nova_cannot_be_asked_about_is_not_done(site: Site) -> None:
    node = site.world.provider()
    effect = site.move(node)
    site.give_up(effect)
    site.nova = UNREAD
    unread = site.take_back(effect)
    assert (unread.gone, unread.left_alone) == (False, False)
    assert site.world.used(node) == 1


def test_the_allocation_on_the_final_host_is_kept(site: Site) -> None:
    node = site.world.provider()
    effect = site.move(node)
    site.give_up(effect)
    site.nova = lives_on(node)
    site.sweep()
    assert site.world.used(node) == 1
    assert site.first.in_doubt() == 0


def test_a_place_on_a_nested_provider_is_its_compute_nodes(site: Site) -> None:
    root = site.world.provider()
    effect = site.move(site.world.provider(parent=root))
    site.give_up(effect)
    site.nova = lives_on(root)
    site.sweep()
    assert site.world.client.consumer(effect.consumer).allocations


@pytest.mark.parametrize("nova", [NOWHERE, NO_OWNER, lives_on("another")])
def test_an_allocation_without_a_user_is_deleted(site: Site, nova: ServerLocation) -> None:
    node = site.world.provider()
    site.give_up(site.move(node))
    site.nova = nova
    site.sweep()
    assert site.world.used(node) == 0


def test_it_is_taken_back_when_the_second_try_has_failed_too(site: Site) -> None:
    node = site.world.provider()
    site.give_up(site.move(node))
    site.nova = UNDER_WAY
    site.sweep()
    site.nova = lives_on("another")
    site.sweep(AGAIN_AFTER_S)
    assert site.world.used(node) == 0


def test_an_operation_under_way_for_too_long_is_dropped_and_logged(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    node = site.world.provider()
    effect = site.move(node)
    site.give_up(effect)
    site.nova = UNDER_WAY
    with caplog.at_level(logging.WARNING):
        site.sweep()
        site.sweep(UNDER_WAY_MAX_S - 1)
        assert (site.first.in_doubt(), caplog.messages) == (1, [])
        site.sweep(AGAIN_AFTER_S)
    assert site.first.in_doubt() == 0
    assert site.world.used(node) == 1
    [said] = caplog.messages
    assert effect.consumer in said and "nova-manage placement heal_allocations" in said


def test_a_nova_that_cannot_be_read_is_asked_again_for_ever(site: Site) -> None:
    node = site.world.provider()
    site.give_up(site.move(node))
    site.nova = UNREAD
    for _ in range(3):
        site.sweep(UNDER_WAY_MAX_S)
    assert (site.world.used(node), site.first.in_doubt()) == (1, 1)
    site.nova = NOWHERE
    site.sweep(AGAIN_AFTER_S)
    assert site.world.used(node) == 0


def test_nova_is_read_only_if_our_allocation_exists(site: Site) -> None:
    node, other = site.world.provider(), site.world.provider()
    effect = site.move(node)
    site.give_up(effect)
    site.world.take(effect.consumer, {other: {"VCPU": 1}}, generation=1)
    site.sweep()
    assert site.asked == []


def test_a_place_that_the_second_try_finds_becomes_its_own(site: Site) -> None:
    """It begins after Nova was asked, and what it wants stands there already."""
    node = site.world.provider()
    effect = site.move(node)
    site.give_up(effect)

    def overtaken(_: str, __: str, carry_out: Callable[[], requests.Response]) -> requests.Response:
        site.world.http.every_write = None
        again = site.move(node, effect.consumer)
        assert site.second.write(again).code is WriteCode.WRITTEN
        return carry_out()

    site.world.http.every_write = overtaken
    site.sweep()
    assert site.world.used(node) == 1


def test_an_evacuation_is_judged_by_where_it_went_and_goes_back_to_what_it_found(site: Site) -> None:
    # given an evacuation that was given up; the server still lives where it was
    source, target = site.world.provider(), site.world.provider()
    effect = site.move(target, policy=ConsumerPolicy.MERGE)
    site.world.take(effect.consumer, {source: {"VCPU": 1}})
    site.give_up(effect)
    assert (site.world.used(source), site.world.used(target)) == (1, 1)
    site.nova = lives_on(source)
    site.sweep()
    assert (site.world.used(source), site.world.used(target)) == (1, 0)


@pytest.mark.parametrize("is_back", [False, True])
def test_a_failed_evacuation_is_taken_back_beside_what_others_have_changed_since(site: Site, is_back: bool) -> None:
    # given an evacuation that failed after its write; a port was attached meanwhile, or the source has returned
    source, target, port = site.world.provider(), site.world.provider(), site.world.provider()
    effect = site.move(target, policy=ConsumerPolicy.MERGE)
    site.world.take(effect.consumer, {source: {"VCPU": 1}})
    written = site.first.write(effect)
    rest = {port: {"VCPU": 3}} | ({} if is_back else {source: {"VCPU": 1}})
    site.world.take(effect.consumer, rest | {target: {"VCPU": 1}}, generation=2)
    delete = replace(undo(effect, written.before, written.written), generation=written.generation)

    # when the delete comes while the conductor waits: another scheduler may have got the request, and have answered
    site.nova = UNDER_WAY
    early = site.first.delete(delete)
    assert (early.gone, early.left_alone, early.changed, site.world.used(target)) == (False, False, True, 1)

    # then it waits until Nova shows that the server is not there
    site.nova = lives_on(source)
    assert site.first.delete(delete).gone
    assert site.world.client.consumer(effect.consumer).allocations == rest


def test_an_evacuation_that_another_scheduler_has_answered_is_left_alone(site: Site) -> None:
    # given one evacuation that was delivered to two schedulers, which have chosen the same host
    source, target = site.world.provider(), site.world.provider()
    effect = site.move(target, policy=ConsumerPolicy.MERGE)
    site.world.take(effect.consumer, {source: {"VCPU": 1}})
    written = site.first.write(effect)
    assert site.second.write(effect).code is WriteCode.WRITTEN
    # when the first one fails, and the server lives on that host
    site.nova = lives_on(target)
    late = site.first.delete(replace(undo(effect, written.before, written.written), generation=written.generation))
    # then
    assert (late.gone, late.left_alone, site.world.used(target)) == (False, True, 1)
