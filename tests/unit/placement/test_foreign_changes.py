# SPDX-License-Identifier: Apache-2.0
"""Writes of others between two of our actions are recorded, and nothing else is."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import requests
from jsonschema import Draft202012Validator

from shared_scheduler.answers.schema import schemas
from shared_scheduler.core.change_kinds import ChangeKind
from shared_scheduler.core.effects import DeleteAllocation, ExamineChange, SeenBy, WriteAllocation
from shared_scheduler.core.events import AllocationWritten, WriteCode
from shared_scheduler.placement.allocation_writer import AllocationWriter
from shared_scheduler.placement.connection import Reply
from shared_scheduler.placement.consumer_conflicts import ConsumerAllocations
from shared_scheduler.placement.foreign_changes import ForeignChanges
from shared_scheduler.protocol.messages import Consumer
from tests.unit.placement.intents import intent, undo
from tests.unit.placement.real_placement import Fault, World, carried_out, lost_reply, never_sent, raced
from tests.unit.placement.test_allocation_writer import evacuated
from tests.unit.placement.test_known_generation import known


def seen(writer: AllocationWriter) -> list[dict[str, Any]]:
    report = {"scheduler": "sched1", "pid": 17, **writer.foreign_changes.report()}
    Draft202012Validator(schemas()["foreign-changes"]).validate([json.loads(json.dumps(report))])
    changes: list[dict[str, Any]] = report["changes"]
    return changes


def test_a_change_before_our_delete(world: World, allocation_writer: AllocationWriter) -> None:
    # given an allocation of ours, to which neutron adds a port
    effect, port = intent(world.provider()), world.provider()
    answer = allocation_writer.write(effect)
    both = {**effect.allocations, port: {"VCPU": 1}}
    world.take(effect.consumer, both, generation=1)

    # when we clean up
    allocation_writer.delete(replace(undo(effect), generation=answer.generation))

    # then the change is recorded with all that is known of it
    [change] = seen(allocation_writer)
    assert change["seen_at_s"] > 1_700_000_000
    assert change == {
        "consumer": effect.consumer, "before": effect.allocations, "generation_before": 1,
        "after": both, "generation_after": 2, "seen_by": SeenBy.DELETE, "seen_at_s": change["seen_at_s"],
        "kind": ChangeKind.CHANGED, "host": "",
    }  # fmt: skip


def test_the_same_amounts_written_again_before_our_delete(world: World, allocation_writer: AllocationWriter) -> None:
    effect = intent(world.provider())
    answer = allocation_writer.write(effect)
    world.take(effect.consumer, effect.allocations, generation=1)
    allocation_writer.delete(replace(undo(effect), generation=answer.generation))
    [change] = seen(allocation_writer)
    assert (change["generation_before"], change["generation_after"]) == (1, 2)
    assert (change["before"], change["kind"]) == (change["after"], ChangeKind.REWRITTEN)


def test_a_change_before_an_evacuation(world: World, allocation_writer: AllocationWriter) -> None:
    source, _, effect = evacuated(world)
    evacuation, port = known(world, effect), world.provider()
    world.take(effect.consumer, {source: {"VCPU": 1}, port: {"VCPU": 1}}, generation=1)
    assert allocation_writer.write(evacuation).code is WriteCode.WRITTEN
    [change] = seen(allocation_writer)
    assert (change["seen_by"], change["generation_before"], change["generation_after"]) == (SeenBy.MERGE, 1, 2)


def test_a_server_that_should_have_no_allocations(world: World, allocation_writer: AllocationWriter) -> None:
    effect, theirs = intent(world.provider()), {world.provider(): {"VCPU": 1}}
    world.take(effect.consumer, theirs)
    assert allocation_writer.write(effect).code is WriteCode.CONSUMER_CONFLICT
    [change] = seen(allocation_writer)
    assert (change["seen_by"], change["before"], change["after"]) == (SeenBy.NEW, {}, theirs)


def test_lost_replies_and_lost_races_are_no_foreign_changes(world: World, allocation_writer: AllocationWriter) -> None:
    effect = intent(world.provider())
    world.http.faults = [raced, carried_out, lost_reply]
    answer = allocation_writer.write(effect)
    world.http.faults = [carried_out, lost_reply]
    assert allocation_writer.delete(replace(undo(effect), generation=answer.generation)).gone
    _, _, effect = evacuated(world)
    evacuation = known(world, effect)
    world.http.faults = [lost_reply]
    assert allocation_writer.write(evacuation).code is WriteCode.WRITTEN
    assert seen(allocation_writer) == []


def removal(effect: WriteAllocation, answer: AllocationWritten) -> DeleteAllocation:
    return replace(undo(effect), written=answer.written, before=answer.before, generation=answer.generation)


def test_the_lost_reply_to_a_delete_of_an_evacuation_is_no_foreign_change(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given an evacuation, whose allocations are deleted although the answer is lost
    _, _, effect = evacuated(world)
    evacuation = known(world, effect)
    answer = allocation_writer.write(evacuation)
    world.http.faults = [carried_out, lost_reply]
    assert allocation_writer.delete(removal(evacuation, answer)).gone
    # then what remains is nobody else's change
    assert seen(allocation_writer) == []


@pytest.mark.parametrize("fault", [raced, lost_reply])
def test_a_change_before_a_delete_that_is_sent_again_is_recorded_once(
    world: World, allocation_writer: AllocationWriter, fault: Fault
) -> None:
    # given an evacuation, to whose allocations neutron adds a port
    source, _, effect = evacuated(world)
    evacuation, port = known(world, effect), world.provider()
    answer = allocation_writer.write(evacuation)
    world.take(effect.consumer, {**answer.written, port: {"VCPU": 1}}, generation=2)
    # when the first delete loses a race, or its answer is lost
    failed: list[str] = []

    def fail_once(method: str, path: str, go: Callable[[], requests.Response]) -> requests.Response:
        failed.append(method)
        return fault(method, path, go) if len(failed) == 1 else go()

    world.http.every_write = fail_once
    assert allocation_writer.delete(removal(evacuation, answer)).gone
    assert world.client.consumer(effect.consumer).allocations == {source: {"VCPU": 1}, port: {"VCPU": 1}}
    # then the port is one change
    [change] = seen(allocation_writer)
    assert (change["generation_before"], change["generation_after"]) == (2, 3)


@pytest.mark.parametrize("built_here", [False, True])
def test_an_evacuation_that_is_repeated_after_an_overcommit_is_no_foreign_change(
    world: World, allocation_writer: AllocationWriter, built_here: bool
) -> None:
    # given a node that racing writes have over-committed, when a server is evacuated to it that no agent has judged
    source, target, effect = evacuated(world)
    left = Consumer({source: {"VCPU": 1}}, generation=1) if built_here else None
    evacuation, racing = replace(known(world, effect), serialise=True, left=left), str(uuid.uuid4())
    world.take(racing, {target: {"VCPU": 8}})

    def overcommit(_: str, __: str, go: Callable[[], requests.Response]) -> requests.Response:
        world.http.every_write = None
        world.ok("DELETE", f"/allocations/{racing}")
        answer = go()
        world.set(target, "inventories", {"VCPU": {"total": 8, "allocation_ratio": 2.0}})
        world.take(racing, {target: {"VCPU": 8}})
        world.set(target, "inventories", {"VCPU": {"total": 8}})
        world.http.every_write = taken_back
        return answer

    def taken_back(_: str, __: str, go: Callable[[], requests.Response]) -> requests.Response:
        world.http.every_write = None
        answer = go()
        world.ok("DELETE", f"/allocations/{racing}")
        return answer

    world.http.every_write = overcommit
    # when it takes its write back, and writes again
    answer = allocation_writer.write(evacuation)
    # then all changes of its allocations were its own
    assert (answer.code, answer.generation) == (WriteCode.WRITTEN, 4)
    assert seen(allocation_writer) == []


def test_a_change_after_our_write_whose_answer_was_lost_does_not_contain_it(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given an evacuation whose answer is lost, to whose allocations neutron then adds a port
    source, target, effect = evacuated(world)
    evacuation, port = known(world, effect), world.provider()
    both = {source: {"VCPU": 1}, target: {"VCPU": 1}}

    def lost_and_changed(method: str, path: str, go: Callable[[], requests.Response]) -> requests.Response:
        world.http.every_write = None
        go()
        world.take(effect.consumer, {**both, port: {"VCPU": 1}}, generation=2)
        raise requests.exceptions.ReadTimeout("read timed out")

    world.http.every_write = lost_and_changed
    # when it finds them
    assert allocation_writer.write(evacuation).code is WriteCode.WRITTEN
    # then only the port is a change of others
    [change] = seen(allocation_writer)
    assert (change["before"], change["after"]) == (both, {**both, port: {"VCPU": 1}})
    assert (change["generation_before"], change["generation_after"]) == (2, 3)


def test_the_last_ones_are_kept_and_all_are_counted() -> None:
    changes = ForeignChanges(max_changes=2)
    for number in range(5):
        changes.add(f"server-{number}", ConsumerAllocations(), ConsumerAllocations(), SeenBy.NEW, float(number))
    report = changes.report()
    assert report["count"] == 5
    assert [change["consumer"] for change in report["changes"]] == ["server-4", "server-3"]


@pytest.mark.parametrize("in_a_batch", [False, True])
def test_what_another_request_of_this_scheduler_has_written_is_no_change_by_others(
    world: World, allocation_writer: AllocationWriter, in_a_batch: bool
) -> None:
    # given a server that this scheduler has placed
    effect = intent(world.provider())
    if in_a_batch:
        world.take(effect.consumer, effect.allocations)
        allocation_writer.written(effect, Reply(204))
    else:
        assert allocation_writer.write(effect).code is WriteCode.WRITTEN
    # when it has got the request twice, and the second one is refused on another host
    again = intent(world.provider(), consumer=effect.consumer)
    assert allocation_writer.write(again).code is WriteCode.CONSUMER_CONFLICT
    # then nobody else has written
    assert seen(allocation_writer) == []


def test_what_another_request_of_this_scheduler_has_written_again_is_no_change_before_a_delete(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given a server that this scheduler has placed, and once more for a second request
    effect = intent(world.provider())
    first = allocation_writer.write(effect)
    second = allocation_writer.write(replace(effect, claim_id="second"))
    assert (first.generation, second.generation) == (1, 2)
    # when the first one is taken back
    allocation_writer.delete(replace(undo(effect), generation=first.generation))
    # then nobody else has written
    assert seen(allocation_writer) == []
    # but if somebody does, that is told
    world.take(effect.consumer, effect.allocations, generation=2)
    allocation_writer.delete(replace(undo(effect), generation=second.generation))
    assert [one["generation_after"] for one in seen(allocation_writer)] == [3]


def test_what_a_delete_of_this_scheduler_has_left_is_no_change_before_the_next_one(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given an evacuation that this scheduler has got twice, for two hosts
    _, _, effect = evacuated(world)
    first = allocation_writer.write(effect)
    other = intent(world.provider(), consumer=effect.consumer, policy=effect.policy)
    second = allocation_writer.write(other)
    # when both are taken back, one after the other
    for claim, answer in ((other, second), (effect, first)):
        undone = undo(claim, answer.before, answer.written, generation=answer.generation)
        assert allocation_writer.delete(undone).gone
    # then nobody else has written
    assert seen(allocation_writer) == []


def test_a_delete_of_an_evacuation_without_an_answer_is_no_change_before_it_is_sent_again(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given an evacuation that is taken back, by a call whose answer is lost, until the delete is given up
    _, _, effect = evacuated(world)
    answer = allocation_writer.write(effect)
    undone = undo(effect, answer.before, answer.written, generation=answer.generation)
    world.http.faults = [carried_out, lost_reply, *[never_sent] * 1000]
    assert not allocation_writer.delete(undone).gone
    world.http.faults = []
    # when it is sent again
    assert allocation_writer.delete(undone).gone
    # then nobody else has written
    assert seen(allocation_writer) == []


def test_a_late_write_of_an_earlier_host_is_no_change_by_others(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given a write that was given up, and has been carried out
    first = intent(world.provider())
    world.http.faults = [lost_reply, *[never_sent] * 1000]
    assert allocation_writer.write(first).code is WriteCode.UNREACHABLE
    world.http.faults = []
    # when what another host should have is taken back
    other = intent(world.provider(), consumer=first.consumer)
    assert allocation_writer.delete(replace(undo(other), generation=1)).gone
    # then nobody else has written
    assert seen(allocation_writer) == []


def test_what_a_late_call_of_this_scheduler_has_left_is_no_change_in_a_report(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given a server that was placed twice; the answer of the second write was lost
    effect = intent(world.provider())
    allocation_writer.write(effect)
    world.http.faults = [carried_out, carried_out, lost_reply, *[never_sent] * 1000]
    allocation_writer.write(replace(effect, claim_id="second"))
    world.http.faults = []
    # when its node shows what that has left
    left = world.client.consumer(effect.consumer)
    assert left.generation == 2
    allocation_writer.examiner.found(ExamineChange(
        effect.consumer, "node", "host", effect.allocations, 1, left.allocations, 2, SeenBy.REPORT, cause="test"
    ))  # fmt: skip
    allocation_writer.examiner.examine_due()
    # then nobody else has written
    assert seen(allocation_writer) == []
