# SPDX-License-Identifier: Apache-2.0
"""Requests that are refused on arrival, and messages that a scheduler sends on its own."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.protocol.messages import Hello, Role, Want
from tests.unit.core.scheduler_driver import CELL, ME, SchedulerDriver, claims_in, only, only_claim, request


def test_draining_refuses_the_new_and_ends_the_old() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    claim = only_claim(driver.ask())
    driver.give(ev.Draining())
    assert only(ef.Fail, driver.ask(request("late"))).code == ef.FailureCode.DRAINING
    write = only(ef.WriteAllocation, driver.accept(claim))
    only(ef.Answer, driver.written(write))


def test_too_many_requests_are_refused_at_once() -> None:
    driver = SchedulerDriver(requests_max=1).with_agents("node-1")
    only_claim(driver.ask())
    fail = only(ef.Fail, driver.ask(request("server-2")))
    assert fail.code == ef.FailureCode.OVERLOADED and "1 requests" in fail.text


def test_too_many_claims_are_refused_at_once() -> None:
    driver = SchedulerDriver(claims_max=2).with_agents("node-1")
    fail = only(ef.Fail, driver.ask(request("a", "b", "c")))
    assert fail.code == ef.FailureCode.OVERLOADED


def test_claims_in_flight_for_one_node_are_bounded() -> None:
    driver = SchedulerDriver(claims_per_node_max=1).with_agents("node-1", "node-2")
    first, second = claims_in(driver.ask(request("a", "b")))
    assert first.node != second.node
    assert claims_in(driver.ask(request("c"))) == []


def test_a_request_without_instances_is_a_bad_request() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    fail = only(ef.Fail, driver.ask(request(instance_uuids=())))
    assert fail.code == ef.FailureCode.BAD_REQUEST


def test_a_new_scheduler_sends_hello_and_requests_snapshots() -> None:
    driver = SchedulerDriver()
    effects = driver.give(ev.ChannelChanged(CELL, True))
    hello = Hello(Role.SCHEDULER, ME, 1, "", "", Want.SNAPSHOT, 0)
    assert effects == [ef.Broadcast(CELL, hello, cause="channel connected: cell-1")]


def test_a_claim_is_repeated_until_its_verdict_comes() -> None:
    # given a channel that loses the claim
    driver = SchedulerDriver(claim_repeat_s=1.0).with_agents("node-1")
    claim = only_claim(driver.ask())
    # when no verdict comes, the very same claim leaves again
    assert driver.wait(0.9) == []
    assert only_claim(driver.wait(0.2)) == claim
    # then both verdicts of it lead to one write
    only(ef.WriteAllocation, driver.accept(claim))
    assert driver.accept(claim) == []
    assert claims_in(driver.wait(5.0)) == []
