# SPDX-License-Identifier: Apache-2.0
"""A move that meets allocations of others, on a real Placement: merged if the option names the move."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import requests

from shared_scheduler.core.allocation_merge import MAX_MERGES
from shared_scheduler.core.effects import ConsumerPolicy, WriteAllocation
from shared_scheduler.core.events import AllocationWritten, WriteCode
from shared_scheduler.placement.allocation_writer import AllocationWriter
from shared_scheduler.placement.reconciler import ServerActivity, ServerLocation
from tests.unit.placement.intents import intent, undo
from tests.unit.placement.real_placement import Clock, Fault, World, carried_out, lost_reply, raced

BANDWIDTH = "NET_BW_EGR_KILOBIT_PER_SEC"
Allocations = dict[str, dict[str, int]]


class Site:
    """A server on a source host with a port with QoS, and a move to a target host."""

    def __init__(self, world: World, move: str, is_known: bool = False) -> None:
        self.world, self.move = world, move
        self.source, self.target = world.provider(), world.provider()
        self.link = world.provider(parent=self.source, inventories={BANDWIDTH: {"total": 10_000}})
        self.evacuates = move == "evacuation"
        policy = ConsumerPolicy.MERGE if self.evacuates else ConsumerPolicy.NEW
        self.effect = intent(self.target, policy=policy, project_id="other", user_id="other")
        if self.evacuates:
            world.take(self.effect.consumer, {self.source: {"VCPU": 1}})
        world.http.calls.clear()

    def writer(self, *merged_moves: str) -> AllocationWriter:
        clock = Clock()
        return AllocationWriter(
            self.world.client, clock, clock.pause, random.Random(1), self._locate, merged_moves=merged_moves
        )

    def _locate(self, server: str) -> ServerLocation:
        assert server == self.effect.consumer
        return ServerLocation(ServerActivity.UNDER_WAY, move=self.move)

    def held(self) -> Allocations:
        found = self.world.client.consumer(self.effect.consumer).allocations
        return {provider: dict(amounts) for provider, amounts in found.items()}

    def add(self, provider: str, amounts: dict[str, int]) -> None:
        """Another writer adds to the server, as nova-compute does for a port."""
        standing = self.world.client.consumer(self.effect.consumer)
        row = dict(standing.allocations.get(provider, {}))
        row |= {name: row.get(name, 0) + amount for name, amount in amounts.items()}
        self.world.take(self.effect.consumer, {**standing.allocations, provider: row}, standing.generation)

    def before_the_write(self, *actions: Callable[[], None]) -> None:
        """Let others act, each right before one write of ours."""
        waiting = list(actions)

        def fault(_: str, __: str, go: Callable[[], requests.Response]) -> requests.Response:
            if waiting:
                self.world.http.every_write = None
                waiting.pop(0)()
                self.world.http.every_write = fault
            return go()

        self.world.http.every_write = fault

    def write(self, *merged_moves: str, effect: WriteAllocation | None = None) -> AllocationWritten:
        try:
            return self.writer(*merged_moves).write(effect or self.effect)
        finally:
            self.world.http.every_write = None

    @property
    def remains(self) -> Allocations:
        """What the server has besides our part and ports."""
        return {self.source: {"VCPU": 1}} if self.evacuates else {}


MOVES = ("migration", "resize", "live-migration", "evacuation")


@pytest.fixture(params=MOVES)
def site(world: World, request: pytest.FixtureRequest) -> Site:
    return Site(world, request.param)


def test_a_port_that_is_attached_during_the_move_is_kept(site: Site) -> None:
    site.before_the_write(lambda: site.add(site.link, {BANDWIDTH: 1000}))
    answer = site.write(site.move)
    port = {site.link: {BANDWIDTH: 1000}}
    assert answer.code is WriteCode.WRITTEN
    assert site.held() == site.remains | port | {site.target: {"VCPU": 1}}
    assert (answer.written, answer.before) == (site.held(), site.remains | port)


def test_without_the_option_the_move_fails_and_changes_nothing(site: Site) -> None:
    site.before_the_write(lambda: site.add(site.link, {BANDWIDTH: 1000}))
    others = [move for move in MOVES if move != site.move]
    assert site.write(*others).code is WriteCode.CONSUMER_CONFLICT
    assert site.held() == site.remains | {site.link: {BANDWIDTH: 1000}}


def test_a_build_is_never_merged(world: World) -> None:
    site = Site(world, "")
    site.before_the_write(lambda: site.add(site.link, {BANDWIDTH: 1000}))
    assert site.write(*MOVES).code is WriteCode.CONSUMER_CONFLICT


def test_several_writers_in_a_row_are_merged_up_to_a_bound(site: Site) -> None:
    one_more = [lambda: site.add(site.link, {BANDWIDTH: 1})] * MAX_MERGES
    site.before_the_write(*one_more)
    assert site.write(site.move).code is WriteCode.WRITTEN
    assert site.held()[site.link] == {BANDWIDTH: MAX_MERGES}


def test_more_writers_than_that_end_the_move(site: Site) -> None:
    site.before_the_write(*[lambda: site.add(site.link, {BANDWIDTH: 1})] * (MAX_MERGES + 1))
    assert site.write(site.move).code is WriteCode.CONSUMER_CONFLICT
    assert site.held() == site.remains | {site.link: {BANDWIDTH: MAX_MERGES + 1}}


def test_an_addition_to_our_own_provider_is_undecidable(site: Site) -> None:
    site.before_the_write(lambda: site.add(site.target, {"VCPU": 2}))
    assert site.write(site.move).code is WriteCode.CONSUMER_CONFLICT
    assert site.held() == site.remains | {site.target: {"VCPU": 2}}


def test_a_server_of_another_project_is_not_merged(site: Site) -> None:
    site.before_the_write(lambda: site.add(site.link, {BANDWIDTH: 1}))
    stranger = replace(site.effect, project_id="ours")
    assert site.write(site.move, effect=stranger).code is WriteCode.CONSUMER_CONFLICT


def test_a_server_that_is_deleted_during_its_evacuation_is_not_written(world: World) -> None:
    site = Site(world, "evacuation")
    site.before_the_write(lambda: world.ok("DELETE", f"/allocations/{site.effect.consumer}"))
    assert site.write("evacuation").code is WriteCode.CONSUMER_CONFLICT
    assert site.held() == {}


@pytest.mark.parametrize("fault", [lost_reply, raced])
def test_the_merged_write_has_a_fault(site: Site, fault: Fault) -> None:
    def attach(_: str, __: str, go: Callable[[], requests.Response]) -> requests.Response:
        site.add(site.link, {BANDWIDTH: 1000})
        return go()

    first_calls = [carried_out] if site.evacuates else []
    site.world.http.faults = [*first_calls, attach]
    site.world.http.every_read = None
    sut = site.writer(site.move)
    faults = site.world.http.faults

    def then_fault(method: str, path: str, go: Callable[[], requests.Response]) -> requests.Response:
        faults.append(fault)  # of the merged write, which follows this read
        return go()

    faults.append(carried_out)  # the read and the write of the other writer
    faults.append(carried_out)
    faults.append(then_fault)
    answer = sut.write(site.effect)
    site.world.http.faults = []
    assert answer.code is WriteCode.WRITTEN
    assert site.held() == site.remains | {site.link: {BANDWIDTH: 1000}, site.target: {"VCPU": 1}}


def test_a_late_answer_to_our_write_is_recognised_below_the_addition(site: Site) -> None:
    """Our write is carried out without an answer, and a port is attached before we read."""

    def lost_and_attached(_: str, __: str, go: Callable[[], requests.Response]) -> requests.Response:
        go()
        site.add(site.link, {BANDWIDTH: 1000})
        raise requests.exceptions.ReadTimeout("read timed out")

    site.world.http.faults = [*([carried_out] if site.evacuates else []), lost_and_attached]
    answer = site.writer(site.move).write(site.effect)
    port = {site.link: {BANDWIDTH: 1000}}
    assert answer.code is WriteCode.WRITTEN
    assert site.held() == site.remains | port | {site.target: {"VCPU": 1}}
    assert answer.before == site.remains | port


def test_taking_back_a_merged_move_leaves_what_the_others_added(site: Site) -> None:
    port = {site.link: {BANDWIDTH: 1000}}
    site.before_the_write(lambda: site.add(site.link, port[site.link]))
    answer = site.write(site.move)
    gone = site.writer().delete(replace(undo(site.effect, answer.before, answer.written), generation=answer.generation))
    assert gone.gone
    assert site.held() == site.remains | port
