# SPDX-License-Identifier: Apache-2.0
"""nova-api mirrors host aggregates to Placement after its casts to the schedulers; agents rarely poll Placement."""

from __future__ import annotations

from shared_scheduler.core import events as ev
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.model.aggregates import AggregateFacts
from tests.unit.core.scheduler_driver import SchedulerDriver, resyncs_in

SOON_S = SchedulerSettings().mirrored_after_s


def aggregate(*hosts: str, key: int = 1, **metadata: str) -> AggregateFacts:
    return AggregateFacts(key, f"uuid-{key}", "isolated", frozenset(hosts), metadata)


def test_the_agent_of_a_host_that_joined_or_left_reads_placement_soon() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2", "node-3")
    driver.give(ev.AggregatesRead((aggregate("host-1", "host-2"),)))
    driver.wait(2 * SOON_S)
    # when: one leaves and another joins
    at_once = driver.give(ev.AggregatesRead((aggregate("host-1", "host-3"),)))
    # then: only those two are asked, when nova-api had the time to tell Placement
    assert resyncs_in(at_once) == []
    assert sorted(resyncs_in(driver.wait(2 * SOON_S))) == ["node-2", "node-3"]


def test_other_metadata_of_an_aggregate_reject_no_host() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    driver.give(ev.AggregatesRead((aggregate("host-1"),)))
    driver.wait(2 * SOON_S)
    driver.give(ev.AggregatesRead((aggregate("host-1", ssd="true"),), complete=True))
    assert resyncs_in(driver.wait(2 * SOON_S)) == []


def test_an_aggregate_that_is_deleted_concerns_its_hosts() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    driver.give(ev.AggregatesRead((aggregate("host-1"),)))
    driver.wait(2 * SOON_S)
    driver.give(ev.AggregatesRead((), frozenset({1})))
    assert resyncs_in(driver.wait(2 * SOON_S)) == ["node-1"]


def test_a_fleet_whose_agents_have_not_spoken_yet_is_left_alone() -> None:
    driver = SchedulerDriver().without_agents("node-1")
    driver.give(ev.AggregatesRead((aggregate("host-1"),), complete=True))
    assert resyncs_in(driver.wait(2 * SOON_S)) == []
