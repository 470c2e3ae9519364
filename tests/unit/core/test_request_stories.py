# SPDX-License-Identifier: Apache-2.0
"""Each path of a request, told with the exact effects of each step."""

from __future__ import annotations

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.decision.request import PlacementForm
from shared_scheduler.protocol.messages import Hello, Increment, Role, Want
from tests.unit.core.desk import (
    CELL,
    ME,
    OTHER_CELL,
    Desk,
    Picky,
    claims_in,
    host_of,
    node_read,
    nodes_of,
    of_kind,
    only,
    only_claim,
    releases_in,
    request,
    resyncs_in,
    taken,
)

WORST_WRITES = [
    ev.WriteCode.NO_CAPACITY,
    ev.WriteCode.PROVIDER_CONFLICT,
    ev.WriteCode.UNKNOWN_PROVIDER,
]


# -- all goes well


def test_claim_then_write_then_answer() -> None:
    # given a node whose agent speaks
    desk = Desk().with_agents("node-1")
    # when a request arrives, the only thing that leaves is a claim to that agent
    claim = only_claim(desk.ask())
    assert (claim.node, claim.consumer) == ("node-1", "server-1")
    assert claim.allocations == taken("node-1")
    assert (claim.seen_epoch, claim.seen_sequence) == (1, 1)
    assert claim.deadline_ms == 3000
    # then the verdict brings the write, and only the write's success the answer
    write = only(ef.WriteAllocation, desk.accept(claim))
    assert write.allocations == taken("node-1") and not write.serialise
    assert write.policy == ef.ConsumerPolicy.NEW and write.request_id == "req-1"
    answer = only(ef.Answer, desk.written(write))
    choice = answer.choices[0][0]
    assert (choice.node, choice.host, choice.cell) == ("node-1", "host-1", CELL)
    assert choice.candidate == ev.Candidate(taken("node-1"), {"": ("node-1",)})
    desk.idle()


def test_a_node_without_an_agent_goes_to_placement_directly_and_one_after_the_other() -> None:
    desk = Desk().without_agents("node-1")
    write = only(ef.WriteAllocation, desk.ask())
    assert write.serialise
    assert nodes_of(only(ef.Answer, desk.written(write))) == ["node-1"]
    desk.idle()


def test_a_write_is_given_up_before_the_agent_could_think_that_it_never_came() -> None:
    # the agent looks in Placement for an accepted claim after 15 s, and ends it if it is not there
    desk = Desk().with_agents("node-1")
    write = only(ef.WriteAllocation, desk.accept(only_claim(desk.ask(within_s=600))))
    assert write.deadline_s == desk.now + 10.0
    # nor does a caller's shorter deadline get longer
    write = only(ef.WriteAllocation, desk.accept(only_claim(desk.ask(request("server-2"), within_s=5))))
    assert write.deadline_s <= desk.now + 5.0


def test_what_is_assumed_is_seen_by_the_next_decision() -> None:
    # given one node with room for two
    desk = Desk().with_agents("node-1", vcpus=2)
    first, second = only_claim(desk.ask()), only_claim(desk.ask(request("server-2")))
    assert {first.consumer, second.consumer} == {"server-1", "server-2"}
    # then a third finds it full although no verdict has come, and Placement is asked whether
    # that is so
    third = desk.ask(request("server-3"))
    assert only(ef.AskFitting, third).queries == request().queries


def test_an_evacuation_merges_with_what_stands_there() -> None:
    desk = Desk().with_agents("node-1")
    write = only(
        ef.WriteAllocation, desk.accept(only_claim(desk.ask(request(merge_with_existing=True))))
    )
    assert write.policy == ef.ConsumerPolicy.MERGE


def test_the_topology_of_the_request_travels_with_the_claim() -> None:
    desk = Desk().with_agents("node-1")
    assert only_claim(desk.ask(request(topology='{"numa": 1}'))).topology == '{"numa": 1}'


# -- a host refuses


