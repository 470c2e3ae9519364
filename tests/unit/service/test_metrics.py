# SPDX-License-Identifier: Apache-2.0
"""Prometheus gets numbers of everything that an operator pages on."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from shared_scheduler.answers import terms
from shared_scheduler.conf.mode import Mode
from shared_scheduler.core.change_kinds import ChangeKind
from shared_scheduler.decision.record import Attempt, DecisionRecord
from shared_scheduler.protocol.phases import WindowPhase
from shared_scheduler.release import release
from shared_scheduler.service.engine import Engine
from shared_scheduler.service.metrics import SchedulerMetrics
from shared_scheduler.sync.revalidator import Revalidator
from shared_scheduler.table.row import Freshness
from tests.unit.core.scheduler_driver import SchedulerDriver


class Inspected:
    """In the engine's place."""

    def __init__(self, driver: SchedulerDriver) -> None:
        self.driver = driver
        self.channels: dict[str, Any] = {}
        self.channel_counters: list[Counter[str]] = []
        self.counters = Counter(records_dropped=2)
        self.in_flight = 4

    def clock(self) -> float:
        return self.driver.now

    def inspect(self, question: Any) -> Any:
        return question(self.driver.core)


class World:
    """A scheduler, and the metrics that Prometheus would get from it."""

    def __init__(self) -> None:
        self.driver = SchedulerDriver()
        self.registry = CollectorRegistry()
        self.mode: Mode | None = Mode.SHADOW
        reads = Revalidator(lambda event: None).report
        engine = cast(Engine, Inspected(self.driver))
        self.changes: dict[str, int] = {}
        self.metrics = SchedulerMetrics(
            engine, reads, {"records": lambda: 7}, self.registry, lambda: self.mode, lambda: self.changes
        )

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"shared_scheduler_{name}", labels)


@pytest.fixture
def world() -> World:
    return World()


def test_every_freshness_and_state_has_a_number(world: World) -> None:
    world.driver.with_agents("n1", "n2").without_agents("n3")

    assert world.value("nodes", freshness="fresh") == 2
    assert world.value("nodes", freshness="provisional") == 1
    assert all(world.value("nodes", freshness=each.value) is not None for each in Freshness)
    assert world.value("windows", state="in_order") == 2
    assert all(world.value("windows", state=each.value) is not None for each in WindowPhase)


def test_foreign_changes_have_a_series_for_each_kind_and_no_more(world: World) -> None:
    assert world.value("foreign_changes_total", kind="removed") == 0
    world.changes = {"removed": 2, "changed": 1}
    assert world.value("foreign_changes_total", kind="removed") == 2
    assert set(terms.CHANGE_KINDS.terms) == {kind.value for kind in ChangeKind}


def test_the_mode_is_a_metric(world: World) -> None:
    assert [world.value("mode", mode=each.value) for each in Mode] == [0, 1, 0]


def test_a_scheduler_that_loads_has_no_mode_yet(world: World) -> None:
    """It serves nothing; one that never gets further must not look like one that serves."""
    world.mode = None

    assert [world.value("mode", mode=each.value) for each in Mode] == [0, 0, 0]


def test_counters_begin_at_zero(world: World) -> None:
    """Prometheus sees no increase in a series that begins with its first event."""
    events = terms.COUNTERS.terms.keys() - {"records_dropped"}  # of this world

    assert {world.value("events_total", event=each) for each in events} == {0}
    assert {world.value("decisions_total", outcome=each) for each in terms.FAILURES.terms} == {0}
    assert {world.value("attempts_total", outcome=each) for each in terms.ATTEMPTS.terms} == {0}


def test_lag_is_of_the_agents_that_report(world: World) -> None:
    # given an agent that was heard 3 s ago, and one that was heard now
    world.driver.with_agents("n1").without_agents("n3")
    world.driver.now += 3.0
    world.driver.with_agents("n2")

    assert world.value("agent_lag_seconds", quantile="1") == 3.0
    assert world.value("agent_lag_seconds", quantile="0.5") == 0.0


def test_without_agents_there_is_no_lag(world: World) -> None:
    assert world.value("agent_lag_seconds", quantile="1") is None


def test_a_request_counts_by_its_result_and_its_claims_by_their_ending(world: World) -> None:
    attempts = (
        Attempt("vm", "n1", "h1", "provider_conflict", verdict_ms=3.0, write_ms=20.0),
        Attempt("vm", "n2", "h2", "written", verdict_ms=4.0, write_ms=30.0),
    )
    world.metrics.observe(DecisionRecord("req-1", {}, attempts=attempts, timings_ms={"total": 60.0}))
    world.metrics.observe(DecisionRecord("req-2", {}, failure="no_valid_host"))

    assert world.value("decisions_total", outcome="placed") == 1
    assert world.value("decisions_total", outcome="no_valid_host") == 1
    assert world.value("attempts_total", outcome="provider_conflict") == 1
    assert world.value("decision_seconds_sum", stage="total") == pytest.approx(0.060)
    assert world.value("decision_seconds_sum", stage="write") == pytest.approx(0.050)
    assert world.value("decision_seconds_count", stage="verdict") == 2


def test_counters_of_status_queues_and_releases(world: World) -> None:
    world.driver.with_agents("n1")

    assert world.value("events_total", event="records_dropped") == 2
    assert world.value("events_total", event="snapshots_applied") == 1
    assert world.value("queue_depth", queue="records") == 7
    assert world.value("requests_in_flight") == 4
    assert world.value("peers", role="schedulers", release=release()) == 1
    assert world.value("source_reads_total", source="services") == 0
