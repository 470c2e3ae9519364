# SPDX-License-Identifier: Apache-2.0
"""An agent that is not connected is known at once, because the broker returns what is cast to it."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.claim_state import ClaimState
from shared_scheduler.protocol.messages import Heartbeat, Resync
from shared_scheduler.table.row import Freshness
from tests.unit.core.scheduler_driver import (
    CELL,
    SchedulerDriver,
    claims_in,
    host_of,
    nodes_of,
    of_kind,
    only,
    only_claim,
    releases_in,
    request,
    resyncs_in,
    snapshot,
)


def test_a_claim_that_comes_back_is_for_the_next_host_at_once() -> None:
    # given two nodes, and a claim for one of them, whose agent has gone
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    first = only_claim(driver.ask())
    # when the broker returns it, then the other node is claimed in the same step
    effects = driver.give(ev.CastReturned(CELL, first))
    (second,) = claims_in(effects)
    assert second.node != first.node and second.consumer == first.consumer
    assert releases_in(effects) == [first.claim_id]
    answer = only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(second))))
    assert nodes_of(answer) == [second.node]
    assert driver.core.claims.endings[ClaimState.UNDELIVERED] == 1
    driver.idle()


def test_a_node_whose_agent_is_not_connected_is_not_selected_and_soon_scheduled_without_it() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2", vcpus=64, free_mb=65_536)
    first = only_claim(driver.ask())
    driver.give(ev.CastReturned(CELL, first))
    # then no other request is sent there
    assert driver.table.freshness(first.node) is Freshness.STALE
    assert all(only_claim(driver.ask(request(f"other-{n}"))).node != first.node for n in range(3))
    # and after some seconds the databases are read in its place
    effects = driver.wait(driver.core.settings.silent_after_timeout_s)
    assert [refresh.node for refresh in of_kind(ef.RefreshNode, effects)] == [first.node]
    assert driver.table.freshness(first.node) is Freshness.PROVISIONAL


def test_an_agent_that_has_connected_meanwhile_is_asked_and_selected_again() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    first = only_claim(driver.ask())
    # when the claim comes back, then its agent is asked for its state
    assert resyncs_in(driver.give(ev.CastReturned(CELL, first))) == [first.node]
    # and one that has just connected answers
    driver.wait(0.01)
    driver.hear(snapshot(first.node, epoch=2))
    assert driver.table.freshness(first.node) is Freshness.FRESH


def test_a_question_that_comes_back_is_not_repeated() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    gone = ev.CastReturned(CELL, Resync("node-1", "me", 0, 0))
    assert resyncs_in(driver.give(gone)) == ["node-1"]
    assert resyncs_in(driver.give(gone)) == []
    assert driver.table.freshness("node-1") is Freshness.STALE


def test_an_agent_that_went_unnoticed_is_found_when_its_heartbeat_is_overdue() -> None:
    # given a node that nobody claims, and whose agent has gone
    driver = SchedulerDriver().with_agents("node-1")
    driver.hear(Heartbeat("node-1", 1, 1, host_of("node-1"), driver.table.digest("node-1")))
    effects = driver.wait(49.0)
    assert resyncs_in(effects) == ["node-1"]
    # when the broker returns the question, then it is silent no later than without the question
    driver.give(ev.CastReturned(CELL, Resync("node-1", "me", 1, 1)))
    driver.wait(driver.core.settings.silent_after_s - 49.0)
    assert driver.table.freshness("node-1") is Freshness.PROVISIONAL


def test_a_returned_cast_of_a_claim_that_has_ended_or_of_an_unknown_node_changes_nothing() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    claim = only_claim(driver.ask())
    driver.written(only(ef.WriteAllocation, driver.accept(claim)))
    assert claims_in(driver.give(ev.CastReturned(CELL, claim))) == []
    assert driver.give(ev.CastReturned(CELL, Resync("nobody", "me", 0, 0))) == []
    driver.idle()