def test_refused_with_news_then_the_next_host() -> None:
    # given two nodes, and a verdict that brings what happened since
    desk = Desk().with_agents("node-1", "node-2")
    claim = only_claim(desk.ask())
    news = (Increment(claim.node, 1, 2, {"cn.vcpus_used": 4}),)
    # when it refuses, the other node is claimed in the same step, and the row knows the news
    second = only_claim(desk.refuse(claim, news=news))
    assert second.node != claim.node
    assert desk.table.version(claim.node).sequence == 2
    assert desk.table.outstanding(claim.node) == ()
    # then all ends as usual
    write = only(ef.WriteAllocation, desk.accept(second))
    assert nodes_of(only(ef.Answer, desk.written(write))) == [second.node]
    desk.idle()


def test_no_verdict_in_time_then_release_and_the_next_host() -> None:
    desk = Desk().with_agents("node-1", "node-2")
    claim = only_claim(desk.ask())
    effects = desk.wait(3.1)
    # the release, a wish to hear from that agent, and a claim for the other node
    assert releases_in(effects) == [claim.claim_id]
    assert resyncs_in(effects) == [claim.node]
    *repeated, second = claims_in(effects)
    assert repeated == [claim, claim] and second.node != claim.node
    # a node that does not answer is not chosen again before it is heard
    others = frozenset({host_of(second.node)})
    assert claims_in(desk.ask(request("server-2", ignore_hosts=others))) == []


def test_a_late_verdict_for_a_released_claim_is_released_again() -> None:
    desk = Desk().with_agents("node-1", "node-2")
    claim = only_claim(desk.ask())
    desk.wait(3.1)
    assert releases_in(desk.accept(claim)) == [claim.claim_id]


def test_a_verdict_that_comes_twice_writes_once() -> None:
    desk = Desk().with_agents("node-1")
    claim = only_claim(desk.ask())
    write = only(ef.WriteAllocation, desk.accept(claim))
    assert desk.accept(claim) == []
    only(ef.Answer, desk.written(write))
    assert desk.accept(claim) == [] and desk.written(write) == []


def test_a_host_that_the_judge_refuses_is_never_claimed() -> None:
    judge = Picky("node-1")
    desk = Desk(judge).with_agents("node-1", "node-2")
    assert only_claim(desk.ask()).node == "node-2"


# -- Placement refuses


@pytest.mark.parametrize("code", WORST_WRITES)
def test_not_written_then_release_forget_and_the_next_host(code: ev.WriteCode) -> None:
    desk = Desk().with_agents("node-1", "node-2")
    claim = only_claim(desk.ask())
    write = only(ef.WriteAllocation, desk.accept(claim))
    effects = desk.written(write, code)
    assert releases_in(effects) == [claim.claim_id]
    (second,) = claims_in(effects)
    assert second.node != claim.node
    assert not of_kind(ef.DeleteAllocation, effects), "nothing was written, so nothing is deleted"


def test_a_row_that_placement_contradicts_is_read_again() -> None:
    desk = Desk().without_agents("node-1", "node-2")
    write = only(ef.WriteAllocation, desk.ask())
    effects = desk.written(write, ev.WriteCode.NO_CAPACITY)
    (node,) = write.allocations
    assert [refresh.node for refresh in of_kind(ef.RefreshNode, effects)] == [node]
    assert releases_in(effects) == [], "no agent has heard of it"


def test_a_consumer_conflict_is_a_hard_error_of_its_own() -> None:
    desk = Desk().with_agents("node-1", "node-2")
    claim = only_claim(desk.ask())
    effects = desk.written(
        only(ef.WriteAllocation, desk.accept(claim)), ev.WriteCode.CONSUMER_CONFLICT
    )
    assert releases_in(effects) == [claim.claim_id]
    assert [fail.code for fail in of_kind(ef.Fail, effects)] == [ef.FailureCode.CONSUMER_CONFLICT]
    assert claims_in(effects) == []
    desk.idle()


def test_an_unknown_outcome_is_taken_back_before_the_next_try() -> None:
    # given a write whose answer nobody can tell
    desk = Desk().with_agents("node-1", "node-2")
    claim = only_claim(desk.ask())
    write = only(ef.WriteAllocation, desk.accept(claim))
    delete = only(ef.DeleteAllocation, desk.written(write, ev.WriteCode.UNREACHABLE))
    assert delete.written == taken(claim.node)
    # when that is certainly gone, the claim is released and another host is tried
    effects = desk.deleted(delete)
    assert releases_in(effects) == [claim.claim_id]
    assert len(claims_in(effects)) == 1


