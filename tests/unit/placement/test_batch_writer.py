# SPDX-License-Identifier: Apache-2.0
"""Queued writes are sent together; a refused batch is split; every effect has one answer."""

from __future__ import annotations

import queue
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import requests

from shared_scheduler.core.effects import ConsumerPolicy, DeleteAllocation, ExamineChange, SeenBy, WriteAllocation
from shared_scheduler.core.events import AllocationDeleted, AllocationWritten, WriteCode
from shared_scheduler.core.write_pace import FURTHER_WRITER_AFTER_S
from shared_scheduler.placement.batch_writer import DEADLINE_INTERVAL_S, BatchWriter
from shared_scheduler.placement.connection import ANNOUNCED, ANNOUNCEMENT
from shared_scheduler.placement.consumer_conflicts import ORPHAN_AFTER_S
from shared_scheduler.placement.foreign_changes import ForeignChange
from shared_scheduler.placement.reconciler import without_nova
from tests.unit.placement.real_placement import (
    Clock,
    Fault,
    World,
    carried_out,
    denied,
    in_trouble,
    lost_reply,
    raced,
    refused,
)
from tests.unit.placement.test_allocation_writer import UnexpectedError
from tests.unit.placement.test_whose_conflict import drop_record, orphan
from tests.unit.transport.mailbox import eventually

WAIT_S = 60.0
#: enough for what waits for nothing
SOON_S = 10.0


def intent(provider: str, vcpus: int = 1, **changes: Any) -> WriteAllocation:
    given: dict[str, Any] = {
        "claim_id": str(uuid.uuid4()), "consumer": str(uuid.uuid4()),
        "allocations": {provider: {"VCPU": vcpus}}, "mappings": {"": (provider,)},
        "project_id": "project", "user_id": "user", "policy": ConsumerPolicy.NEW,
        "serialise": False, "request_id": "", "deadline_s": time.monotonic() + WAIT_S,
    }  # fmt: skip
    return WriteAllocation(**(given | changes))


def undo(effect: WriteAllocation) -> DeleteAllocation:
    return DeleteAllocation(
        effect.claim_id, effect.consumer, effect.allocations, effect.request_id, {}, effect.deadline_s
    )


class Batches:
    """The core's side, with one worker so that a queue builds up while a call is held."""

    def __init__(self, world: World, **options: Any) -> None:
        self.world = world
        self.heard: queue.Queue[Any] = queue.Queue()
        self.on_answer: Callable[[Any], None] = lambda _: None
        self.gate = threading.Event()
        self.held = threading.Event()
        now = time.monotonic()  # a clock that stands still: a call that is held is not a slow one
        given: dict[str, Any] = {"writers": 1, "deleters": 0, "rng": random.Random(1), "clock": lambda: now} | options
        self.writer = BatchWriter(world.client, self._hear, without_nova, **given)
        self.writer.start()

    def _hear(self, answer: Any) -> None:
        self.heard.put(answer)
        self.on_answer(answer)

    def hold(self, go: Callable[[], Any]) -> Any:
        self.held.set()
        self.gate.wait(WAIT_S)
        return go()

    def while_one_is_held_still(self, *faults: Fault) -> WriteAllocation:
        """A first write, which is under way until ``gate`` is set; ``faults`` come after it."""
        first = intent(self.world.provider())
        self.world.http.faults = [lambda _, __, go: self.hold(go), *faults]
        self.world.http.calls.clear()
        self.writer.submit(first)
        assert self.held.wait(WAIT_S)
        return first

    def while_one_is_held(self, *effects: Any, faults: Sequence[Fault] = ()) -> WriteAllocation:
        """Queue these while a first write is under way, then let it go; ``faults`` come after it."""
        first = self.while_one_is_held_still(*faults)
        for effect in effects:
            self.writer.submit(effect)
        self.gate.set()
        return first

    def answers(self, count: int) -> dict[str, Any]:
        found = [self.heard.get(timeout=WAIT_S) for _ in range(count)]
        assert len({one.claim_id for one in found}) == count, "an effect was answered twice"
        return {one.claim_id: one for one in found}

    def codes(self, *effects: WriteAllocation) -> list[WriteCode]:
        found = self.answers(len(effects))
        return [found[effect.claim_id].code for effect in effects]

    def writes(self) -> list[tuple[str, str]]:
        return [call for call in self.world.http.calls if call[0] in ("PUT", "POST")]


@pytest.fixture
def batches(world: World) -> Iterator[Batches]:
    one = Batches(world)
    yield one
    one.gate.set()
    one.writer.stop(drain_s=5.0)


W, N = WriteCode.WRITTEN, WriteCode.NO_CAPACITY


