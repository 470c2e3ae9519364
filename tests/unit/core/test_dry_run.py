# SPDX-License-Identifier: Apache-2.0
"""A dry run selects the hosts that a request would get, and changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.decision.request import Request
from tests.unit.core.scheduler_driver import SchedulerDriver, host_of, only, request, taken

WRITES = (ef.Send, ef.Broadcast, ef.WriteAllocation, ef.DeleteAllocation)


def dry(*servers: str, **changes: Any) -> Request:
    return replace(request(*servers, **changes), dry_run=True)


def hosts_of(answer: ef.Answer) -> list[str]:
    return [inner[0].host for inner in answer.choices]


def used(driver: SchedulerDriver, node: str) -> Any:
    return driver.core.table.describe(node)["used"]


def test_the_host_is_named_and_nothing_leaves_the_scheduler() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    before = {node: used(driver, node) for node in ("node-1", "node-2")}

    effects = driver.ask(dry("server-1"))

    answer = only(ef.Answer, effects)
    assert answer.claim_ids == ()
    assert answer.record.weights.keys() == {"node-1", "node-2"}
    assert not [effect for effect in effects if isinstance(effect, WRITES)]
    assert {node: used(driver, node) for node in before} == before
    assert len(driver.core.claims) == 0


def test_the_servers_of_one_request_count_one_another() -> None:
    # given two hosts with room for one server each
    driver = SchedulerDriver().with_agents("node-1", "node-2", vcpus=1)

    answer = only(ef.Answer, driver.ask(dry("server-1", "server-2")))
    assert sorted(hosts_of(answer)) == [host_of("node-1"), host_of("node-2")]

    # when it is asked again, the first request has left nothing behind
    again = only(ef.Answer, driver.ask(dry("server-3", "server-4")))
    assert sorted(hosts_of(again)) == sorted(hosts_of(answer))


def test_a_request_that_finds_no_host_leaves_nothing_behind() -> None:
    driver = SchedulerDriver().with_agents("node-1", vcpus=1)

    effects = driver.ask(dry("server-1", "server-2"))
    question = only(ef.AskFitting, effects)
    effects = driver.give(ev.FittingAnswered(question.ask_id, frozenset(), cause=question.cause))

    fail = only(ef.Fail, effects)
    assert fail.code == ef.FailureCode.NO_VALID_HOST
    assert not [effect for effect in effects if isinstance(effect, WRITES)]
    assert hosts_of(only(ef.Answer, driver.ask(dry("server-3")))) == [host_of("node-1")]


def test_placement_names_the_candidates_as_for_a_real_request() -> None:
    driver = SchedulerDriver().with_agents("node-1")

    question = only(ef.AskCandidates, driver.ask(dry("server-1", root_only=False)))
    candidate = ev.Candidate(taken("node-1"), {})
    effects = driver.give(ev.CandidatesAnswered(question.ask_id, (candidate,), cause=question.cause))

    assert hosts_of(only(ef.Answer, effects)) == [host_of("node-1")]
    assert not [effect for effect in effects if isinstance(effect, WRITES)]
