# SPDX-License-Identifier: Apache-2.0
"""Batches of writes on a real Placement with a real database: races, outages, and the attribution of conflicts."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from shared_scheduler.core.effects import Answer, ConsumerPolicy, DeleteAllocation, Fail, FailureCode, WriteAllocation
from shared_scheduler.core.events import AllocationDeleted, AllocationWritten, WriteCode
from shared_scheduler.placement.batch_writer import BatchWriter
from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.consumer_write import ConsumerWrite
from shared_scheduler.placement.reconciler import without_nova
from tests.functional.placement_driver import PlacementDriver, vcpus_for
from tests.functional.private_placement import SETTINGS, PrivatePlacement
from tests.support.keystone_transport import transport_to

WAIT_S = 300.0
ROUNDS = 8
TRIES_MAX = 60
HOPELESS_MAX = 5
#: a kept connection may be closed after a write was sent
AWAY = (WriteCode.UNREACHABLE, WriteCode.NOT_SERVED)
SCHEDULERS = 4
HOSTS, VCPUS = 2, 24


@pytest.fixture(scope="module")
def placement() -> Iterator[PrivatePlacement]:
    with PrivatePlacement.running() as one:
        yield one


def intent(allocations: dict[str, dict[str, int]], **changes: Any) -> WriteAllocation:
    given: dict[str, Any] = {
        "claim_id": str(uuid.uuid4()), "consumer": str(uuid.uuid4()), "allocations": allocations,
        "mappings": {"": tuple(allocations)}, "project_id": "project", "user_id": "user",
        "policy": ConsumerPolicy.NEW, "serialise": False, "request_id": f"req-{uuid.uuid4()}",
        "deadline_s": time.monotonic() + WAIT_S,
    }  # fmt: skip
    return WriteAllocation(**(given | changes))


class Scheduler:
    """One scheduler process's writer, with a session of its own."""

    def __init__(self, placement: PrivatePlacement) -> None:
        self.heard: queue.Queue[Any] = queue.Queue()
        client = PlacementClient(transport_to(placement.layout.url("placement")))
        self.writer = BatchWriter(client, self.heard.put, without_nova)
        self.writer.start()

    def answers(self, count: int) -> dict[str, Any]:
        """By claim id."""
        found = [self.heard.get(timeout=WAIT_S) for _ in range(count)]
        assert len({one.claim_id for one in found}) == count
        return {one.claim_id: one for one in found}

    def write(self, *effects: WriteAllocation) -> list[AllocationWritten]:
        """Submit all, answers in the same order."""
        for effect in effects:
            self.writer.submit(effect)
        found = self.answers(len(effects))
        return [found[effect.claim_id] for effect in effects]

    def wait_until_nothing_is_in_doubt(self) -> None:
        until_s = time.monotonic() + WAIT_S
        while self.writer.in_doubt():
            assert time.monotonic() < until_s, "the sweeper does not end"
            time.sleep(0.1)


@pytest.fixture
def schedulers(placement: PrivatePlacement) -> Iterator[list[Scheduler]]:
    ours = [Scheduler(placement) for _ in range(SCHEDULERS)]
    yield ours
    for one in ours:
        one.writer.stop()


def together(jobs: list[Any]) -> None:
    """Run all of them at the same moment."""
    barrier = threading.Barrier(len(jobs))

    def run(job: Any) -> None:
        barrier.wait()
        job()

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)


# -- the race in Placement -------------------------------------------------------


def test_placement_alone_over_commits(placement: PrivatePlacement) -> None:
    """The reason for everything below.  When this fails, Placement has been mended."""

    def put(node: str) -> None:
        write = ConsumerWrite(str(uuid.uuid4()), {node: {"VCPU": 1}}, None, "p", "u")
        placement.client.write(write)

    overcommitted = 0
    for _ in range(TRIES_MAX):
        node = placement.provider(vcpus=1)
        together([lambda node=node: put(node)] * SCHEDULERS)  # type: ignore[misc]
        overcommitted += placement.used(node) > 1
        if overcommitted:
            break
    assert overcommitted