def test_placement_stays_away_then_a_clear_failure_and_the_cleanup_goes_on() -> None:
    desk = Desk(delete_attempts_max=2).with_agents("node-1")
    claim = only_claim(desk.ask())
    write = only(ef.WriteAllocation, desk.accept(claim))
    delete = only(ef.DeleteAllocation, desk.written(write, ev.WriteCode.UNREACHABLE))
    assert desk.deleted(delete, gone=False) == []
    again = only(ef.DeleteAllocation, desk.wait(0.3))
    fail = only(ef.Fail, desk.deleted(again, gone=False))
    assert fail.code == ef.FailureCode.PLACEMENT_UNREACHABLE
    # nobody waits any more, but what may stand there is not forgotten
    third = only(ef.DeleteAllocation, desk.wait(0.5))
    assert releases_in(desk.deleted(third)) == [claim.claim_id]
    desk.idle()


# -- no host


def test_no_host_and_placement_agrees() -> None:
    desk = Desk().with_agents("node-1", vcpus=1)
    big = request(forms=(PlacementForm({"VCPU": 2}),))
    ask = only(ef.AskFitting, desk.ask(big))
    fail = only(ef.Fail, desk.give(ev.FittingAnswered(ask.ask_id, frozenset())))
    assert fail.code == ef.FailureCode.NO_VALID_HOST and fail.text
    # the same question is not put twice within some seconds
    again = only(ef.Fail, desk.ask(big))
    assert again.code == ef.FailureCode.NO_VALID_HOST
    desk.wait(6)
    only(ef.AskFitting, desk.ask(big))


def test_no_host_but_placement_knows_better() -> None:
    # given a row without an agent that shows a full node
    desk = Desk().without_agents("node-1", vcpus=0)
    ask = only(ef.AskFitting, desk.ask())
    # when Placement says that it fits, the row is read again
    refresh = only(ef.RefreshNode, desk.give(ev.FittingAnswered(ask.ask_id, frozenset({"node-1"}))))
    assert refresh.node == "node-1"
    # then the request is decided again on what was read
    write = only(ef.WriteAllocation, desk.give(node_read("node-1")))
    assert write.allocations == taken("node-1")


def test_no_host_for_reasons_that_placement_knows_nothing_of_fails_at_once() -> None:
    desk = Desk(Picky("node-1")).with_agents("node-1")
    assert only(ef.Fail, desk.ask()).code == ef.FailureCode.NO_VALID_HOST


def test_requests_of_one_shape_share_one_question() -> None:
    desk = Desk().with_agents("node-1", vcpus=0)
    ask = only(ef.AskFitting, desk.ask())
    assert desk.ask(request("server-2")) == []
    fails = desk.give(ev.FittingAnswered(ask.ask_id, frozenset()))
    assert len(of_kind(ef.Fail, fails)) == 2


def test_another_shape_waits_until_the_question_in_flight_is_answered() -> None:
    desk = Desk().with_agents("node-1", vcpus=0)
    first = only(ef.AskFitting, desk.ask())
    assert desk.ask(request("server-2", queries=("resources=VCPU:2",))) == []
    effects = desk.give(ev.FittingAnswered(first.ask_id, frozenset()))
    assert [ask.queries for ask in of_kind(ef.AskFitting, effects)] == [("resources=VCPU:2",)]


def test_placement_does_not_answer_the_doubt_then_the_request_fails_all_the_same() -> None:
    desk = Desk().with_agents("node-1", vcpus=0)
    desk.ask()
    (fail,) = of_kind(ef.Fail, desk.wait(5.1))
    assert fail.code == ef.FailureCode.NO_VALID_HOST


def test_attempts_are_bounded() -> None:
    desk = Desk(attempts_max=2, refusals_max=100).with_agents("node-1", "node-2", "node-3")
    second = only_claim(desk.refuse(only_claim(desk.ask())))
    fail = only(ef.Fail, desk.refuse(second))
    assert fail.code == ef.FailureCode.NO_VALID_HOST and "2 hosts were tried" in fail.text


# -- time