def test_one_write_is_one_put(world: World, batches: Batches) -> None:
    effect = intent(world.provider())
    world.http.calls.clear()
    batches.writer.submit(effect)
    assert batches.codes(effect) == [W]
    assert world.http.calls == [("PUT", f"/allocations/{effect.consumer}")]


def test_writes_queued_during_a_write_are_one_post(world: World, batches: Batches) -> None:
    effects = [intent(world.provider()) for _ in range(5)]
    first = batches.while_one_is_held(*effects)
    assert batches.codes(first, *effects) == [W] * 6
    assert [method for method, _ in batches.writes()] == ["PUT", "POST"]


def test_a_second_writer_sends_what_the_first_one_keeps_waiting(world: World) -> None:
    # given two writers, and a call that does not end
    batches = Batches(world, writers=2, clock=time.monotonic)
    try:
        batches.while_one_is_held_still()
        # when further writes come, then they are answered before it ends
        effects = [intent(world.provider()) for _ in range(3)]
        for effect in effects:
            batches.writer.submit(effect)
        assert batches.codes(*effects) == [W] * 3
        assert not batches.gate.is_set()
    finally:
        batches.gate.set()
        batches.writer.stop(drain_s=5.0)


def test_of_the_writers_without_work_only_one_looks_again_soon(world: World) -> None:
    # given four writers, a call that does not end, and a write that waits for its host
    batches = Batches(world, writers=4, clock=time.monotonic)
    try:
        (host,) = batches.while_one_is_held_still().allocations
        batches.writer.submit(intent(host))
        # when all are woken, because another one is too late
        late = intent(host, deadline_s=time.monotonic() + 0.1)
        batches.writer.submit(late)
        assert batches.codes(late) == [WriteCode.NEVER_SENT]
        time.sleep(2 * FURTHER_WRITER_AFTER_S)
        # then the others wait until they are needed
        assert batches.writer._standing_by <= 1
    finally:
        batches.gate.set()
        batches.writer.stop(drain_s=5.0)


def test_seventeen_are_two_posts(world: World, batches: Batches) -> None:
    node = world.provider(vcpus=64)
    effects = [intent(node) for _ in range(17)]
    first = batches.while_one_is_held(*effects)
    assert batches.codes(first, *effects) == [W] * 18
    assert [method for method, _ in batches.writes()] == ["PUT", "POST", "PUT"]
    assert world.used(node) == 17


def test_only_the_guilty_one_fails(world: World, batches: Batches) -> None:
    full = world.provider(vcpus=1)
    effects = [intent(world.provider()) for _ in range(7)]
    effects.insert(3, intent(full, vcpus=2))
    first = batches.while_one_is_held(*effects)
    assert batches.codes(first, *effects) == [W, W, W, W, N, W, W, W, W]


def test_the_last_unit_is_allocated_to_one_of_a_batch(world: World, batches: Batches) -> None:
    node = world.provider(vcpus=3)
    effects = [intent(node) for _ in range(5)]
    first = batches.while_one_is_held(*effects)
    codes = batches.codes(first, *effects)
    assert sorted(codes[1:]) == sorted([W, W, W, N, N])
    assert world.used(node) == 3


def test_a_consumer_that_exists_does_not_spoil_its_batch(world: World, batches: Batches) -> None:
    theirs = world.provider()
    effects = [intent(world.provider()) for _ in range(4)]
    world.take(effects[1].consumer, {theirs: {"VCPU": 1}})
    first = batches.while_one_is_held(*effects)
    assert batches.codes(first, *effects) == [W, W, WriteCode.CONSUMER_CONFLICT, W, W]


@pytest.mark.parametrize("fault", [lost_reply, in_trouble])
def test_a_batch_without_an_answer_is_read_back_one_by_one(world: World, batches: Batches, fault: Fault) -> None:
    effects = [intent(world.provider()) for _ in range(4)]
    first = batches.while_one_is_held(*effects, faults=[fault])
    assert batches.codes(first, *effects) == [W] * 5
    assert [world.used(next(iter(one.allocations))) for one in effects] == [1] * 4


def test_the_record_that_a_killed_placement_has_left_holds_up_no_other_write_of_its_batch(
    world: World,
) -> None:
    # given a Placement that is killed when it has made the record of the first consumer of a batch
    clock = Clock()
    clock.now = time.monotonic()
    batches = Batches(world, clock=clock)
    effects = sorted(
        (intent(world.provider(), deadline_s=clock.now + 1000.0) for _ in range(4)),
        key=lambda one: min(one.allocations),
    )
    sent: list[float] = []

    def refused_for_long(_: str, path: str, go: Callable[[], Any]) -> Any:
        if effects[0].consumer in path:
            clock.now += ORPHAN_AFTER_S
            sent.append(clock.now)
            if len(sent) == 5:
                drop_record(effects[0].consumer)
        return go()

    def killed(*_: object) -> Any:
        orphan(effects[0].consumer)
        raise requests.exceptions.ConnectionError("connection reset by peer")

    world.http.every_write = refused_for_long
    first = batches.while_one_is_held(*effects, faults=[killed])
    # then the others are written, and at last the first one, when its record does not refuse it any more
    heard = [batches.heard.get(timeout=WAIT_S) for _ in range(5)]
    batches.writer.stop()
    assert [one.code for one in heard] == [W] * 5
    assert heard[0].claim_id == first.claim_id and heard[-1].claim_id == effects[0].claim_id


