# SPDX-License-Identifier: Apache-2.0
"""A judge that refuses many hosts delays only its own request."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from tests.unit.core.scheduler_driver import (
    Picky,
    SchedulerDriver,
    claims_in,
    nodes_of,
    of_kind,
    only,
    only_claim,
    releases_in,
    request,
)

NODES = tuple(f"node-{number}" for number in range(10))


def driver_of(*refused: str) -> tuple[SchedulerDriver, Picky]:
    judge = Picky(*refused)
    return SchedulerDriver(judge, judged_per_step_max=4).with_agents(*NODES), judge


def test_others_have_their_turn_between_hosts_that_are_refused() -> None:
    # given a request for which the judge takes the last of ten hosts only
    driver, judge = driver_of(*NODES[:-1])
    assert driver.ask() == [] and judge.asked == list(NODES[:4])
    # when another one comes meanwhile, it does not wait for that
    other = only_claim(driver.ask(request("server-2", force_hosts=("host-9",))))
    assert other.consumer == "server-2"
    # then the first one goes on where it was
    judge.asked.clear()
    claim = only_claim(driver.wait(0.001))
    assert (claim.consumer, claim.node) == ("server-1", "node-9")
    assert judge.asked == list(NODES[4:])


def test_a_no_of_all_hosts_is_a_no() -> None:
    driver, judge = driver_of(*NODES)
    assert driver.ask() == []
    fail = only(ef.Fail, driver.wait(0.001))
    assert fail.code == ef.FailureCode.NO_VALID_HOST
    assert judge.asked == list(NODES) and len(fail.record.attempts) == len(NODES)
    driver.idle()


def test_the_instances_of_one_request_wait_for_one_another() -> None:
    driver, _ = driver_of(*NODES[:-1])
    assert driver.ask(request("a", "b")) == []
    assert [claim.consumer for claim in claims_in(driver.wait(0.001))] == ["a", "b"]


def test_a_request_that_ends_during_the_check_leaves_nothing() -> None:
    driver, _ = driver_of(*NODES)
    driver.ask()
    assert len(of_kind(ef.Fail, driver.give(ev.Stopping(driver.now)) + driver.wait(0.0))) == 1
    assert [each for each in driver.wait(40.0) if not isinstance(each, ef.RefreshNode)] == []
    driver.idle()


def test_an_instance_without_another_host_releases_the_claims_of_the_others() -> None:
    # given two instances on the one host that the judge takes, for the second after looks at all others
    driver, _ = driver_of(*NODES[1:])
    first = only_claim(driver.ask(request("a", "b")))
    second = only_claim(driver.wait(0.001))
    assert (first.node, second.node) == ("node-0", "node-0")
    # when that host refuses the second one, and Placement knows of no other
    (ask,) = of_kind(ef.AskFitting, driver.refuse(second))
    # then the first one is released
    effects = driver.give(ev.FittingAnswered(ask.ask_id, frozenset(), cause=ask.cause))
    assert releases_in(effects) == [first.claim_id]
    assert len(of_kind(ef.Fail, effects)) == 1
    driver.idle()


def test_alternates_are_searched_a_bounded_number_of_times() -> None:
    driver, judge = driver_of(*NODES[1:9])
    claim = only_claim(driver.ask(request(num_alternates=1)))
    answer = only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(claim))))
    assert nodes_of(answer) == ["node-0"] and len(answer.choices[0]) == 1
    assert len(judge.asked) == 5
