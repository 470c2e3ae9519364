# SPDX-License-Identifier: Apache-2.0
"""An agent that accepts a claim sends its increment only, because all schedulers need that in any case."""

from __future__ import annotations

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core.verdict_limit import FIRST_S
from shared_scheduler.protocol.messages import Claim, Consumer, Increment
from tests.unit.core.scheduler_driver import (
    SchedulerDriver,
    claims_in,
    of_kind,
    only,
    only_claim,
    releases_in,
    request,
    taken,
)

NODES = ("node-1", "node-2")


def increment(claim: Claim, sequence: int = 2, node: str = "") -> Increment:
    """What the agent of the claim's node publishes when it accepts the claim."""
    there = Consumer(taken(claim.node), True)
    return Increment(node or claim.node, 1, sequence, {}, {claim.consumer: there}, {claim.claim_id: claim.consumer})


def used_vcpus(driver: SchedulerDriver, node: str) -> int:
    return driver.table.view(node).used.get(node, {}).get("VCPU", 0)


@pytest.fixture
def driver() -> SchedulerDriver:
    return SchedulerDriver().with_agents(*NODES)


def test_a_claim_says_that_an_increment_suffices(driver: SchedulerDriver) -> None:
    assert only_claim(driver.ask()).increment_suffices


def test_the_increment_of_a_claim_accepts_it(driver: SchedulerDriver) -> None:
    # given a claim
    claim = only_claim(driver.ask())
    # when the agent publishes that it is pending
    write = only(ef.WriteAllocation, driver.hear(increment(claim)))
    # then it is written, and the row counts the server once before the answer and after it
    assert write.claim_id == claim.claim_id
    assert used_vcpus(driver, claim.node) == 1
    only(ef.Answer, driver.written(write))
    assert used_vcpus(driver, claim.node) == 1


def test_a_verdict_on_it_and_the_same_increment_once_more_change_nothing(driver: SchedulerDriver) -> None:
    claim = only_claim(driver.ask())
    write = only(ef.WriteAllocation, driver.hear(increment(claim)))

    assert driver.accept(claim) == []
    assert driver.hear(increment(claim)) == []
    only(ef.Answer, driver.written(write))
    assert driver.hear(increment(claim)) == []


def test_the_increment_that_follows_a_verdict_changes_nothing_but_the_row(driver: SchedulerDriver) -> None:
    claim = only_claim(driver.ask())
    write = only(ef.WriteAllocation, driver.accept(claim))

    assert driver.hear(increment(claim)) == []
    only(ef.Answer, driver.written(write))
    assert used_vcpus(driver, claim.node) == 1


def test_an_increment_beyond_a_gap_accepts_its_claim(driver: SchedulerDriver) -> None:
    # given a claim, and an increment before it that is lost
    claim = only_claim(driver.ask())
    # when the agent's next increment has the claim
    effects = driver.hear(increment(claim, sequence=3))
    # then nobody waits for the lost one, and the server counts although the row does not have it yet
    only(ef.WriteAllocation, effects)
    assert used_vcpus(driver, claim.node) == 1


def test_an_increment_among_the_news_of_a_verdict_accepts_its_claim() -> None:
    # given two claims for one node, and a lost increment, which has the first one
    driver = SchedulerDriver().with_agents("node-1")
    first = only_claim(driver.ask(request("server-1", request_id="req-1")))
    second = only_claim(driver.ask(request("server-2", request_id="req-2")))
    # when it arrives with the refusal of the second one, so that no gap is left for which it would be sent again
    effects = driver.refuse(second, news=(increment(first),))
    # then the first one is written
    assert [write.claim_id for write in of_kind(ef.WriteAllocation, effects)] == [first.claim_id]


def test_the_increment_of_another_node_accepts_nothing(driver: SchedulerDriver) -> None:
    claim = only_claim(driver.ask())
    [other] = {*NODES} - {claim.node}

    assert of_kind(ef.WriteAllocation, driver.hear(increment(claim, node=other))) == []
    assert driver.core.counters()["verdicts_of_others"] == 1


def test_an_increment_that_ends_a_claim_accepts_nothing(driver: SchedulerDriver) -> None:
    claim = only_claim(driver.ask())
    ended = Increment(claim.node, 1, 2, {}, {claim.consumer: None}, {claim.claim_id: None})

    assert of_kind(ef.WriteAllocation, driver.hear(ended)) == []


def test_an_increment_after_the_next_host_was_claimed_is_answered_with_a_release(driver: SchedulerDriver) -> None:
    # given an agent that was late, so that the next host was claimed
    late = only_claim(driver.ask())
    effects = driver.wait(FIRST_S + 0.1)
    assert releases_in(effects) == [late.claim_id] and len(claims_in(effects)) == 1
    # when it accepts after all
    effects = driver.hear(increment(late))
    # then its claim is released once more, and nothing is written
    assert releases_in(effects) == [late.claim_id]
    assert of_kind(ef.WriteAllocation, effects) == []


def test_the_increment_of_a_claim_that_was_released_is_answered_once(driver: SchedulerDriver) -> None:
    # given an agent of an earlier release, whose verdict came too late
    late = only_claim(driver.ask())
    driver.wait(FIRST_S + 0.1)
    assert releases_in(driver.accept(late)) == [late.claim_id]
    # when its increment follows, or somebody who reads the broker sends that again, then nobody needs to be told
    assert driver.hear(increment(late)) == []
    assert driver.hear(increment(late)) == []
    # but another verdict shows that the release was lost
    assert releases_in(driver.accept(late)) == [late.claim_id]
