# SPDX-License-Identifier: Apache-2.0
"""Writes of others between two of our actions are recorded, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from jsonschema import Draft202012Validator

from shared_scheduler.answers.schema import schemas
from shared_scheduler.core.events import WriteCode
from shared_scheduler.placement.allocation_writer import AllocationWriter
from shared_scheduler.placement.consumer_conflicts import ConsumerAllocations
from shared_scheduler.placement.foreign_changes import Action, ForeignChanges
from tests.unit.placement.real_placement import World, carried_out, lost_reply, raced
from tests.unit.placement.test_allocation_writer import evacuated, intent, undo
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
        "after": both, "generation_after": 2, "seen_by": Action.DELETE, "seen_at_s": change["seen_at_s"],
    }  # fmt: skip


def test_the_same_amounts_written_again_before_our_delete(world: World, allocation_writer: AllocationWriter) -> None:
    effect = intent(world.provider())
    answer = allocation_writer.write(effect)
    world.take(effect.consumer, effect.allocations, generation=1)
    allocation_writer.delete(replace(undo(effect), generation=answer.generation))
    [change] = seen(allocation_writer)
    assert (change["generation_before"], change["generation_after"]) == (1, 2)
    assert change["before"] == change["after"]


def test_a_change_before_an_evacuation(world: World, allocation_writer: AllocationWriter) -> None:
    source, _, effect = evacuated(world)
    evacuation, port = known(world, effect), world.provider()
    world.take(effect.consumer, {source: {"VCPU": 1}, port: {"VCPU": 1}}, generation=1)
    assert allocation_writer.write(evacuation).code is WriteCode.WRITTEN
    [change] = seen(allocation_writer)
    assert (change["seen_by"], change["generation_before"], change["generation_after"]) == (Action.MERGE, 1, 2)


def test_a_server_that_should_have_no_allocations(world: World, allocation_writer: AllocationWriter) -> None:
    effect, theirs = intent(world.provider()), {world.provider(): {"VCPU": 1}}
    world.take(effect.consumer, theirs)
    assert allocation_writer.write(effect).code is WriteCode.CONSUMER_CONFLICT
    [change] = seen(allocation_writer)
    assert (change["seen_by"], change["before"], change["after"]) == (Action.NEW, {}, theirs)


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


def test_the_last_ones_are_kept_and_all_are_counted() -> None:
    changes = ForeignChanges(max_changes=2)
    for number in range(5):
        changes.add(f"server-{number}", ConsumerAllocations(), ConsumerAllocations(), Action.NEW, float(number))
    report = changes.report()
    assert report["count"] == 5
    assert [change["consumer"] for change in report["changes"]] == ["server-4", "server-3"]