@pytest.mark.parametrize(("fault", "late"), [(lost_reply, True), (in_trouble, False)])
def test_after_a_batch_without_an_answer_each_possibly_late_write_is_reported(
    world: World, fault: Fault, late: bool
) -> None:
    # given a batch that gets no answer, and a Placement that is away since then
    batches = Batches(world, clock=lambda: 0.0)
    effects = [intent(world.provider(), deadline_s=0.2) for _ in range(3)]
    first = batches.while_one_is_held(*effects, faults=[fault, *[in_trouble] * 1000])
    # when its writes are given up
    answers = batches.answers(4)
    world.http.faults = []
    batches.writer.stop()
    # then each one's answer says what became of the batch
    assert answers[first.claim_id].code is W
    told = {(answers[one.claim_id].code, answers[one.claim_id].may_arrive) for one in effects}
    assert told == {(WriteCode.UNREACHABLE, late)}


def test_a_batch_that_placement_denies_leaves_nothing_to_delete(world: World, batches: Batches) -> None:
    effects = [intent(world.provider()) for _ in range(3)]
    first = batches.while_one_is_held(*effects, faults=[denied])
    assert batches.codes(first, *effects) == [W, *[WriteCode.DENIED] * 3]
    assert batches.writer.in_doubt() == 0


def test_a_write_whose_batch_never_left_is_not_sent_after_its_deadline(world: World) -> None:
    # given a batch that finds no Placement, like the last one of its writes until the deadline of all
    clock = Clock()
    batches = Batches(world, clock=clock)
    effects = sorted(
        (intent(world.provider(), deadline_s=clock.now + 5.0) for _ in range(3)),
        key=lambda one: min(one.allocations),
    )

    def away_until_the_deadline(*call: Any) -> Any:
        clock.now += 5.0
        return refused(*call)

    first = batches.while_one_is_held(*effects, faults=[refused, away_until_the_deadline])
    # when Placement is back
    codes = batches.codes(first, *effects)
    batches.writer.stop()
    # then nothing is written for which an agent may not keep its claim any more
    assert codes == [W, *[WriteCode.NOT_SERVED] * 3]
    assert [world.used(next(iter(one.allocations))) for one in effects] == [0, 0, 0]


def test_an_unexpected_error_of_a_batch_does_not_forget_what_it_may_have_written(
    world: World, batches: Batches
) -> None:
    # given a batch that is carried out, and whose answer nobody can handle
    effects = [intent(world.provider()) for _ in range(3)]

    def carried_out_and_broken(_: str, __: str, go: Callable[[], Any]) -> Any:
        go()
        raise UnexpectedError

    first = batches.while_one_is_held(*effects, faults=[carried_out_and_broken])
    answers = batches.answers(4)
    # then each of its writes is read back, and nothing is given up that may still be carried out
    assert [answers[one.claim_id].code for one in (first, *effects)] == [W] * 4
    assert [answers[one.claim_id].may_arrive for one in effects] == [True] * 3


def test_serialised_writes_go_alone(world: World, batches: Batches) -> None:
    effects = [intent(world.provider(), serialise=True) for _ in range(3)]
    first = batches.while_one_is_held(*effects)
    assert batches.codes(first, *effects) == [W] * 4
    assert [method for method, _ in batches.writes()] == ["PUT"] * 4


def announced(method: str, path: str, go: Callable[[], Any]) -> Any:
    """Placement with ``shared_scheduler.placement_app`` says that racing writes do not over-commit."""
    answer = go()
    answer.headers[ANNOUNCEMENT] = ANNOUNCED
    return answer


@pytest.mark.parametrize("announces_still", [True, False])
def test_serialised_writes_go_together_where_placement_lets_nobody_over_commit(
    world: World, batches: Batches, announces_still: bool
) -> None:
    # given a Placement that has announced it
    before = intent(world.provider())
    world.http.faults = [announced]
    batches.writer.submit(before)
    assert batches.codes(before) == [W]
    world.http.calls.clear()
    # when serialised writes come during another one
    effects = [intent(world.provider(), serialise=True) for _ in range(3)]
    first = batches.while_one_is_held(*effects, faults=[announced] if announces_still else [])
    # then they are one call, and are checked if the answer to it does not announce it any more
    assert batches.codes(first, *effects) == [W] * 4
    assert [method for method, _ in batches.writes()] == ["PUT", "POST"]
    checked = [path for method, path in world.http.calls if method == "GET" and path.endswith("/usages")]
    assert len(checked) == (0 if announces_still else 3)


