# SPDX-License-Identifier: Apache-2.0
"""Placement with the write path: races on a real MariaDB and a real PostgreSQL.

``tests/longer/test_placement_app.py`` has a thousand rounds, and all of Placement's own functional tests, which stand
for what ``tests/unit/placement_app/test_histories.py`` compares here.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Barrier

import pytest
import requests
import sqlalchemy as sa

from shared_scheduler.placement_app import lock_waits
from tests.functional.placement_races import OLD, WRITERS, Outcome, Race, Racer
from tests.functional.private_placement import SETTINGS, PlacementOnPostgresql, PrivatePlacement
from tests.unit.cmd.waiting import eventually

ROUNDS = 20
#: Longer than any test.
PATIENT_S = 600


@pytest.fixture(scope="module")
def mariadb() -> Iterator[PrivatePlacement]:
    with PrivatePlacement.running(replace(SETTINGS, placement_app=True)) as one:
        yield one


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PrivatePlacement]:
    with PlacementOnPostgresql.running(replace(SETTINGS, placement_app=True)) as one:
        yield one


@pytest.fixture(params=["mariadb", "postgresql"])
def placement(request: pytest.FixtureRequest) -> PrivatePlacement:
    """On each database."""
    one: PrivatePlacement = request.getfixturevalue(request.param)
    return one


@contextmanager
def database(placement: PrivatePlacement) -> Iterator[sa.Engine]:
    """Its database, without Placement."""
    engine = sa.create_engine(placement.database_url)
    try:
        yield engine
    finally:
        engine.dispose()


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
    placement.kill_database()
    placement.start_database()
    placement.take(str(uuid.uuid4()), {provider: {"VCPU": 1}})
    assert placement.used(provider) == 2


LIMITS = {
    "mysql": ("SELECT @@innodb_lock_wait_timeout", lock_waits.LOCK_WAIT_S),
    "postgresql": ("SHOW lock_timeout", f"{lock_waits.LOCK_WAIT_S}s"),
}


def test_the_limit_of_lock_waits_lasts_as_long_as_the_connection(placement: PrivatePlacement) -> None:
    with database(placement) as engine:
        lock_waits.limit(engine)
        ask, limit = LIMITS[engine.dialect.name]
        with engine.connect() as connection:
            connection.rollback()
            assert connection.execute(sa.text(ask)).scalar() == limit


WAITING = {
    "mysql": "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
}
#: MariaDB shows the transactions of the last question to whoever asks again sooner.
FRESH_S = 0.15
#: As another writer does it: four units of a provider, and its next generation.
FILL = (
    "UPDATE allocations SET used = 4 WHERE resource_provider_id ="
    " (SELECT id FROM resource_providers WHERE uuid = :uuid)",
    "UPDATE resource_providers SET generation = generation + 1 WHERE uuid = :uuid",
)


@contextmanager
def locked(engine: sa.Engine, provider: str) -> Iterator[sa.Connection]:
    """A transaction that holds the row of a provider, as one whose program was lost does."""
    with engine.begin() as connection:
        lock(connection, provider)
        yield connection


def lock(connection: sa.Connection, provider: str) -> None:
    """Wait for the row of a provider."""
    ask = sa.text("SELECT id FROM resource_providers WHERE uuid = :uuid FOR UPDATE")
    assert len(connection.execute(ask, {"uuid": provider}).all()) == 1


def test_a_lock_that_lasts_is_a_conflict_before_the_client_has_gone(placement: PrivatePlacement) -> None:
    racer, provider, consumer = knowing_the_names(placement), placement.provider(), str(uuid.uuid4())

    with database(placement) as engine, locked(engine, provider):
        answer = racer.put(consumer, [provider], None)
        assert answer.status_code == 409 and "placement.concurrent_update" in answer.text

    assert placement.client.consumer(consumer).allocations == {} and placement.used(provider) == 0
    assert racer.put(consumer, [provider], None).status_code == 204


def test_what_is_written_while_a_write_waits_for_the_lock_counts(placement: PrivatePlacement) -> None:
    """The capacity is checked with a newer snapshot than the one with which the lock was asked for."""
    racer, provider = knowing_the_names(placement), placement.provider(vcpus=4)
    placement.take(str(uuid.uuid4()), {provider: {"VCPU": 1}})

    with database(placement) as engine, ThreadPoolExecutor(1) as pool:
        with locked(engine, provider) as other:
            write = pool.submit(racer.put, str(uuid.uuid4()), [provider], None)
            eventually(lambda: waiting(engine) == 1)
            for statement in FILL:
                other.execute(sa.text(statement), {"uuid": provider})
        answer = write.result()

    assert answer.status_code == 409 and "would exceed" in answer.text
    assert placement.used(provider) == 4


def knowing_the_names(placement: PrivatePlacement) -> Racer:
    """A writer whose project and user exist, so that the write path takes its new consumers."""
    racer = Racer(placement.layout.url("placement"))
    assert racer.put(str(uuid.uuid4()), [placement.provider()], None).status_code == 204
    return racer


def test_placements_own_handler_gives_up_as_well(postgresql: PrivatePlacement) -> None:
    """On MariaDB, it tries six times."""
    racer, provider = Racer(postgresql.layout.url("placement")), postgresql.provider()

    with database(postgresql) as engine, locked(engine, provider):
        answer = racer.put(str(uuid.uuid4()), [provider], None, OLD)
        assert answer.status_code == 409 and "another transaction has held" in answer.text

    assert postgresql.used(provider) == 0
    assert racer.put(str(uuid.uuid4()), [provider], None, OLD).status_code == 204


def test_a_deadlock_in_placements_own_handler_is_tried_again(postgresql: PrivatePlacement) -> None:
    """PostgreSQL refuses what stock Placement repeats in the transaction that has ended."""
    racer, providers = Racer(postgresql.layout.url("placement")), [postgresql.provider() for _ in range(3)]
    first, second, third = providers

    with database(postgresql) as engine, ThreadPoolExecutor(2) as pool, locked(engine, third) as other:
        other.execute(sa.text(f"SET LOCAL deadlock_timeout = '{PATIENT_S}s'"))  # the other side looks for it, and ends
        with locked(engine, second):
            # given Placement's own handler, which has the first provider and waits for the second one
            write = pool.submit(racer.put, str(uuid.uuid4()), providers, None, OLD)
            eventually(lambda: waiting(engine) == 1)
            # and another transaction, which has the third one and waits for the first one
            crossing = pool.submit(lock, other, first)
            eventually(lambda: waiting(engine) == 2)
        # when the handler goes on to the third one
        crossing.result()
        other.commit()
        # then nobody hears of the deadlock
        assert write.result().status_code == 204
    assert [postgresql.used(provider) for provider in providers] == [1, 1, 1]


def waiting(engine: sa.Engine) -> int:
    """The number of transactions that wait for a lock."""
    time.sleep(FRESH_S)
    with engine.connect() as connection:
        return int(connection.execute(sa.text(WAITING[engine.dialect.name])).scalar() or 0)


def test_a_race_that_over_commits_is_seen() -> None:
    outcome = Outcome()
    outcome.add_round(3, [4, 3], [])
    assert (outcome.over_committed, outcome.units_too_much_at_most, outcome.untold) == (1, 1, 1)
