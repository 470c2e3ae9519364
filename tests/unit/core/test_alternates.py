# SPDX-License-Identifier: Apache-2.0
"""Hosts for the conductor to try without us."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.group_check import YIELD_PAUSE_S
from shared_scheduler.decision.request import Group
from shared_scheduler.protocol.messages import Consumer
from tests.unit.core.scheduler_driver import (
    OTHER_CELL,
    SchedulerDriver,
    claims_in,
    nodes_of,
    of_kind,
    only,
    only_claim,
    request,
    snapshot,
    taken,
)


def candidate_on(node: str) -> ev.Candidate:
    return ev.Candidate(taken(node), {"": (node,)})


def test_alternates_are_of_the_same_cell_and_not_chosen() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2", "node-3").with_agents("node-9", cell=OTHER_CELL)
    effects = driver.ask(request(num_alternates=5, ignore_hosts=frozenset({"host-9"})))
    claim = only_claim(effects)
    assert driver.wait(0.001) == [], "alternates are selected after the claim has left"
    answer = only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(claim))))
    chosen, *others = answer.choices[0]
    assert {choice.node for choice in others} == {"node-1", "node-2", "node-3"} - {chosen.node}
    for other in others:
        assert other.candidate == ev.Candidate(taken(other.node), {"": (other.node,)})


def test_alternates_are_not_claimed_and_bounded_by_the_request() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2", "node-3")
    claim = only_claim(driver.ask(request(num_alternates=1)))
    write = only(ef.WriteAllocation, driver.accept(claim))
    answer = only(ef.Answer, driver.written(write))
    assert len(answer.choices[0]) == 2
    driver.idle()


def test_the_first_of_a_group_may_be_built_on_any_host() -> None:
    # given a group without members, all of whose servers shall be on one host
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(driver.ask(request(num_alternates=1, group=Group("group", "affinity"))))
    # when its first server is placed
    ask = only(ef.AskGroup, driver.written(only(ef.WriteAllocation, driver.accept(claim))))
    answer = only(ef.Answer, driver.give(ev.GroupAnswered(ask.ask_id, {}, cause=ask.cause)))
    # then the host that it is placed on binds the group once it is built there, not before
    assert {choice.node for choice in answer.choices[0]} == {"node-1", "node-2"}


def test_several_of_a_group_keep_to_the_hosts_of_one_another() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    group = Group("group", "affinity")
    effects = driver.ask(request("server-1", "server-2", num_alternates=1, group=group))
    for claim in claims_in(effects):
        effects = driver.accept(claim)
        (write,) = of_kind(ef.WriteAllocation, effects)
        effects = driver.written(write)
    (ask,) = of_kind(ef.AskGroup, effects)
    answer = only(ef.Answer, driver.give(ev.GroupAnswered(ask.ask_id, {}, cause=ask.cause)))
    assert [len(inner) for inner in answer.choices] == [1, 1]


def test_alternates_that_are_not_root_only_need_a_candidate_and_the_answer_waits_for_them() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2", "node-3")
    ask = only(ef.AskCandidates, driver.ask(request(root_only=False, num_alternates=2)))
    candidate = ev.Candidate(taken(ask.node), {"": (ask.node,)})
    claim = only_claim(driver.give(ev.CandidatesAnswered(ask.ask_id, (candidate,), cause=ask.cause)))
    asks = of_kind(ef.AskCandidates, driver.wait(0.001))
    assert ask.node not in {each.node for each in asks} and len(asks) == 2
    assert driver.written(only(ef.WriteAllocation, driver.accept(claim))) == []
    assert driver.give(ev.CandidatesAnswered(asks[0].ask_id, (), cause="req-1")) == []
    found = ev.Candidate(taken(asks[1].node), {"": (asks[1].node,)})
    answer = only(ef.Answer, driver.give(ev.CandidatesAnswered(asks[1].ask_id, (found,), cause="req-1")))
    assert [choice.node for choice in answer.choices[0]] == [ask.node, asks[1].node]


def test_alternates_are_sorted_best_first_in_any_order_of_placement() -> None:
    # given three hosts, one emptier than the other
    driver = SchedulerDriver().with_agents("node-1").with_agents("node-2", free_mb=6144)
    driver.with_agents("node-3", free_mb=2048)
    ask = only(ef.AskCandidates, driver.ask(request(root_only=False, num_alternates=2)))
    claim = only_claim(driver.give(ev.CandidatesAnswered(ask.ask_id, (candidate_on(ask.node),), cause=ask.cause)))
    first, second = of_kind(ef.AskCandidates, driver.wait(0.001))
    # when the answers come the other way round
    for each in (second, first):
        driver.give(ev.CandidatesAnswered(each.ask_id, (candidate_on(each.node),), cause=each.cause))
    # then the conductor tries the emptier one first
    answer = only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(claim))))
    assert [choice.node for choice in answer.choices[0]] == ["node-1", "node-2", "node-3"]


def test_alternates_that_placement_does_not_name_in_time_are_left_out() -> None:
    driver = SchedulerDriver(alternates_timeout_s=2.0).with_agents("node-1", "node-2")
    ask = only(ef.AskCandidates, driver.ask(request(root_only=False, num_alternates=1)))
    candidate = ev.Candidate(taken(ask.node), {"": (ask.node,)})
    claim = only_claim(driver.give(ev.CandidatesAnswered(ask.ask_id, (candidate,), cause=ask.cause)))
    driver.wait(0.001)
    driver.written(only(ef.WriteAllocation, driver.accept(claim)))
    (answer,) = of_kind(ef.Answer, driver.wait(2.1))
    assert nodes_of(answer) == [ask.node] and len(answer.choices[0]) == 1


def test_alternates_that_are_named_while_their_request_yields_are_not_waited_for() -> None:
    # given a member of a soft group that is written, and alternates of which Placement is asked
    driver = SchedulerDriver().with_agents("node-1", "node-2", "node-3")
    group = Group("group", "soft-affinity", frozenset({"server-5", "server-9"}))
    ask = only(ef.AskCandidates, driver.ask(request("server-9", root_only=False, num_alternates=1, group=group)))
    claim = only_claim(driver.give(ev.CandidatesAnswered(ask.ask_id, (candidate_on(ask.node),), cause=ask.cause)))
    alternate = only(ef.AskCandidates, driver.wait(0.001))
    question = only(ef.AskGroup, driver.written(only(ef.WriteAllocation, driver.accept(claim))))
    # when Placement names them while the member yields to another one, whose host is full meanwhile
    other = min({"node-1", "node-2", "node-3"} - {claim.node})
    stands = {"server-5": frozenset({other})}
    delete = only(ef.DeleteAllocation, driver.give(ev.GroupAnswered(question.ask_id, stands, cause=question.cause)))
    driver.give(ev.CandidatesAnswered(alternate.ask_id, (candidate_on(alternate.node),), cause=alternate.cause))
    driver.hear(snapshot(other, 9, consumers={"server-5": Consumer({other: {"VCPU": 4}}, True, "group")}))
    driver.deleted(delete)
    # then it comes back to its host, and the answer does not wait for what was named
    again = only(ef.AskCandidates, driver.wait(YIELD_PAUSE_S))
    claim = only_claim(driver.give(ev.CandidatesAnswered(again.ask_id, (candidate_on(again.node),), cause=again.cause)))
    driver.wait(0.001)
    answer = only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(claim))))
    assert [choice.node for choice in answer.choices[0]] == [claim.node, alternate.node]


def test_candidates_that_are_named_while_their_request_fails_are_not_claimed() -> None:
    # given three servers, one of which is being written, while Placement is asked for the third one
    driver = SchedulerDriver().with_agents("node-1", "node-2", "node-3")
    asking, writes = driver.ask(request("server-1", "server-2", "server-3", root_only=False)), []
    for _ in range(2):
        (ask,) = of_kind(ef.AskCandidates, asking)
        asking = driver.give(ev.CandidatesAnswered(ask.ask_id, (candidate_on(ask.node),), cause=ask.cause))
        (claim,) = claims_in(asking)
        writes.append(only(ef.WriteAllocation, driver.accept(claim)))
    (ask,) = of_kind(ef.AskCandidates, asking)
    # when the request fails because of the second one, and then the candidates of the third one are named
    assert of_kind(ef.Fail, driver.written(writes[1], ev.WriteCode.REJECTED)) == []
    assert driver.give(ev.CandidatesAnswered(ask.ask_id, (candidate_on(ask.node),), cause=ask.cause)) == []
    # then only the first one has to be deleted
    (delete,) = of_kind(ef.DeleteAllocation, driver.written(writes[0]))
    assert of_kind(ef.Fail, driver.deleted(delete))
    driver.idle()


def test_a_question_for_an_alternate_that_waits_is_not_asked_again_for_another_host() -> None:
    # given four hosts, one emptier than the other, and a request for the best one; its alternates are asked for
    driver = SchedulerDriver().with_agents("node-1").with_agents("node-2", free_mb=6144)
    driver.with_agents("node-3", free_mb=4096).with_agents("node-4", free_mb=2048)
    ask = only(ef.AskCandidates, driver.ask(request(root_only=False, num_alternates=2)))
    claim = only_claim(driver.give(ev.CandidatesAnswered(ask.ask_id, (candidate_on(ask.node),), cause=ask.cause)))
    slow = of_kind(ef.AskCandidates, driver.wait(0.001))
    assert [claim.node, *(each.node for each in slow)] == ["node-1", "node-2", "node-3"]
    # when its agent refuses, and the next host is claimed
    (ask,) = of_kind(ef.AskCandidates, driver.refuse(claim))
    claim = only_claim(driver.give(ev.CandidatesAnswered(ask.ask_id, (candidate_on(ask.node),), cause=ask.cause)))
    # then Placement is asked for the host that was none of the best two alternates, and for no other one
    more = only(ef.AskCandidates, driver.wait(0.001))
    assert [claim.node, more.node] == ["node-2", "node-4"]
    # and all answers are used
    for each in (*slow, more):
        driver.give(ev.CandidatesAnswered(each.ask_id, (candidate_on(each.node),), cause=each.cause))
    answer = only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(claim))))
    assert [choice.node for choice in answer.choices[0]] == ["node-2", "node-3", "node-4"]