def test_a_delete_waits_for_the_write_of_its_consumer(world: World, batches: Batches) -> None:
    node = world.provider()
    effect = intent(node)
    first = batches.while_one_is_held(effect, undo(effect))
    heard = [batches.heard.get(timeout=WAIT_S) for _ in range(3)]
    assert [type(one) for one in heard] == [
        AllocationWritten, AllocationWritten, AllocationDeleted
    ]  # fmt: skip
    assert heard[0].claim_id == first.claim_id and heard[2].gone
    assert world.used(node) == 0


def test_all_writers_go_on_when_a_write_frees_the_providers_that_others_wait_for(world: World) -> None:
    # given a write for two providers, which is under way, and one write for each of them that waits for it
    batches, free = Batches(world, writers=2), threading.Event()
    one, two = world.provider(), world.provider()
    both = {one: {"VCPU": 1}, two: {"VCPU": 1}}
    first = intent(one, allocations=both, serialise=True)
    second, third = intent(one, serialise=True), intent(two, serialise=True)

    def hold(_method: str, path: str, go: Callable[[], Any]) -> Any:
        if first.consumer in path:
            batches.held.set()
            batches.gate.wait(WAIT_S)
        if second.consumer in path:
            free.wait(WAIT_S)
        return go()

    world.http.faults = [hold] * 20
    batches.writer.submit(first)
    assert batches.held.wait(WAIT_S)
    batches.writer.submit(second)
    batches.writer.submit(third)
    # when it ends, and the first of the two takes long
    batches.gate.set()
    # then the other one is written by the other writer
    heard = {batches.heard.get(timeout=WAIT_S).claim_id for _ in range(2)}
    free.set()
    assert heard == {first.claim_id, third.claim_id}
    assert batches.codes(second) == [W]
    batches.writer.stop()


def test_each_idle_writer_goes_on_when_a_write_frees_the_providers_that_several_wait_for(world: World) -> None:
    # given a write for three providers, which is under way, and one write for each of them that waits for it
    batches, free = Batches(world, writers=3), threading.Event()
    nodes = [world.provider() for _ in range(3)]
    first = intent(nodes[0], allocations={node: {"VCPU": 1} for node in nodes}, serialise=True)
    *slow, last = (intent(node, serialise=True) for node in nodes)

    def hold(_method: str, path: str, go: Callable[[], Any]) -> Any:
        if first.consumer in path:
            batches.held.set()
            batches.gate.wait(WAIT_S)
        if any(one.consumer in path for one in slow):
            free.wait(WAIT_S)
        return go()

    world.http.faults = [hold] * 30
    batches.writer.submit(first)
    assert batches.held.wait(WAIT_S)
    for one in (*slow, last):
        batches.writer.submit(one)
    # when it ends, and the first ones of the three take long
    batches.gate.set()
    # then the other one is written by the third writer
    try:
        assert {batches.heard.get(timeout=SOON_S).claim_id for _ in range(2)} == {first.claim_id, last.claim_id}
    finally:
        free.set()
    assert batches.codes(*slow) == [W, W]
    batches.writer.stop()


def test_many_at_once_on_few_nodes_never_exceed_them(world: World) -> None:
    batches = Batches(world, writers=4)
    nodes = [world.provider(vcpus=5) for _ in range(4)]
    effects = [intent(nodes[number % 4], serialise=number % 3 == 0) for number in range(40)]
    for effect in effects:
        batches.writer.submit(effect)
    codes = batches.codes(*effects)
    assert (codes.count(W), codes.count(N)) == (20, 20)
    assert [world.used(node) for node in nodes] == [5] * 4
    batches.writer.stop()


def test_a_write_that_waited_too_long_is_never_sent(world: World) -> None:
    batches = Batches(world, clock=time.monotonic)
    node = world.provider()
    late = intent(node, deadline_s=time.monotonic() + 0.05)
    first = intent(world.provider())
    world.http.faults.append(lambda _, __, go: batches.hold(go))
    batches.writer.submit(first)
    assert batches.held.wait(WAIT_S)
    batches.writer.submit(late)
    assert batches.codes(late) == [WriteCode.NEVER_SENT]
    batches.gate.set()
    assert batches.codes(first) == [W]
    assert world.used(node) == 0
    batches.writer.stop()


