# SPDX-License-Identifier: Apache-2.0
"""A request for one instance, with the exact effects of each step."""

from __future__ import annotations

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.protocol import limits
from shared_scheduler.protocol.messages import Hello, Increment, Role, Snapshot
from tests.unit.core.scheduler_driver import (
    CELL,
    Picky,
    SchedulerDriver,
    claims_in,
    nodes_of,
    of_kind,
    only,
    only_claim,
    releases_in,
    request,
    resyncs_in,
    snapshot,
    taken,
)

WORST_WRITES = [
    ev.WriteCode.NO_CAPACITY,
    ev.WriteCode.PROVIDER_CONFLICT,
    ev.WriteCode.UNKNOWN_PROVIDER,
    ev.WriteCode.HOST_CHANGED,
]


# -- all goes well


def test_claim_then_write_then_answer() -> None:
    # given a node whose agent speaks
    driver = SchedulerDriver().with_agents("node-1")
    # when a request arrives, the only thing that leaves is a claim to that agent
    claim = only_claim(driver.ask())
    assert (claim.node, claim.consumer) == ("node-1", "server-1")
    assert claim.allocations == taken("node-1")
    assert (claim.seen_epoch, claim.seen_sequence) == (1, 1)
    assert claim.deadline_ms == 3000
    # then the verdict brings the write, and only the write's success the answer
    write = only(ef.WriteAllocation, driver.accept(claim))
    assert write.allocations == taken("node-1") and not write.serialise
    assert write.policy == ef.ConsumerPolicy.NEW and write.request_id == "req-1"
    answer = only(ef.Answer, driver.written(write))
    choice = answer.choices[0][0]
    assert (choice.node, choice.host, choice.cell) == ("node-1", "host-1", CELL)
    assert choice.candidate == ev.Candidate(taken("node-1"), {"": ("node-1",)})
    driver.idle()


def test_claims_on_a_node_without_an_agent_are_written_one_after_the_other() -> None:
    driver = SchedulerDriver().without_agents("node-1")
    write = only(ef.WriteAllocation, driver.ask())
    assert write.serialise
    assert nodes_of(only(ef.Answer, driver.written(write))) == ["node-1"]
    driver.idle()


def test_a_write_is_abandoned_before_the_agent_may_end_its_claim() -> None:
    # the agent reads Placement for an accepted claim after 15 s, and ends it if it is not there
    driver = SchedulerDriver().with_agents("node-1")
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask(within_s=600))))
    assert write.deadline_s == driver.now + 10.0
    # nor does a caller's shorter deadline get longer
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask(request("server-2"), within_s=5))))
    assert write.deadline_s <= driver.now + 5.0


def test_the_next_decision_counts_assumed_claims() -> None:
    # given one node with room for two
    driver = SchedulerDriver().with_agents("node-1", vcpus=2)
    first, second = only_claim(driver.ask()), only_claim(driver.ask(request("server-2")))
    assert {first.consumer, second.consumer} == {"server-1", "server-2"}
    # then a third finds it full although no verdict has come, and Placement is asked whether
    # that is so
    third = driver.ask(request("server-3"))
    assert only(ef.AskFitting, third).queries == request().queries


def test_an_evacuation_merges_with_the_existing_allocations() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask(request(merge_with_existing=True)))))
    assert write.policy == ef.ConsumerPolicy.MERGE


def test_the_topology_of_the_request_travels_with_the_claim() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    assert only_claim(driver.ask(request(topology='{"numa": 1}'))).topology == '{"numa": 1}'


# -- a host refuses


def test_refused_with_news_then_the_next_host() -> None:
    # given two nodes, and a verdict that brings what happened since
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(driver.ask())
    news = (Increment(claim.node, 1, 2, {"cn.vcpus_used": 4}),)
    # when it refuses, the other node is claimed in the same step, and the row knows the news
    second = only_claim(driver.refuse(claim, news=news))
    assert second.node != claim.node
    assert driver.table.version(claim.node).sequence == 2
    assert driver.table.outstanding(claim.node) == ()
    # then all ends as usual
    write = only(ef.WriteAllocation, driver.accept(second))
    assert nodes_of(only(ef.Answer, driver.written(write))) == [second.node]
    driver.idle()


def test_no_verdict_in_time_then_release_and_no_claim_until_it_is_heard() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    claim = only_claim(driver.ask())
    effects = driver.wait(3.1)
    # the release, and a wish to hear from that agent
    assert releases_in(effects) == [claim.claim_id]
    assert resyncs_in(effects) == [claim.node]
    assert claims_in(effects) == [claim, claim]
    # a node that does not answer is not chosen again before it is heard
    assert claims_in(driver.ask(request("server-2"))) == []


def test_a_late_verdict_for_a_released_claim_is_released_again() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(driver.ask())
    driver.wait(3.1)
    assert releases_in(driver.accept(claim)) == [claim.claim_id]


def test_a_repeated_verdict_causes_one_write() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    claim = only_claim(driver.ask())
    write = only(ef.WriteAllocation, driver.accept(claim))
    assert driver.accept(claim) == []
    only(ef.Answer, driver.written(write))
    assert driver.accept(claim) == [] and driver.written(write) == []


def test_a_host_that_the_judge_refuses_is_never_claimed() -> None:
    judge = Picky("node-1")
    driver = SchedulerDriver(judge).with_agents("node-1", "node-2")
    assert only_claim(driver.ask()).node == "node-2"