def test_the_deadline_comes_while_the_claim_travels() -> None:
    desk = Desk(verdict_timeout_s=60.0).with_agents("node-1")
    claim = only_claim(desk.ask(within_s=10.0))
    effects = desk.wait(8.1)  # two seconds are kept for cleaning up
    assert releases_in(effects) == [claim.claim_id]
    assert [fail.code for fail in of_kind(ef.Fail, effects)] == [ef.FailureCode.TIMED_OUT]
    desk.idle()


def test_the_deadline_comes_while_the_write_is_in_flight() -> None:
    # given a write that Placement does not answer in time
    desk = Desk().with_agents("node-1")
    claim = only_claim(desk.ask(within_s=10.0))
    write = only(ef.WriteAllocation, desk.accept(claim))
    assert desk.wait(8.1) == [], "a write in flight cannot be called back: it is awaited"
    # when it succeeds after all, it is taken back, and only then the caller hears
    delete = only(ef.DeleteAllocation, desk.written(write))
    effects = desk.deleted(delete)
    assert releases_in(effects) == [claim.claim_id]
    assert [fail.code for fail in of_kind(ef.Fail, effects)] == [ef.FailureCode.TIMED_OUT]
    desk.idle()


def test_a_write_that_never_ends_holds_nobody_beyond_the_deadline() -> None:
    desk = Desk().with_agents("node-1")
    claim = only_claim(desk.ask(within_s=10.0))
    write = only(ef.WriteAllocation, desk.accept(claim))
    assert [fail.code for fail in of_kind(ef.Fail, desk.wait(10.1))] == [ef.FailureCode.TIMED_OUT]
    # what it wrote is still taken back when its answer comes
    delete = only(ef.DeleteAllocation, desk.written(write))
    assert releases_in(desk.deleted(delete)) == [claim.claim_id]
    desk.idle()


# -- several instances


def test_multi_create_claims_all_then_writes_all_then_answers_once() -> None:
    desk = Desk().with_agents("node-1", "node-2", vcpus=2)
    claims = claims_in(desk.ask(request("a", "b", "c")))
    assert [claim.consumer for claim in claims] == ["a", "b", "c"]
    assert {claim.node for claim in claims} == {"node-1", "node-2"}
    writes = [only(ef.WriteAllocation, desk.accept(claim, sequence=5)) for claim in claims]
    assert desk.written(writes[2]) == [] and desk.written(writes[0]) == []
    answer = only(ef.Answer, desk.written(writes[1]))
    assert nodes_of(answer) == [claim.node for claim in claims]
    desk.idle()


def test_multi_create_is_all_or_nothing() -> None:
    # given room for two, and three are asked for; by then one is written and one is being written
    desk = Desk().with_agents("node-1", vcpus=3)
    claims = claims_in(desk.ask(request("a", "b", "c")))
    writes = [only(ef.WriteAllocation, desk.accept(claim, sequence=5)) for claim in claims[:2]]
    assert desk.written(writes[0]) == []
    # when the third is refused and Placement agrees that there is no room
    ask = only(ef.AskFitting, desk.refuse(claims[2]))
    effects = desk.give(ev.FittingAnswered(ask.ask_id, frozenset()))
    # then what is written is deleted, what is in flight is awaited, and nobody is answered yet
    delete = only(ef.DeleteAllocation, effects)
    assert delete.consumer == "a"
    second = only(ef.DeleteAllocation, desk.written(writes[1]))
    assert releases_in(desk.deleted(delete)) == [claims[0].claim_id]
    effects = desk.deleted(second)
    assert releases_in(effects) == [claims[1].claim_id]
    assert [fail.code for fail in of_kind(ef.Fail, effects)] == [ef.FailureCode.NO_VALID_HOST]
    desk.idle()


def test_one_of_several_is_refused_and_decided_again_alone() -> None:
    desk = Desk().with_agents("node-1", "node-2", vcpus=2)
    claims = claims_in(desk.ask(request("a", "b")))
    again = only_claim(desk.refuse(claims[0]))
    assert (again.consumer, again.node != claims[0].node) == ("a", True)
    writes = [only(ef.WriteAllocation, desk.accept(c, sequence=5)) for c in (claims[1], again)]
    desk.written(writes[0])
    assert nodes_of(only(ef.Answer, desk.written(writes[1]))) == [again.node, claims[1].node]


# -- no claim