def test_a_delete_does_not_wait_for_a_slow_write(world: World) -> None:
    # given an allocation that stands, and a write of another consumer that takes long
    batches = Batches(world, deleters=1)
    effect = intent(world.provider())
    batches.writer.submit(effect)
    assert batches.codes(effect) == [W]
    first = batches.while_one_is_held_still()

    # then the delete is carried out meanwhile
    batches.writer.submit(undo(effect))
    assert batches.answers(1)[effect.claim_id].gone
    batches.gate.set()
    assert batches.codes(first) == [W]
    batches.writer.stop()


def test_a_write_goes_on_when_the_delete_that_holds_its_host_ends(world: World) -> None:
    # given an allocation that stands, and its delete, which is under way in the thread for deletes
    batches, deleting, go_on = Batches(world, deleters=1), threading.Event(), threading.Event()
    effect = intent(world.provider())
    batches.writer.submit(effect)
    assert batches.codes(effect) == [W]

    def hold(_method: str, _path: str, go: Callable[[], Any]) -> Any:
        deleting.set()
        go_on.wait(WAIT_S)
        return go()

    first = batches.while_one_is_held(undo(effect), faults=[hold])
    assert deleting.wait(WAIT_S)
    assert batches.codes(first) == [W]
    # when a write to the same host comes, and then the delete ends
    (node,) = effect.allocations
    waiting = intent(node)
    batches.writer.submit(waiting)
    go_on.set()
    # then it is sent
    heard = batches.answers(2)
    assert heard[effect.claim_id].gone and heard[waiting.claim_id].code is W
    batches.writer.stop()


def two_that_stand(world: World, batches: Batches) -> list[WriteAllocation]:
    host = world.provider()
    effects = [intent(host) for _ in range(2)]
    for effect in effects:
        batches.writer.submit(effect)
    assert batches.codes(*effects) == [W, W]
    eventually(lambda: batches.writer._at_work == 0, "the writers that have answered are free")
    return effects


def test_a_write_has_its_turn_between_two_deletes_of_its_host(world: World) -> None:
    # given two allocations of a host, and the delete of one of them, which is under way; a writer is free, whichever
    # thread carries it out
    batches = Batches(world, writers=2, deleters=1)
    one, two = two_that_stand(world, batches)
    world.http.faults = [lambda _, __, go: batches.hold(go)]
    world.http.calls.clear()
    batches.writer.submit(undo(one))
    assert batches.held.wait(WAIT_S)
    # when a write to the host comes, and the other delete
    (host,) = one.allocations
    write = intent(host)
    batches.writer.submit(undo(two))
    batches.writer.submit(write)
    batches.gate.set()
    # then the write is the next one
    batches.answers(3)
    changed = [path for method, path in world.http.calls if method != "GET"]
    assert changed == [f"/allocations/{effect.consumer}" for effect in (one, write, two)]
    batches.writer.stop()


def test_deletes_leave_no_turn_to_a_write_while_no_writer_is_free(world: World) -> None:
    # given two allocations of a host, and a write of another one that takes long
    batches = Batches(world, deleters=1)
    one, two = two_that_stand(world, batches)
    first = batches.while_one_is_held_still()
    # when both are deleted, and a write to their host waits
    (host,) = one.allocations
    write = intent(host)
    for work in (undo(one), write, undo(two)):
        batches.writer.submit(work)
    # then the deletes do not wait
    assert {batches.heard.get(timeout=SOON_S).claim_id for _ in range(2)} == {one.claim_id, two.claim_id}
    batches.gate.set()
    assert batches.codes(first, write) == [W, W]
    batches.writer.stop()


def test_a_write_that_waits_until_it_is_sent_again_holds_up_nothing_else_of_its_host(world: World) -> None:
    # given an allocation that stands, and a write to the same host that is refused for some seconds
    batches = Batches(world, writers=2, deleters=1, clock=time.monotonic)
    effect = intent(world.provider())
    batches.writer.submit(effect)
    assert batches.codes(effect) == [W]
    (node,) = effect.allocations
    refused, other = intent(node), intent(node)
    orphan(refused.consumer)
    world.http.faults = [lambda _, __, go: batches.hold(go)]
    batches.writer.submit(refused)
    assert batches.held.wait(WAIT_S)
    # when another write to it comes, and a delete
    batches.writer.submit(other)
    batches.writer.submit(undo(effect))
    batches.gate.set()
    # then both are carried out meanwhile
    heard = {batches.heard.get(timeout=WAIT_S).claim_id for _ in range(2)}
    assert heard == {other.claim_id, effect.claim_id}
    assert batches.codes(refused) == [WriteCode.CONSUMER_CONFLICT]
    batches.writer.stop()