def test_schedulers_that_race_for_the_last_unit_never_keep_more_than_there_is(
    placement: PrivatePlacement, schedulers: list[Scheduler]
) -> None:
    endings: Counter[WriteCode] = Counter()
    for _ in range(ROUNDS):
        node = placement.provider(vcpus=1)
        effects = [intent({node: {"VCPU": 1}}, serialise=True) for _ in schedulers]
        together([
            lambda one=one, effect=effect: one.writer.submit(effect)  # type: ignore[misc]
            for one, effect in zip(schedulers, effects, strict=True)
        ])  # fmt: skip
        codes = [one.answers(1)[effect.claim_id].code for one, effect in zip(schedulers, effects, strict=True)]
        kept = codes.count(WriteCode.WRITTEN)
        assert kept <= 1
        assert placement.used(node) == kept
        endings.update(codes)
    assert set(endings) <= {WriteCode.WRITTEN, WriteCode.NO_CAPACITY, WriteCode.PROVIDER_CONFLICT}
    # racers that all give way try again: the last unit goes to one of them, not to nobody
    assert endings[WriteCode.WRITTEN] >= ROUNDS - 2


def test_one_scheduler_fills_a_provider_exactly(placement: PrivatePlacement, schedulers: list[Scheduler]) -> None:
    node = placement.provider(vcpus=20)
    effects = [intent({node: {"VCPU": 1}}) for _ in range(40)]
    codes = [answer.code for answer in schedulers[0].write(*effects)]
    assert Counter(codes) == {WriteCode.WRITTEN: 20, WriteCode.NO_CAPACITY: 20}
    assert placement.used(node) == 20


def test_answers_equal_the_allocations_when_schedulers_share_a_pool(
    placement: PrivatePlacement, schedulers: list[Scheduler]
) -> None:
    """A shared disk is on every claim's way: batches of several schedulers collide on it."""
    pool = placement.provider(inventories={"DISK_GB": {"total": 10_000}})
    effects = [
        [intent({placement.provider(): {"VCPU": 1}, pool: {"DISK_GB": 1}}) for _ in range(12)] for _ in schedulers
    ]
    together([
        lambda one=one, own=own: [one.writer.submit(effect) for effect in own]  # type: ignore[misc]
        for one, own in zip(schedulers, effects, strict=True)
    ])  # fmt: skip
    codes = {}
    for one, own in zip(schedulers, effects, strict=True):
        found = one.answers(len(own))
        codes |= {effect.consumer: found[effect.claim_id].code for effect in own}
    # on a busy machine some batches get no answer in time, and a write that is carried out after all is deleted again
    for one in schedulers:
        one.wait_until_nothing_is_in_doubt()
    assert set(codes.values()) <= {WriteCode.WRITTEN, WriteCode.PROVIDER_CONFLICT}
    for consumer, code in codes.items():
        assert bool(placement.client.consumer(consumer).allocations) is (code is WriteCode.WRITTEN)
    written = list(codes.values()).count(WriteCode.WRITTEN)
    assert placement.used(pool, "DISK_GB") == written > 0


def test_schedulers_without_agents_that_fill_a_cloud_together_never_keep_more_than_there_is(
    placement: PrivatePlacement,
) -> None:
    """They begin where there is headroom, write without a check and in batches, never read a row again, and
    never go beyond what there is."""
    hosts = [placement.provider(vcpus=VCPUS) for _ in range(HOSTS)]
    drivers = [PlacementDriver(placement.transport) for _ in range(SCHEDULERS)]
    share = HOSTS * VCPUS // SCHEDULERS + VCPUS // 4
    asked = [[vcpus_for(str(uuid.uuid4()), vcpus=1) for _ in range(share)] for _ in drivers]
    for driver in drivers:
        driver.knows(*hosts, vcpus=VCPUS)
    together([
        lambda driver=driver, own=own: driver.select_all(own)  # type: ignore[misc]
        for driver, own in zip(drivers, asked, strict=True)
    ])  # fmt: skip
    answered = sum(isinstance(one, Answer) for driver in drivers for one in driver.outcomes)
    unchecked = sum(driver.written_unchecked for driver in drivers)
    for driver in drivers:
        driver.settled()
        driver.stop()
    used = [placement.used(host) for host in hosts]
    assert max(used) <= VCPUS and sum(used) == answered
    assert answered >= HOSTS * VCPUS * 3 // 4, "racers for the last ones may all have given way"
    assert unchecked > 0, "no host had headroom"