def test_a_rebuild_chooses_and_claims_nothing() -> None:
    desk = Desk().with_agents("node-1")
    answer = only(ef.Answer, desk.ask(request(forms=(), is_rebuild=True, claim=False)))
    assert nodes_of(answer) == ["node-1"] and answer.choices[0][0].candidate is None
    desk.idle()


def test_a_legacy_caller_consumes_between_instances_and_leaves_nothing_behind() -> None:
    # given two equal nodes
    desk = Desk().with_agents("node-1", "node-2")
    answer = only(ef.Answer, desk.ask(request("a", "b", claim=False)))
    # then the second instance sees the first one, and nothing stays consumed
    assert set(nodes_of(answer)) == {"node-1", "node-2"}
    assert desk.table.outstanding("node-1") == desk.table.outstanding("node-2") == ()


def test_a_legacy_caller_asks_placement_nothing_even_if_its_request_is_not_flat() -> None:
    desk = Desk().with_agents("node-1")
    answer = only(ef.Answer, desk.ask(request(claim=False, flat=False)))
    assert nodes_of(answer) == ["node-1"]


# -- not flat


def test_candidates_are_asked_of_the_best_host_then_of_the_next() -> None:
    desk = Desk().with_agents("node-1", "node-2")
    ask = only(ef.AskCandidates, desk.ask(request(flat=False)))
    assert ask.queries == request().queries
    # when Placement names none there
    second = only(ef.AskCandidates, desk.give(ev.CandidatesAnswered(ask.ask_id, ())))
    assert {ask.node, second.node} == {"node-1", "node-2"}
    # then the claim is for what it names on the next host
    nested = {second.node: {"VCPU": 1}, "nic-1": {"CUSTOM_BANDWIDTH": 100}}
    candidate = ev.Candidate(nested, {"": (second.node,), "_port": ("nic-1",)})
    claim = only_claim(desk.give(ev.CandidatesAnswered(second.ask_id, (candidate,))))
    assert claim.allocations == nested
    write = only(ef.WriteAllocation, desk.accept(claim))
    assert write.mappings == candidate.mappings


def test_placement_cannot_name_candidates() -> None:
    desk = Desk().with_agents("node-1")
    ask = only(ef.AskCandidates, desk.ask(request(flat=False)))
    fail = only(ef.Fail, desk.give(ev.CandidatesAnswered(ask.ask_id, (), "503")))
    assert fail.code == ef.FailureCode.PLACEMENT_UNREACHABLE and "503" in fail.text


def test_instances_that_are_not_flat_are_asked_for_one_after_the_other() -> None:
    desk = Desk().with_agents("node-1", "node-2")
    first = only(ef.AskCandidates, desk.ask(request("a", "b", flat=False)))
    candidate = ev.Candidate(taken(first.node), {"": (first.node,)})
    effects = desk.give(ev.CandidatesAnswered(first.ask_id, (candidate,)))
    assert [claim.consumer for claim in claims_in(effects)] == ["a"]
    assert len(of_kind(ef.AskCandidates, effects)) == 1


# -- alternates


def test_alternates_are_of_the_same_cell_and_not_chosen() -> None:
    desk = Desk().with_agents("node-1", "node-2", "node-3").with_agents("node-9", cell=OTHER_CELL)
    effects = desk.ask(request(num_alternates=5, ignore_hosts=frozenset({"host-9"})))
    claim = only_claim(effects)
    assert desk.wait(0.001) == [], "alternates are looked for after the claim has left"
    answer = only(ef.Answer, desk.written(only(ef.WriteAllocation, desk.accept(claim))))
    chosen, *others = answer.choices[0]
    assert {choice.node for choice in others} == {"node-1", "node-2", "node-3"} - {chosen.node}
    for other in others:
        assert other.candidate == ev.Candidate(taken(other.node), {"": (other.node,)})


def test_alternates_are_not_claimed_and_bounded_by_the_request() -> None:
    desk = Desk().with_agents("node-1", "node-2", "node-3")
    claim = only_claim(desk.ask(request(num_alternates=1)))
    write = only(ef.WriteAllocation, desk.accept(claim))
    answer = only(ef.Answer, desk.written(write))
    assert len(answer.choices[0]) == 2
    desk.idle()