def test_a_delete_that_waits_for_its_server_holds_up_no_write_of_its_host(world: World) -> None:
    # given a write of a server that is refused for some seconds
    batches = Batches(world, writers=2, deleters=1, clock=time.monotonic)
    refused = intent(world.provider())
    orphan(refused.consumer)
    world.http.faults = [lambda _, __, go: batches.hold(go)]
    batches.writer.submit(refused)
    assert batches.held.wait(WAIT_S)
    # when the delete of its earlier attempt on another host comes, and a write of another server to that host
    earlier = intent(world.provider(), consumer=refused.consumer)
    (node,) = earlier.allocations
    other = intent(node)
    batches.writer.submit(undo(earlier))
    batches.writer.submit(other)
    batches.gate.set()
    # then the write does not wait for them
    heard = [batches.heard.get(timeout=WAIT_S) for _ in range(3)]
    assert [one.claim_id for one in heard] == [one.claim_id for one in (other, refused, earlier)]
    batches.writer.stop()


def test_writes_that_wait_until_they_are_sent_again_leave_a_writer_for_others(world: World) -> None:
    # given as many writes as there are writers, which are refused for some seconds
    batches = Batches(world, writers=2, clock=time.monotonic)
    refused, other = [intent(world.provider(), serialise=one) for one in (False, True)], intent(world.provider())
    for one in refused:
        orphan(one.consumer)
    world.http.faults = [lambda _, __, go: batches.hold(go)] * 2
    for one in refused:
        batches.writer.submit(one)
    assert batches.held.wait(WAIT_S)
    # when a write of another server comes
    batches.writer.submit(other)
    batches.gate.set()
    # then it is carried out meanwhile
    heard = [batches.heard.get(timeout=WAIT_S) for _ in range(3)]
    assert heard[0].claim_id == other.claim_id
    assert [one.code for one in heard] == [W, WriteCode.CONSUMER_CONFLICT, WriteCode.CONSUMER_CONFLICT]
    batches.writer.stop()


def test_a_spare_writer_that_cannot_be_started_changes_neither_the_write_nor_the_bound_of_writers(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, effects = Batches(world), [intent(world.provider(), serialise=True) for _ in range(6)]

    def write_after_a_wait(effect: WriteAllocation) -> WriteCode:
        world.http.faults = [raced]
        one.writer.submit(effect)
        (code,) = one.codes(effect)
        return code

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError(f"can't start new thread {thread.name}")

    with monkeypatch.context() as limit:
        # given a process that may start no further thread
        limit.setattr(threading.Thread, "start", refused)
        # when writes have to wait until they are sent again, then they are, and said once is enough
        assert [write_after_a_wait(effect) for effect in effects[:3]] == [W] * 3
    assert caplog.text.count("can't start new thread") == 1
    # and once there is a spare writer, there is still one call at once, as none of them waits
    assert write_after_a_wait(effects[3]) == W
    assert concurrent_calls(world, effects[4:], one) == 1
    one.writer.stop(drain_s=5.0)


def concurrent_calls(world: World, effects: Sequence[WriteAllocation], batches: Batches) -> int:
    """The maximum number of calls at once, while these are written."""
    lock, under_way, most = threading.Lock(), 0, 0

    def count(_method: str, _url: str, go: Callable[[], Any]) -> Any:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.2)  # for another one that does not wait
        with lock:
            under_way -= 1
        return go()

    world.http.faults = [count] * len(effects)
    for effect in effects:
        batches.writer.submit(effect)
    assert batches.codes(*effects) == [W] * len(effects)
    return most


def test_too_many_are_turned_away_with_an_answer(world: World) -> None:
    batches = Batches(world, max_waiting=2)
    node = world.provider()
    effects = [intent(node) for _ in range(3)]
    first = batches.while_one_is_held(*effects)
    assert batches.codes(first, *effects) == [W, W, W, WriteCode.NEVER_SENT]
    batches.writer.stop()


def test_a_stop_sends_queued_writes(world: World) -> None:
    batches = Batches(world)
    effects = [intent(world.provider()) for _ in range(20)]
    first = batches.while_one_is_held(*effects)
    batches.writer.stop(drain_s=WAIT_S)
    assert batches.codes(first, *effects) == [W] * 21


def test_a_stop_sends_the_delete_of_a_write_that_ends_meanwhile(world: World) -> None:
    # given a write under way when the writer stops, whose request has failed
    batches = Batches(world)
    first = batches.while_one_is_held_still()
    stop = threading.Thread(target=batches.writer.stop, args=[WAIT_S])
    stop.start()
    eventually(lambda: batches.writer._draining, "the writer stops")
    # when it is carried out, and the core deletes what it has written
    batches.on_answer = lambda answer: _take_back(batches, first, answer)
    batches.gate.set()
    stop.join(WAIT_S)
    # then nothing is left
    [written, gone] = [batches.heard.get(timeout=WAIT_S) for _ in range(2)]
    assert (written.code, gone.gone, gone.detail) == (W, True, "")
    assert world.client.consumer(first.consumer).allocations == {}


