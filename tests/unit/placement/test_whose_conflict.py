# SPDX-License-Identifier: Apache-2.0
"""A new consumer is refused and has no allocations: an orphan, a lost race, or its own record."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
import requests
from placement import context, db_api
from placement.objects import consumer as consumers
from placement.objects import project, user

from shared_scheduler.core.events import WriteCode
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.placement.allocation_writer import AllocationWriter
from shared_scheduler.placement.connection import Reply, UnreachableError
from shared_scheduler.placement.consumer_conflicts import ORPHAN_AFTER_S
from shared_scheduler.placement_app.lock_waits import LOCK_WAIT_S
from tests.unit.placement.intents import intent
from tests.unit.placement.real_placement import Clock, World, carried_out, raced
from tests.unit.placement.test_over_commit import racing


def orphan(consumer: str, generation: int = 0) -> None:
    """A consumer record without allocations.  Generation 0: a Placement that died half way."""
    ctx = context.RequestContext()
    ctx.config = None
    name = uuid.uuid4().hex
    owner = project.Project(ctx, external_id=name)
    owner.create()
    person = user.User(ctx, external_id=name)
    person.create()
    record = consumers.Consumer(ctx, uuid=consumer, project=owner, user=person)
    record.create()
    with db_api.placement_context_manager.writer.using(ctx):
        for _ in range(generation):
            record.increment_generation()


def drop_record(consumer: str) -> None:
    """Delete the record of a consumer, as Placement does when the write that made it fails."""
    ctx = context.RequestContext()
    ctx.config = None
    consumers.Consumer.get_by_uuid(ctx, consumer).delete()


def drop_allocations(world: World, consumer: str) -> None:
    """Delete the allocations of a consumer, and with them its record, as Nova does."""
    world.ok("DELETE", f"/allocations/{consumer}")


def test_the_record_that_an_own_write_has_left_does_not_lock_the_consumer_for_ever(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    # given a write that Placement refuses, because its provider is gone, after it has made the record
    gone = intent(str(uuid.uuid4()))
    assert allocation_writer.write(gone).code is WriteCode.UNKNOWN_PROVIDER
    # when the next host is written
    node, began_s = world.provider(), clock.now
    assert allocation_writer.write(intent(node, consumer=gone.consumer)).code is WriteCode.WRITTEN
    # then the record was taken over
    assert world.used(node) == 1
    assert clock.now - began_s >= ORPHAN_AFTER_S


def test_a_record_that_was_taken_back_is_not_taken_over_from_the_next_writer(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given a batch that failed, whose server was then written alone, and taken back because it over-commits
    node = world.provider(vcpus=8)
    effect = intent(node, serialise=True)
    world.http.faults = [carried_out, racing(world, node)]
    allocation_writer.batch_failed((effect,), Reply(500))
    assert allocation_writer.write(effect, Reply(500)).code is WriteCode.NO_CAPACITY
    # when another writer makes its record anew
    orphan(effect.consumer)
    # then it is left alone
    again = intent(world.provider(), consumer=effect.consumer)
    assert allocation_writer.write(again).code is WriteCode.CONSUMER_CONFLICT


def test_a_record_that_has_shown_allocations_is_not_taken_over_later(
    world: World, allocation_writer: AllocationWriter
) -> None:
    # given a record that a failed write has left, and that an operator has removed
    failed = intent(str(uuid.uuid4()))
    assert allocation_writer.write(failed).code is WriteCode.UNKNOWN_PROVIDER
    drop_record(failed.consumer)
    # when the server was seen on another host, where another writer has placed it, and is not there any more
    world.take(failed.consumer, {world.provider(): {"VCPU": 1}})
    again = intent(world.provider(), consumer=failed.consumer)
    assert allocation_writer.write(again).code is WriteCode.CONSUMER_CONFLICT
    drop_allocations(world, failed.consumer)
    # then the next record is another writer's
    orphan(failed.consumer)
    assert allocation_writer.write(again).code is WriteCode.CONSUMER_CONFLICT


@pytest.mark.parametrize("generation", [0, 3])
def test_a_record_of_another_writer_that_shows_nothing_is_a_hard_error(
    world: World, allocation_writer: AllocationWriter, clock: Clock, generation: int
) -> None:
    # given a consumer without allocations, of generation 0 an orphan or a write under way; nobody touches the provider
    node, began_s = world.provider(), clock.now
    effect = intent(node)
    orphan(effect.consumer, generation)
    # then no other host would be any better
    assert allocation_writer.write(effect).code is WriteCode.CONSUMER_CONFLICT
    assert world.used(node) == 0
    assert ORPHAN_AFTER_S <= clock.now - began_s < 2 * ORPHAN_AFTER_S


def test_whose_conflict_it_was_is_open_where_providers_cannot_be_read(
    world: World, allocation_writer: AllocationWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: str) -> int:
        raise UnreachableError("no answer")

    world.http.every_write = raced
    monkeypatch.setattr(world.client, "generation", away)
    assert allocation_writer.write(intent(world.provider())).code is WriteCode.PROVIDER_CONFLICT


def test_providers_are_read_only_when_patience_is_over(world: World, allocation_writer: AllocationWriter) -> None:
    effect = intent(world.provider())
    world.http.calls.clear()
    world.http.faults = [raced, carried_out, raced, carried_out]
    assert allocation_writer.write(effect).code is WriteCode.WRITTEN
    assert not [path for _, path in world.http.calls if "providers" in path]


def test_a_contended_provider_is_given_up_after_a_bounded_number_of_attempts(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    node, began_s = world.provider(), clock.now

    def lost(method: str, path: str, carry_out: Callable[[], requests.Response]) -> requests.Response:
        """Somebody else has changed the provider meanwhile."""
        world.set(node, "inventories", {"VCPU": {"total": 8}})
        return raced(method, path, carry_out)

    world.http.every_write = lost
    assert allocation_writer.write(intent(node)).code is WriteCode.PROVIDER_CONFLICT
    assert ORPHAN_AFTER_S <= clock.now - began_s < 2 * ORPHAN_AFTER_S


def test_a_provider_that_a_lost_transaction_locks_is_no_conflict_of_the_consumer(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    """Its generation does not change meanwhile."""
    deadline_s = clock.now + SchedulerSettings().written_within_s

    def locked(method: str, path: str, carry_out: Callable[[], requests.Response]) -> requests.Response:
        clock.now += LOCK_WAIT_S
        return raced(method, path, carry_out)

    world.http.every_write = locked
    effect = intent(world.provider(), deadline_s=deadline_s)
    assert allocation_writer.write(effect).code is WriteCode.PROVIDER_CONFLICT


def test_a_race_that_ends_when_patience_does_is_won(
    world: World, allocation_writer: AllocationWriter, clock: Clock
) -> None:
    # given others who change the provider, up to the first write after patience is over
    node, began_s = world.provider(), clock.now
    late_writes: list[float] = []

    def lost_at_first(method: str, path: str, carry_out: Callable[[], requests.Response]) -> requests.Response:
        if clock.now - began_s >= ORPHAN_AFTER_S:
            late_writes.append(clock.now)
        return carry_out() if len(late_writes) > 1 else raced(method, path, carry_out)

    # when the last write is sent, and all is quiet
    world.http.every_write = lost_at_first

    # then it succeeds
    assert allocation_writer.write(intent(node)).code is WriteCode.WRITTEN
    assert world.used(node) == 1
    assert len(late_writes) == 2
