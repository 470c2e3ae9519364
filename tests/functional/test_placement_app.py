# SPDX-License-Identifier: Apache-2.0
"""Placement with the write path: races on a real MariaDB.

``tests/longer/test_placement_app.py`` has a thousand rounds, and all of Placement's own functional tests, which stand
for what ``tests/unit/placement_app/test_histories.py`` compares here.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Barrier

import pytest
import requests

from tests.functional.placement_races import WRITERS, Outcome, Race, Racer
from tests.functional.private_placement import SETTINGS, PrivatePlacement
from tools.laboratory.cloud import probes

ROUNDS = 20


@pytest.fixture(scope="module")
def placement() -> Iterator[PrivatePlacement]:
    with PrivatePlacement.running(replace(SETTINGS, placement_app=True)) as one:
        yield one


def test_writers_that_race_never_over_commit(placement: PrivatePlacement) -> None:
    outcome = Race(placement).run(ROUNDS)
    seen = (outcome.over_committed, outcome.untold, outcome.errors)
    assert seen == (0, 0, 0), outcome
    assert outcome.written and outcome.refused


def test_versions_are_answered_without_a_token(placement: PrivatePlacement) -> None:
    answer = requests.get(placement.layout.url("placement"), timeout=60)
    assert answer.status_code == 200 and answer.headers["OpenStack-Shared-Scheduler-Writes"] == "1"


def test_of_several_writers_of_one_new_consumer_one_succeeds(placement: PrivatePlacement) -> None:
    racers = [Racer(placement.layout.url("placement")) for _ in range(WRITERS)]
    providers = [placement.provider(vcpus=ROUNDS) for _ in racers]
    for _ in range(ROUNDS):
        consumer, barrier = str(uuid.uuid4()), Barrier(WRITERS)

        def write(racer: Racer, provider: str, consumer: str = consumer, barrier: Barrier = barrier) -> int:
            barrier.wait()
            return int(racer.put(consumer, [provider], None).status_code)

        with ThreadPoolExecutor(WRITERS) as pool:
            statuses = list(pool.map(write, racers, providers))
        assert Counter(statuses) == {204: 1, 409: WRITERS - 1}
        winner = providers[statuses.index(204)]
        assert placement.client.consumer(consumer).allocations == {winner: {"VCPU": 1}}
    assert sum(placement.used(provider) for provider in providers) == ROUNDS


def test_a_database_that_is_restarted_is_found_again(placement: PrivatePlacement) -> None:
    provider = placement.provider()
    placement.take(str(uuid.uuid4()), {provider: {"VCPU": 1}})
    placement.kill("mariadb")
    placement.start_one("mariadb")
    placement.take(str(uuid.uuid4()), {provider: {"VCPU": 1}})
    assert placement.used(provider) == 2


@contextmanager
def locked(placement: PrivatePlacement, provider: str) -> Iterator[None]:
    """A transaction that holds the row of a provider, as one whose program was lost does."""
    with probes.database(placement.layout, "placement") as connection, connection.cursor() as cursor:
        connection.begin()
        assert cursor.execute("SELECT id FROM resource_providers WHERE uuid = %s FOR UPDATE", (provider,)) == 1
        yield


def test_a_lock_that_lasts_is_a_conflict_before_the_client_has_gone(placement: PrivatePlacement) -> None:
    racer, provider, consumer = Racer(placement.layout.url("placement")), placement.provider(), str(uuid.uuid4())
    assert racer.put(str(uuid.uuid4()), [placement.provider()], None).status_code == 204  # its names are known now

    with locked(placement, provider):
        answer = racer.put(consumer, [provider], None)
        assert answer.status_code == 409 and "placement.concurrent_update" in answer.text

    assert placement.client.consumer(consumer).allocations == {} and placement.used(provider) == 0
    assert racer.put(consumer, [provider], None).status_code == 204


def test_a_race_that_over_commits_is_seen() -> None:
    outcome = Outcome()
    outcome.add_round(3, [4, 3], [])
    assert (outcome.over_committed, outcome.units_too_much_at_most, outcome.untold) == (1, 1, 1)