def test_a_hundred_consumers_at_once_are_written_all_or_none(placement: PrivatePlacement) -> None:
    hosts = [placement.provider(vcpus=50) for _ in range(3)]
    driver = PlacementDriver(placement.transport)
    driver.knows(*hosts, vcpus=50)
    servers = [str(uuid.uuid4()) for _ in range(100)]

    answer = driver.select(vcpus_for(*servers, vcpus=1))
    no_room = driver.select(vcpus_for(*(str(uuid.uuid4()) for _ in range(100)), vcpus=1))
    driver.settled()
    driver.stop()

    assert isinstance(answer, Answer) and isinstance(no_room, Fail)
    # on a busy machine some of its writes may wait too long and never be sent
    assert no_room.code in (FailureCode.NO_VALID_HOST, FailureCode.OVERLOADED)
    for server, inner in zip(servers, answer.choices, strict=True):
        assert placement.client.consumer(server).allocations == {inner[0].node: {"VCPU": 1}}
    assert sum(placement.used(host) for host in hosts) == 100


# -- who is to blame -----------------------------------------------------------------------------


def test_a_batch_with_every_kind_of_trouble_in_it(placement: PrivatePlacement, schedulers: list[Scheduler]) -> None:
    full, gone, other = placement.provider(vcpus=1), str(uuid.uuid4()), placement.provider()
    taken = intent({placement.provider(): {"VCPU": 1}})
    placement.take(taken.consumer, {other: {"VCPU": 1}})
    effects = [intent({placement.provider(): {"VCPU": 1}}) for _ in range(8)]
    effects += [
        intent({full: {"VCPU": 2}}), intent({gone: {"VCPU": 1}}), taken,
        intent({placement.provider(): {"NO_SUCH": 1}}),
    ]  # fmt: skip
    codes = [answer.code for answer in schedulers[0].write(*effects)]
    assert codes[:8] == [WriteCode.WRITTEN] * 8
    assert codes[8:] == [
        WriteCode.NO_CAPACITY, WriteCode.UNKNOWN_PROVIDER, WriteCode.CONSUMER_CONFLICT,
        WriteCode.REJECTED,
    ]  # fmt: skip


def test_two_schedulers_with_the_same_instance(placement: PrivatePlacement, schedulers: list[Scheduler]) -> None:
    """A request that was delivered twice: nothing is doubled, and who comes later is told so.

    At the very same moment even two may hear yes: Placement lets both past its check of a new
    consumer's generation, and the loser deletes the record under the winner's allocations.
    """
    for _ in range(ROUNDS):
        consumer = str(uuid.uuid4())
        nodes = [placement.provider() for _ in schedulers]
        effects = [intent({node: {"VCPU": 1}}, consumer=consumer) for node in nodes]
        together([
            lambda one=one, effect=effect: one.writer.submit(effect)  # type: ignore[misc]
            for one, effect in zip(schedulers, effects, strict=True)
        ])  # fmt: skip
        codes = [one.answers(1)[effect.claim_id].code for one, effect in zip(schedulers, effects, strict=True)]
        winners = [
            {node: {"VCPU": 1}}
            for node, code in zip(nodes, codes, strict=True) if code is WriteCode.WRITTEN
        ]  # fmt: skip
        assert placement.client.consumer(consumer).allocations in winners
        assert sum(placement.used(node) for node in nodes) == 1
        assert set(codes) == {WriteCode.WRITTEN, WriteCode.CONSUMER_CONFLICT}
        late = intent({placement.provider(): {"VCPU": 1}}, consumer=consumer)
        assert schedulers[0].write(late)[0].code is WriteCode.CONSUMER_CONFLICT


def test_an_evacuation_against_a_writer_that_interferes(
    placement: PrivatePlacement, schedulers: list[Scheduler]
) -> None:
    """Whatever the order is: the source is never lost, and nothing half is left."""
    for _ in range(ROUNDS):
        source, target = placement.provider(), placement.provider()
        effect = intent({target: {"VCPU": 1}}, policy=ConsumerPolicy.MERGE)
        placement.take(effect.consumer, {source: {"VCPU": 1}})

        def interfere(effect: WriteAllocation = effect, source: str = source) -> None:
            write = ConsumerWrite(effect.consumer, {source: {"VCPU": 2}}, 1, "p", "u")
            placement.client.write(write)

        def submit(effect: WriteAllocation = effect) -> None:
            schedulers[0].writer.submit(effect)

        together([interfere, submit])
        answer = schedulers[0].answers(1)[effect.claim_id]
        standing = placement.client.consumer(effect.consumer).allocations
        assert source in standing
        if answer.code is WriteCode.WRITTEN:
            assert standing == answer.written and target in standing
        else:
            assert answer.code is WriteCode.CONSUMER_CONFLICT
            assert target not in standing