def _take_back(batches: Batches, first: WriteAllocation, answer: Any) -> None:
    if isinstance(answer, AllocationWritten):
        batches.writer.submit(undo(first))


def test_a_stop_sends_the_deletes_of_a_request_whose_last_write_was_too_late(world: World) -> None:
    # given a request of two servers, whose writes are one after the other because they have the same host
    batches = Batches(world, clock=time.monotonic)
    first = batches.while_one_is_held_still()
    (host,) = first.allocations
    batches.on_answer = lambda answer: _fail_slowly(batches, first, answer)
    # when the second one waits until its deadline while the writer stops, and the first one is written
    late = intent(host, deadline_s=time.monotonic() + 0.1)
    batches.writer.submit(late)
    stop = threading.Thread(target=batches.writer.stop, args=[WAIT_S])
    stop.start()
    assert batches.codes(late) == [WriteCode.NEVER_SENT]
    batches.gate.set()
    stop.join(WAIT_S)
    # then the core has still deleted that
    [written, gone] = [batches.heard.get(timeout=WAIT_S) for _ in range(2)]
    assert (written.code, gone.gone, gone.detail) == (W, True, "")


def test_a_stop_sends_the_deletes_of_a_request_whose_next_write_is_turned_away(world: World) -> None:
    # given a request of two servers: one is being written when the writer stops
    batches = Batches(world)
    first, other = batches.while_one_is_held_still(), intent(world.provider())
    batches.on_answer = lambda answer: _fail_slowly(batches, first, answer)
    stop = threading.Thread(target=batches.writer.stop, args=[WAIT_S])
    stop.start()
    eventually(lambda: batches.writer._draining, "the writer stops")
    # when the write of the other one comes then, and is turned away
    batches.writer.submit(other)
    assert batches.codes(other) == [WriteCode.NEVER_SENT]
    batches.gate.set()
    stop.join(WAIT_S)
    # then the core has still deleted what was written
    [written, gone] = [batches.heard.get(timeout=WAIT_S) for _ in range(2)]
    assert (written.code, gone.gone, gone.detail) == (W, True, "")


def _fail_slowly(batches: Batches, written: WriteAllocation, answer: Any) -> None:
    """The core is busy; its request fails because a write was not sent."""
    if isinstance(answer, AllocationWritten) and answer.code is WriteCode.NEVER_SENT:
        batches.writer._stopped.wait(1.0)
        batches.writer.submit(undo(written))


def test_a_stop_during_an_outage_ends_and_answers_every_write(world: World) -> None:
    batches = Batches(world)
    effects = [intent(world.provider()) for _ in range(20)]
    first = batches.while_one_is_held(*effects, faults=[in_trouble] * 10_000)
    batches.writer.stop(drain_s=0.2)
    world.http.faults = []
    codes = batches.codes(first, *effects)
    assert set(codes[1:]) <= {WriteCode.UNREACHABLE, WriteCode.NEVER_SENT}


def test_the_late_parts_of_a_batch_that_is_refused_after_the_stop_are_answered(world: World) -> None:
    # given a batch under way when the writer stops, with a Placement that is slow
    clock, posted, refuse = Clock(), threading.Event(), threading.Event()
    clock.now = time.monotonic()
    batches = Batches(world, clock=clock)

    def refused_late(method: str, path: str, go: Callable[[], Any]) -> Any:
        posted.set()
        refuse.wait(WAIT_S)
        return raced(method, path, go)

    effects = [intent(world.provider(), deadline_s=clock.now + 10.0) for _ in range(4)]
    first = batches.while_one_is_held(*effects, faults=[refused_late])
    assert posted.wait(WAIT_S)
    stop = threading.Thread(target=batches.writer.stop, args=[0.0])
    stop.start()
    time.sleep(2 * DEADLINE_INTERVAL_S)
    # when it is refused after the deadline of its writes
    clock.now += 10.0
    refuse.set()
    stop.join(WAIT_S)
    # then each of them has been answered
    assert batches.heard.qsize() == 5
    assert batches.codes(first, *effects) == [W] + [WriteCode.NEVER_SENT] * 4


def test_what_comes_while_the_stop_waits_for_a_call_is_turned_away_with_an_answer(world: World) -> None:
    # given a writer that stops while a call takes long
    batches = Batches(world, clock=time.monotonic)
    queued, later = intent(world.provider()), intent(world.provider())
    first = batches.while_one_is_held_still()
    batches.writer.submit(queued)
    stop = threading.Thread(target=batches.writer.stop, args=[0.0])
    stop.start()
    assert batches.codes(queued) == [WriteCode.NEVER_SENT]
    time.sleep(2 * DEADLINE_INTERVAL_S)
    # when another write comes, because the core tries the next host
    batches.writer.submit(later)
    # then it is answered at once
    assert batches.heard.get(timeout=WAIT_S).claim_id == later.claim_id
    batches.gate.set()
    stop.join(WAIT_S)
    assert batches.codes(first) == [W]