# -- Placement refuses


@pytest.mark.parametrize("code", WORST_WRITES)
def test_not_written_then_release_forget_and_the_next_host(code: ev.WriteCode) -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(driver.ask())
    write = only(ef.WriteAllocation, driver.accept(claim))
    effects = driver.written(write, code)
    assert releases_in(effects) == [claim.claim_id]
    (second,) = claims_in(effects)
    assert second.node != claim.node
    assert not of_kind(ef.DeleteAllocation, effects), "nothing was written, so nothing is deleted"


def test_a_row_that_placement_contradicts_is_read_again() -> None:
    driver = SchedulerDriver().without_agents("node-1", "node-2")
    write = only(ef.WriteAllocation, driver.ask())
    effects = driver.written(write, ev.WriteCode.NO_CAPACITY)
    (node,) = write.allocations
    assert [refresh.node for refresh in of_kind(ef.RefreshNode, effects)] == [node]
    assert releases_in(effects) == [], "no agent has heard of it"


def test_a_consumer_conflict_is_a_hard_error_of_its_own() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(driver.ask())
    effects = driver.written(only(ef.WriteAllocation, driver.accept(claim)), ev.WriteCode.CONSUMER_CONFLICT)
    assert releases_in(effects) == [claim.claim_id]
    assert [fail.code for fail in of_kind(ef.Fail, effects)] == [ef.FailureCode.CONSUMER_CONFLICT]
    assert claims_in(effects) == []
    driver.idle()


def test_an_unknown_outcome_is_taken_back_before_the_next_try() -> None:
    # given a write whose answer nobody can tell
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(driver.ask())
    write = only(ef.WriteAllocation, driver.accept(claim))
    delete = only(ef.DeleteAllocation, driver.written(write, ev.WriteCode.UNREACHABLE))
    assert delete.written == taken(claim.node)
    # when that is certainly gone, the claim is released and another host is tried
    effects = driver.deleted(delete)
    assert releases_in(effects) == [claim.claim_id]
    assert len(claims_in(effects)) == 1


def test_while_placement_is_down_a_request_fails_clearly_and_the_cleanup_continues() -> None:
    driver = SchedulerDriver(delete_attempts_max=2).with_agents("node-1")
    claim = only_claim(driver.ask())
    write = only(ef.WriteAllocation, driver.accept(claim))
    delete = only(ef.DeleteAllocation, driver.written(write, ev.WriteCode.UNREACHABLE))
    assert driver.deleted(delete, gone=False) == []
    again = only(ef.DeleteAllocation, driver.wait(0.3))
    fail = only(ef.Fail, driver.deleted(again, gone=False))
    assert fail.code == ef.FailureCode.PLACEMENT_UNREACHABLE
    # nobody waits any more, but what may stand there is not forgotten
    third = only(ef.DeleteAllocation, driver.wait(0.5))
    assert releases_in(driver.deleted(third)) == [claim.claim_id]
    driver.idle()


def test_a_placement_that_denies_the_credentials_fails_the_request_at_once() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(driver.ask())
    write = only(ef.WriteAllocation, driver.accept(claim))
    # when nothing can have been written, and another host would not help
    effects = driver.written(write, ev.WriteCode.DENIED)
    # then nothing is deleted
    release, fail = effects
    assert releases_in([release]) == [claim.claim_id]
    assert isinstance(fail, ef.Fail) and fail.code == ef.FailureCode.PLACEMENT_UNREACHABLE
    driver.idle()


@pytest.mark.parametrize("known", [[], [snapshot("node-1", epoch=3)]], ids=["databases", "an earlier life"])
def test_a_claim_names_the_life_that_its_agent_began_while_placement_was_asked(known: list[Snapshot]) -> None:
    """Without it, a copy of the claim could begin again in the next one."""
    driver = SchedulerDriver().without_agents("node-1")
    driver.hear(*known)
    ask = only(ef.AskCandidates, driver.ask(request(root_only=False)))
    driver.hear(Hello(Role.AGENT, "ssched.agent.host-1", 5, "node-1", "host-1"))
    found = ev.Candidate(taken("node-1"), {"": ("node-1",)})
    claim = only_claim(driver.give(ev.CandidatesAnswered(ask.ask_id, (found,), cause=ask.cause)))
    assert (claim.seen_epoch, claim.seen_sequence) == (5, 0)


def test_a_topology_that_no_claim_can_hold_fails_its_request_and_blames_no_host() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    effects = driver.ask(request(topology="x" * (limits.TOPOLOGY_MAX_CHARS + 1)))
    fail = only(ef.Fail, effects)
    assert fail.code is ef.FailureCode.BAD_REQUEST
    assert "49153 characters" in fail.text
    assert claims_in(effects) == []
    driver.idle()


@pytest.mark.parametrize(("code", "counted"), [(code, code == ev.WriteCode.PROVIDER_CONFLICT) for code in WORST_WRITES])
def test_a_write_that_another_writer_has_overtaken_is_counted_as_a_conflict(code: ev.WriteCode, counted: bool) -> None:
    driver = SchedulerDriver().with_agents("node-1")
    driver.written(only(ef.WriteAllocation, driver.accept(only_claim(driver.ask()))), code)

    assert driver.core.counters().get("conflicts", 0) == counted
