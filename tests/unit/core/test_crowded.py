# SPDX-License-Identifier: Apache-2.0
"""A host accepts a limited number of claims at once; further requests wait and do not fail with no valid host."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.protocol.messages import Claim
from tests.unit.core.scheduler_driver import SchedulerDriver, claims_in, nodes_of, of_kind, only, only_claim, request

MANY = [f"server-{number}" for number in range(7)]
ROOMY = {"vcpus": 8}


def accepted(driver: SchedulerDriver, claim: Claim) -> list[ef.Effect]:
    """The agent accepts, and Placement writes; what else came of it."""
    effects = driver.accept(claim)
    [write] = of_kind(ef.WriteAllocation, effects)
    return [*(one for one in effects if one is not write), *driver.written(write)]


def test_more_instances_than_a_host_accepts_at_once_are_placed_there_in_turn() -> None:
    # given one host with room for all, that takes two claims at once
    driver = SchedulerDriver(claims_per_node_max=2).with_agents("node-1", **ROOMY)
    under_way = claims_in(driver.ask(request(*MANY)))
    assert len(under_way) == 2
    # when one claim lands after the other
    effects: list[ef.Effect] = []
    for place in range(len(MANY)):
        effects = accepted(driver, under_way[place])
        under_way += claims_in(effects)
    # then each made room for the next, and all of them have a host
    assert [claim.consumer for claim in under_way] == MANY
    assert nodes_of(only(ef.Answer, effects)) == ["node-1"] * len(MANY)
    driver.idle()


def test_requests_wait_in_their_order_of_arrival() -> None:
    driver = SchedulerDriver(claims_per_node_max=1).with_agents("node-1", **ROOMY)
    claim = only_claim(driver.ask(request("first")))
    for name in ("second", "third"):
        assert driver.ask(request(name)) == []
    for name in ("second", "third"):
        [claim] = claims_in(accepted(driver, claim))
        assert claim.consumer == name
    only(ef.Answer, accepted(driver, claim))
    driver.idle()


def test_a_claim_that_is_refused_makes_room_as_well() -> None:
    driver = SchedulerDriver(claims_per_node_max=1).with_agents("node-1", **ROOMY)
    first = only_claim(driver.ask(request("first")))
    assert driver.ask(request("second")) == []
    assert [claim.consumer for claim in claims_in(driver.refuse(first))] == ["second"]


def test_a_host_that_becomes_free_is_found_without_a_successful_claim() -> None:
    driver = SchedulerDriver(claims_per_node_max=1, verdict_timeout_s=30.0, claim_repeat_s=0.0)
    driver.with_agents("node-1", **ROOMY)
    only_claim(driver.ask(request("first")))
    assert driver.ask(request("second")) == []
    driver.with_agents("node-2", **ROOMY)
    assert [claim.node for claim in claims_in(driver.wait(1.1))] == ["node-2"]


def test_a_request_that_waits_too_long_fails_and_leaves_nothing() -> None:
    driver = SchedulerDriver(claims_per_node_max=1, verdict_timeout_s=30.0, claim_repeat_s=0.0)
    driver.with_agents("node-1", **ROOMY)
    first = only_claim(driver.ask(request("first")))
    assert driver.ask(request("second"), within_s=5.0) == []
    fail = only(ef.Fail, driver.wait(5.0))
    assert fail.code == ef.FailureCode.TIMED_OUT
    only(ef.Answer, accepted(driver, first))
    driver.idle()


def test_several_of_which_the_last_waits_are_given_back_together() -> None:
    driver = SchedulerDriver(claims_per_node_max=2, verdict_timeout_s=30.0, claim_repeat_s=0.0)
    driver.with_agents("node-1", **ROOMY)
    assert len(claims_in(driver.ask(request(*MANY[:3]), within_s=5.0))) == 2
    fails = of_kind(ef.Fail, driver.wait(5.0))
    assert [fail.code for fail in fails] == [ef.FailureCode.TIMED_OUT]
    driver.idle()


def test_a_rebuild_claims_nothing_and_need_not_wait() -> None:
    driver = SchedulerDriver(claims_per_node_max=1).with_agents("node-1", **ROOMY)
    only_claim(driver.ask(request("first")))
    answer = only(ef.Answer, driver.ask(request("second", forms=(), is_rebuild=True, claim=False)))
    assert nodes_of(answer) == ["node-1"]