def test_a_delete_against_a_writer_that_interferes(placement: PrivatePlacement, schedulers: list[Scheduler]) -> None:
    """Ours goes, and nothing is left half.

    What the other one wrote stays (tests/unit/placement has every order of events), but for a gap in
    Placement: a PUT of nothing checks the consumer's generation, then reads it again, and a write
    that comes in between is wiped out although the generation that we sent is old.
    """
    for _ in range(ROUNDS):
        ours, theirs = placement.provider(), placement.provider()
        effect = intent({ours: {"VCPU": 1}})
        assert schedulers[0].write(effect)[0].code is WriteCode.WRITTEN

        def interfere(effect: WriteAllocation = effect, theirs: str = theirs) -> None:
            write = ConsumerWrite(effect.consumer, {theirs: {"VCPU": 1}}, 1, "p", "u")
            placement.client.write(write)

        undo = DeleteAllocation(effect.claim_id, effect.consumer, effect.allocations, effect.request_id)
        together([interfere, lambda undo=undo: schedulers[0].writer.submit(undo)])  # type: ignore[misc]
        answer = schedulers[0].answers(1)[effect.claim_id]
        assert isinstance(answer, AllocationDeleted) and answer.gone
        assert placement.used(ours) == 0
        standing = placement.client.consumer(effect.consumer).allocations
        assert standing == ({theirs: {"VCPU": 1}} if placement.used(theirs) else {})


# -- outages -------------------------------------------------------------------------------------


def test_placement_is_ready_when_all_its_processes_are() -> None:
    """uwsgi ends all of them if one cannot load the application, as when the database is killed meanwhile."""
    processes = 4
    with PrivatePlacement.running(replace(SETTINGS, placement_processes=processes)) as one:
        loaded = one.layout.log_of("placement").read_text().count("WSGI app 0")
    assert loaded == processes


def test_placement_is_killed_during_writes_and_restarted(
    placement: PrivatePlacement, schedulers: list[Scheduler]
) -> None:
    nodes = [placement.provider(vcpus=64) for _ in range(6)]
    effects = [intent({nodes[number % 6]: {"VCPU": 1}}) for number in range(60)]
    for effect in effects:
        schedulers[0].writer.submit(effect)
    first = schedulers[0].heard.get(timeout=WAIT_S)
    placement.kill("placement")
    placement.start_one("placement")
    found = {first.claim_id: first, **schedulers[0].answers(59)}
    assert {answer.code for answer in found.values()} == {WriteCode.WRITTEN}
    assert [placement.used(node) for node in nodes] == [10] * 6


def test_placement_that_stays_away_fails_clearly_and_recovers_by_itself(
    placement: PrivatePlacement, schedulers: list[Scheduler]
) -> None:
    node = placement.provider()
    placement.kill("placement")
    try:
        for _ in range(HOPELESS_MAX):
            hopeless = intent({node: {"VCPU": 1}}, deadline_s=time.monotonic() + 2.0)
            answer = schedulers[0].write(hopeless)[0]
            if answer.code is not WriteCode.NEVER_SENT:
                break  # otherwise the machine stood still until it was too late to begin
    finally:
        placement.start_one("placement")
    assert answer.code in AWAY and "did not answer" in answer.detail
    again = intent({node: {"VCPU": 1}}, consumer=hopeless.consumer)
    assert schedulers[0].write(again)[0].code is WriteCode.WRITTEN
    assert placement.used(node) == 1


def test_a_database_that_is_restarted_loses_nothing_that_was_reported(
    placement: PrivatePlacement, schedulers: list[Scheduler]
) -> None:
    node = placement.provider(vcpus=64)
    effects = [intent({node: {"VCPU": 1}}) for _ in range(30)]
    for effect in effects:
        schedulers[0].writer.submit(effect)
    first = schedulers[0].heard.get(timeout=WAIT_S)
    placement.kill("mariadb")
    placement.start_one("mariadb")
    found = {first.claim_id: first, **schedulers[0].answers(29)}
    assert {answer.code for answer in found.values()} == {WriteCode.WRITTEN}
    assert placement.used(node) == 30