def test_after_the_stop_nothing_is_taken_in(world: World) -> None:
    batches = Batches(world)
    batches.writer.stop()
    batches.writer.submit(intent(world.provider()))
    assert batches.writer.waiting() == 0


def test_a_failing_callback_does_not_stop_the_writer(world: World) -> None:
    heard: queue.Queue[Any] = queue.Queue()

    def refuse_once(event: Any) -> None:
        heard.put(event)
        if heard.qsize() == 1:
            raise RuntimeError("the core is busy")

    writer = BatchWriter(world.client, refuse_once, without_nova, writers=1)
    writer.start()
    effects = [intent(world.provider()) for _ in range(2)]
    for effect in effects:
        writer.submit(effect)
    assert {heard.get(timeout=WAIT_S).code for _ in effects} == {W}
    writer.stop()


class ClockOfWaits:
    """Stands still during calls to Placement, which take long on a busy machine."""

    def __init__(self) -> None:
        self._calls_s = 0.0
        self._call_began_s: float | None = None

    def __call__(self) -> float:
        return (self._call_began_s or time.monotonic()) - self._calls_s

    def outside(self, fault: Fault) -> Fault:
        """The same fault, during which the clock stands still."""

        def call(method: str, path: str, go: Callable[[], requests.Response]) -> requests.Response:
            self._call_began_s = began_s = time.monotonic()
            try:
                return fault(method, path, go)
            finally:
                self._calls_s += time.monotonic() - began_s
                self._call_began_s = None

        return call


def test_the_waits_after_lost_races_do_not_count_as_time_of_placement(world: World) -> None:
    # given a write that loses some races for its provider, and waits after each
    clock = ClockOfWaits()
    one = Batches(world, clock=clock)
    effect = intent(world.provider())
    faults = [raced, carried_out] * 5 + [carried_out] * 5
    world.http.faults = [clock.outside(fault) for fault in faults]
    # when it is written
    began_s = clock()
    one.writer.submit(effect)
    answer = one.answers(1)[effect.claim_id]
    took_s = clock() - began_s
    one.writer.stop(drain_s=5.0)
    # then a request for many servers is not refused because of that
    assert answer.code is W
    assert answer.consumer_s < took_s / 4


def test_the_waits_of_a_write_are_not_subtracted_from_the_next_one(world: World) -> None:
    # given a writer whose first write has waited after lost races
    one = Batches(world, clock=time.monotonic)
    first, second = intent(world.provider()), intent(world.provider())
    world.http.faults = [fault for _ in range(5) for fault in (raced, carried_out)]
    one.writer.submit(first)
    one.answers(1)
    # when it carries out the next one
    one.writer.submit(second)
    answer = one.answers(1)[second.claim_id]
    one.writer.stop(drain_s=5.0)
    # then Placement took some time for that
    assert answer.code is W
    assert answer.consumer_s > 0


def test_the_waits_for_an_answer_that_never_comes_count_as_time_of_placement(world: World) -> None:
    # given a Placement that answers nothing
    one = Batches(world, clock=time.monotonic)
    effect = intent(world.provider(), deadline_s=time.monotonic() + 1.5)
    world.http.faults = [in_trouble] * 1000
    # when a write is given up
    began_s = time.monotonic()
    one.writer.submit(effect)
    answer = one.answers(1)[effect.claim_id]
    took_s = time.monotonic() - began_s
    world.http.faults = []
    one.writer.stop(drain_s=5.0)
    # then requests for many servers are refused
    assert answer.code is WriteCode.UNREACHABLE
    assert answer.consumer_s > took_s / 2


def test_each_foreign_change_is_recorded_once_by_the_threads_of_the_writer(world: World) -> None:
    # given a writer that records what the core has found
    recorded: list[ForeignChange] = []
    batches = Batches(world, record_change=recorded.append)
    node = world.provider()
    for number in range(3):
        batches.writer.examine(ExamineChange(
            f"server-{number}", node, "cmp1", {node: {"VCPU": 1}}, 1, {node: {"VCPU": 2}}, 2, SeenBy.REPORT, cause="x"
        ))  # fmt: skip
    # when it stops before it has examined all of them, or after that
    batches.gate.set()
    batches.writer.stop(drain_s=5.0)
    # then none is lost
    assert sorted(change.consumer for change in recorded) == ["server-0", "server-1", "server-2"]
    assert sum(batches.writer.change_counts().values()) == 3