def test_alternates_that_are_not_flat_need_a_candidate_and_the_answer_waits_for_them() -> None:
    desk = Desk().with_agents("node-1", "node-2", "node-3")
    ask = only(ef.AskCandidates, desk.ask(request(flat=False, num_alternates=2)))
    candidate = ev.Candidate(taken(ask.node), {"": (ask.node,)})
    claim = only_claim(desk.give(ev.CandidatesAnswered(ask.ask_id, (candidate,))))
    asks = of_kind(ef.AskCandidates, desk.wait(0.001))
    assert ask.node not in {each.node for each in asks} and len(asks) == 2
    assert desk.written(only(ef.WriteAllocation, desk.accept(claim))) == []
    assert desk.give(ev.CandidatesAnswered(asks[0].ask_id, ())) == []
    found = ev.Candidate(taken(asks[1].node), {"": (asks[1].node,)})
    answer = only(ef.Answer, desk.give(ev.CandidatesAnswered(asks[1].ask_id, (found,))))
    assert [choice.node for choice in answer.choices[0]] == [ask.node, asks[1].node]


def test_alternates_that_placement_does_not_name_in_time_are_left_out() -> None:
    desk = Desk().with_agents("node-1", "node-2")
    ask = only(ef.AskCandidates, desk.ask(request(flat=False, num_alternates=1)))
    candidate = ev.Candidate(taken(ask.node), {"": (ask.node,)})
    claim = only_claim(desk.give(ev.CandidatesAnswered(ask.ask_id, (candidate,))))
    desk.wait(0.001)
    desk.written(only(ef.WriteAllocation, desk.accept(claim)))
    (answer,) = of_kind(ef.Answer, desk.wait(2.1))
    assert nodes_of(answer) == [ask.node] and len(answer.choices[0]) == 1


# -- at the door


def test_draining_refuses_the_new_and_ends_the_old() -> None:
    desk = Desk().with_agents("node-1")
    claim = only_claim(desk.ask())
    desk.give(ev.Draining())
    assert only(ef.Fail, desk.ask(request("late"))).code == ef.FailureCode.DRAINING
    write = only(ef.WriteAllocation, desk.accept(claim))
    only(ef.Answer, desk.written(write))


def test_too_many_requests_are_refused_at_once() -> None:
    desk = Desk(requests_max=1).with_agents("node-1")
    only_claim(desk.ask())
    fail = only(ef.Fail, desk.ask(request("server-2")))
    assert fail.code == ef.FailureCode.OVERLOADED and "1 requests" in fail.text


def test_too_many_claims_are_refused_at_once() -> None:
    desk = Desk(claims_max=2).with_agents("node-1")
    fail = only(ef.Fail, desk.ask(request("a", "b", "c")))
    assert fail.code == ef.FailureCode.OVERLOADED


def test_claims_in_flight_for_one_node_are_bounded() -> None:
    desk = Desk(claims_per_node_max=1).with_agents("node-1", "node-2")
    first, second = claims_in(desk.ask(request("a", "b")))
    assert first.node != second.node
    assert claims_in(desk.ask(request("c"))) == []


def test_a_request_without_instances_is_a_bad_request() -> None:
    desk = Desk().with_agents("node-1")
    fail = only(ef.Fail, desk.ask(request(instance_uuids=())))
    assert fail.code == ef.FailureCode.BAD_REQUEST


def test_a_new_scheduler_says_hello_and_wants_snapshots() -> None:
    desk = Desk()
    effects = desk.give(ev.ChannelChanged(CELL, True))
    assert effects == [ef.Broadcast(CELL, Hello(Role.SCHEDULER, ME, 1, "", "", Want.SNAPSHOT, 0))]


def test_a_claim_is_repeated_until_its_verdict_comes() -> None:
    # given a channel that loses the claim
    desk = Desk(claim_repeat_s=1.0).with_agents("node-1")
    claim = only_claim(desk.ask())
    # when no verdict comes, the very same claim leaves again
    assert desk.wait(0.9) == []
    assert only_claim(desk.wait(0.2)) == claim
    # then both verdicts of it lead to one write
    only(ef.WriteAllocation, desk.accept(claim))
    assert desk.accept(claim) == []
    assert claims_in(desk.wait(5.0)) == []
