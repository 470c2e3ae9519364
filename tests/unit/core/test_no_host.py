# SPDX-License-Identifier: Apache-2.0
"""No host: "No" is checked, attempts and time are bounded, and the request ends clearly."""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.request_state import RequestPhase
from shared_scheduler.decision.request import PlacementForm, Request
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.messages import Increment, Resync
from tests.unit.core.scheduler_driver import (
    CELL,
    Picky,
    SchedulerDriver,
    claims_in,
    node_read,
    of_kind,
    only,
    only_claim,
    releases_in,
    request,
    snapshot,
    taken,
)

# -- no host


def test_no_host_and_placement_agrees() -> None:
    driver = SchedulerDriver().with_agents("node-1", vcpus=1)
    big = request(forms=(PlacementForm({"VCPU": 2}),))
    ask = only(ef.AskFitting, driver.ask(big))
    fail = only(ef.Fail, driver.give(ev.FittingAnswered(ask.ask_id, frozenset(), cause=ask.cause)))
    assert fail.code == ef.FailureCode.NO_CANDIDATES and fail.text


def test_the_record_has_the_time_of_each_phase() -> None:
    # given a request that Placement lets wait for two seconds
    driver = SchedulerDriver().with_agents("node-1", vcpus=1)
    ask = only(ef.AskFitting, driver.ask(request(forms=(PlacementForm({"VCPU": 2}),))))
    driver.now += 2.0
    fail = only(ef.Fail, driver.give(ev.FittingAnswered(ask.ask_id, frozenset(), cause=ask.cause)))
    # then its time is that of the question, and all phases together are the whole
    times = fail.record.timings_ms
    assert (times["rechecking"], times["total"]) == (2000.0, 2000.0)
    assert sum(times[phase] for phase in RequestPhase if phase in times) == times["total"]


def test_the_same_question_is_asked_again_after_a_time_that_grows_with_the_cloud() -> None:
    # given a cloud of 200 hosts, a fifth of those from which on the interval is as set
    nodes = [f"node-{number}" for number in range(200)]
    driver = SchedulerDriver(recheck_interval_s=5.0).with_agents(*nodes, vcpus=1)
    big = request(forms=(PlacementForm({"VCPU": 2}),))
    ask = only(ef.AskFitting, driver.ask(big))
    driver.give(ev.FittingAnswered(ask.ask_id, frozenset(), cause=ask.cause))
    # when the same is requested within a fifth of it, then it fails without another question
    driver.wait(0.9)
    assert only(ef.Fail, driver.ask(big)).code == ef.FailureCode.NO_CANDIDATES
    # and later it is asked
    driver.wait(0.2)
    only(ef.AskFitting, driver.ask(big))


def test_no_host_but_placement_knows_better() -> None:
    # given a row without an agent that shows a full node
    driver = SchedulerDriver().without_agents("node-1", vcpus=0)
    ask = only(ef.AskFitting, driver.ask())
    # when Placement says that it fits, the row is read again
    refresh = only(ef.RefreshNode, driver.give(ev.FittingAnswered(ask.ask_id, frozenset({"node-1"}), cause=ask.cause)))
    assert refresh.node == "node-1"
    # then the request is decided again on what was read
    write = only(ef.WriteAllocation, driver.give(node_read("node-1", read_at_s=driver.now)))
    assert write.allocations == taken("node-1")


def test_a_provider_that_is_no_node_does_not_delay_the_end() -> None:
    # given a provider in Placement that was left by a compute, and that would fit
    driver = SchedulerDriver().with_agents("node-1", vcpus=0)
    ask = only(ef.AskFitting, driver.ask())
    only(ef.RefreshNode, driver.give(ev.FittingAnswered(ask.ask_id, frozenset({"left"}), cause=ask.cause)))

    # when no cell has it, the request fails at once
    fail = only(ef.Fail, driver.give(ev.NodeNotFound("left", driver.now)))
    assert fail.code == ef.FailureCode.NO_CANDIDATES


def test_a_provider_that_is_no_node_does_not_end_the_wait_for_others() -> None:
    driver = SchedulerDriver().without_agents("node-1", vcpus=0)
    ask = only(ef.AskFitting, driver.ask())
    driver.give(ev.FittingAnswered(ask.ask_id, frozenset({"node-1", "left"}), cause=ask.cause))

    assert driver.give(ev.NodeNotFound("left", driver.now)) == driver.give(ev.NodeNotFound("other", driver.now)) == []
    only(ef.WriteAllocation, driver.give(node_read("node-1", read_at_s=driver.now)))


def test_a_row_that_was_read_before_is_not_forgotten_for_a_provider_that_is_no_node() -> None:
    driver = SchedulerDriver().without_agents("node-1", vcpus=0)
    ask = only(ef.AskFitting, driver.ask())
    driver.give(ev.FittingAnswered(ask.ask_id, frozenset({"node-1", "left"}), cause=ask.cause))

    assert of_kind(ef.WriteAllocation, driver.give(node_read("node-1", read_at_s=driver.now))) == []
    only(ef.WriteAllocation, driver.give(ev.NodeNotFound("left", driver.now)))


def asked_a_second_before(driver: SchedulerDriver, fitting: str) -> float:
    """Placement names this node a second after it was asked; returns when that was."""
    ask = only(ef.AskFitting, driver.ask())
    asked_s = driver.now
    driver.now += 1.0
    driver.give(ev.FittingAnswered(ask.ask_id, frozenset({fitting}), cause=ask.cause))
    return asked_s


def test_a_node_that_joins_while_an_older_search_for_it_goes_on_is_not_refused() -> None:
    # given a slow database, and a search for a node that is older than the question
    driver = SchedulerDriver().with_agents("node-1", vcpus=0)
    began_s = asked_a_second_before(driver, fitting="node-2")

    # when that one has not found it, the request waits for its own search
    assert driver.give(ev.NodeNotFound("node-2", began_s)) == []
    driver.give(ev.ServicesRead(CELL, (ServiceFacts("host-2"),), False))
    only(ef.WriteAllocation, driver.give(node_read("node-2", read_at_s=driver.now)))


def test_a_read_that_began_before_placement_answered_is_no_answer() -> None:
    # given a row without an agent, and a poll that reads it when Placement is asked
    driver = SchedulerDriver().without_agents("node-1", vcpus=0)
    polled_s = asked_a_second_before(driver, fitting="node-1")

    # when the poll has seen the node as it was before, the request waits for its own read
    assert driver.give(node_read("node-1", vcpus=0, read_at_s=polled_s)) == []
    only(ef.WriteAllocation, driver.give(node_read("node-1", read_at_s=driver.now)))


def test_providers_that_are_no_nodes_do_not_keep_rows_from_being_read() -> None:
    # given a full node, and as many providers that computes have left as rows are read
    driver = SchedulerDriver(recheck_rows_max=3).without_agents("node-1", vcpus=0)
    ask = only(ef.AskFitting, driver.ask())
    left = {f"left-{number}" for number in range(3)}

    # when Placement says that all fit, the row of the node is among those
    effects = driver.give(ev.FittingAnswered(ask.ask_id, frozenset({*left, "node-1"}), cause=ask.cause))
    assert [one.node for one in of_kind(ef.RefreshNode, effects)] == ["node-1", "left-0", "left-1"]


def test_a_node_that_goes_while_it_is_read_does_not_delay_the_end() -> None:
    driver = SchedulerDriver().without_agents("node-1", vcpus=0)
    ask = only(ef.AskFitting, driver.ask())
    driver.give(ev.FittingAnswered(ask.ask_id, frozenset({"node-1"}), cause=ask.cause))

    only(ef.Fail, driver.give(ev.NodesGone(CELL, frozenset({"node-1"}))))


def test_no_host_but_placement_knows_better_than_the_agent() -> None:
    # given an agent whose mirror of Placement is behind
    driver = SchedulerDriver().with_agents("node-1", vcpus=0)
    ask = only(ef.AskFitting, driver.ask())

    # when Placement says that it fits, the agent is asked to read it
    sent = only(ef.Send, driver.give(ev.FittingAnswered(ask.ask_id, frozenset({"node-1"}), cause=ask.cause)))
    assert isinstance(sent.message, Resync) and sent.message.recheck

    # then what only changes a part of the row is no answer, and the whole row is
    assert driver.hear(Increment("node-1", 1, 2, {"stats.io_workload": 1})) == []
    claim = only_claim(driver.hear(snapshot("node-1", sequence=3)))
    assert claim.node == "node-1"


def test_a_place_in_a_cell_or_a_device_may_come_free_like_any_other() -> None:
    # given a node whose last device another scheduler had claimed, and then gave back
    driver = SchedulerDriver().with_agents("node-1")
    ask = only(ef.AskFitting, driver.refuse(only_claim(driver.ask()), "topology"))

    # when Placement, which knows nothing of devices, says that the node fits
    driver.give(ev.FittingAnswered(ask.ask_id, frozenset({"node-1"}), cause=ask.cause))

    # then it is tried once more
    again = only_claim(driver.hear(snapshot("node-1", sequence=3)))
    write = only(ef.WriteAllocation, driver.accept(again, sequence=4))
    assert write.allocations == taken("node-1")


def test_no_host_for_reasons_that_placement_knows_nothing_of_fails_at_once() -> None:
    driver = SchedulerDriver(Picky("node-1")).with_agents("node-1")
    assert only(ef.Fail, driver.ask()).code == ef.FailureCode.NO_VALID_HOST


def test_a_host_whose_agent_is_late_for_another_request_is_waited_for() -> None:
    # given a busy agent that let the claim of another request without a verdict: nobody chooses its node
    driver = SchedulerDriver(verdict_timeout_s=3.0).with_agents("node-1")
    driver.ask(request("other"))
    [first] = of_kind(ef.AskFitting, driver.wait(3.1))
    driver.give(ev.FittingAnswered(first.ask_id, frozenset(), cause=first.cause))

    # when a request finds nothing else, its "no" is checked
    ask = only(ef.AskFitting, driver.ask(request("server-2", queries=("resources=VCPU:1",))))
    driver.give(ev.FittingAnswered(ask.ask_id, frozenset({"node-1"}), cause=ask.cause))

    # then it is placed when the agent speaks again
    [claim] = claims_in(driver.hear(snapshot("node-1", sequence=3)))
    assert claim.consumer == "server-2"


def test_requests_of_one_shape_share_one_question() -> None:
    driver = SchedulerDriver().with_agents("node-1", vcpus=0)
    ask = only(ef.AskFitting, driver.ask())
    assert driver.ask(request("server-2")) == []
    fails = driver.give(ev.FittingAnswered(ask.ask_id, frozenset(), cause=ask.cause))
    assert len(of_kind(ef.Fail, fails)) == 2


def test_another_shape_waits_until_the_question_in_flight_is_answered() -> None:
    driver = SchedulerDriver().with_agents("node-1", vcpus=0)
    first = only(ef.AskFitting, driver.ask())
    assert driver.ask(request("server-2", queries=("resources=VCPU:2",))) == []
    effects = driver.give(ev.FittingAnswered(first.ask_id, frozenset(), cause=first.cause))
    assert [ask.queries for ask in of_kind(ef.AskFitting, effects)] == [("resources=VCPU:2",)]


def test_a_question_without_a_waiting_request_is_not_asked() -> None:
    # given a Placement that does not answer, and two requests in doubt, of which one has little time
    driver = SchedulerDriver(recheck_timeout_s=5.0, cleanup_s=1.0).with_agents("node-1", vcpus=0)
    only(ef.AskFitting, driver.ask())
    assert driver.ask(request("server-2", queries=("resources=VCPU:2",)), within_s=3.0) == []
    # when both have ended
    effects = driver.wait(6.0)
    # then nobody is asked about the second one, and who comes next is
    assert len(of_kind(ef.Fail, effects)) == 2
    assert of_kind(ef.AskFitting, effects) == [] and len(driver.core.recheck) == 0
    only(ef.AskFitting, driver.ask(request("server-3", queries=("resources=VCPU:3",))))


def test_placement_does_not_answer_the_doubt_then_the_request_fails_all_the_same() -> None:
    driver = SchedulerDriver().with_agents("node-1", vcpus=0)
    driver.ask()
    (fail,) = of_kind(ef.Fail, driver.wait(5.1))
    assert fail.code == ef.FailureCode.NO_CANDIDATES


def test_attempts_are_bounded() -> None:
    driver = SchedulerDriver(attempts_max=2, refusals_max=100).with_agents("node-1", "node-2", "node-3")
    second = only_claim(driver.refuse(only_claim(driver.ask())))
    fail = only(ef.Fail, driver.refuse(second))
    assert fail.code == ef.FailureCode.NO_VALID_HOST and "2 hosts were tried" in fail.text


# -- time


def test_the_deadline_passes_before_the_verdict() -> None:
    driver = SchedulerDriver(verdict_timeout_s=60.0).with_agents("node-1")
    claim = only_claim(driver.ask(within_s=10.0))
    effects = driver.wait(8.1)  # two seconds are kept for cleaning up
    assert releases_in(effects) == [claim.claim_id]
    assert [fail.code for fail in of_kind(ef.Fail, effects)] == [ef.FailureCode.TIMED_OUT]
    driver.idle()


def test_a_request_with_little_time_does_not_begin_by_cleaning_up() -> None:
    # given an operator who gives requests a second (``request_timeout_s``)
    driver = SchedulerDriver(verdict_timeout_s=60.0).with_agents("node-1")
    driver.ask(within_s=1.0)
    # when nobody answers, half of it is kept for cleaning up
    assert driver.wait(0.4) == []
    assert [fail.code for fail in of_kind(ef.Fail, driver.wait(0.2))] == [ef.FailureCode.TIMED_OUT]
    driver.idle()


def test_the_deadline_passes_while_the_write_is_in_flight() -> None:
    # given a write that Placement does not answer in time
    driver = SchedulerDriver().with_agents("node-1")
    claim = only_claim(driver.ask(within_s=10.0))
    write = only(ef.WriteAllocation, driver.accept(claim))
    assert driver.wait(8.1) == [], "a write in flight cannot be called back: it is awaited"
    # when it succeeds after all, it is taken back, and only then the caller hears
    delete = only(ef.DeleteAllocation, driver.written(write))
    effects = driver.deleted(delete)
    assert releases_in(effects) == [claim.claim_id]
    assert [fail.code for fail in of_kind(ef.Fail, effects)] == [ef.FailureCode.TIMED_OUT]
    driver.idle()


def test_a_write_that_never_ends_delays_no_request_beyond_the_deadline() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    claim = only_claim(driver.ask(within_s=10.0))
    write = only(ef.WriteAllocation, driver.accept(claim))
    assert [fail.code for fail in of_kind(ef.Fail, driver.wait(10.1))] == [ef.FailureCode.TIMED_OUT]
    # what it wrote is still taken back when its answer comes
    delete = only(ef.DeleteAllocation, driver.written(write))
    assert releases_in(driver.deleted(delete)) == [claim.claim_id]
    driver.idle()


def tried_in_vain(driver: SchedulerDriver, asked: Request) -> list[ef.Effect]:
    """Placement names no candidates on any of the hosts that are tried."""
    effects = driver.ask(asked)
    while effects and isinstance(effects[0], ef.AskCandidates) and effects[0].node != "node-9":
        effects = driver.give(ev.CandidatesAnswered(effects[0].ask_id, (), cause="req-1"))
    return effects


def test_the_one_host_with_candidates_is_found_among_more_than_are_tried() -> None:
    # given ten hosts of which a request may try three, and only the worst one has what it asks for
    driver = SchedulerDriver(attempts_max=3).with_agents(*(f"node-{number}" for number in range(9)))
    driver.with_agents("node-9", free_mb=2048)
    asked = request(root_only=False)
    # when three have been tried, Placement is asked which hosts they are
    ask = only(ef.AskFitting, tried_in_vain(driver, asked))
    driver.give(ev.FittingAnswered(ask.ask_id, frozenset({"node-9"}), cause=ask.cause))
    # then that one is tried next, once its agent has read it
    candidates = only(ef.AskCandidates, driver.hear(snapshot("node-9", sequence=2, free_mb=2048)))
    assert candidates.node == "node-9"
    # and for some seconds other requests for the same know it
    soon = only(ef.AskCandidates, tried_in_vain(driver, replace(asked, instance_uuids=("server-2",))))
    assert soon.node == "node-9"


def test_where_placement_names_no_host_either_the_request_fails() -> None:
    driver = SchedulerDriver(attempts_max=3).with_agents(*(f"node-{number}" for number in range(9)))
    ask = only(ef.AskFitting, tried_in_vain(driver, request(root_only=False)))
    fail = only(ef.Fail, driver.give(ev.FittingAnswered(ask.ask_id, frozenset(), cause=ask.cause)))
    assert (fail.code, "3 hosts were tried" in fail.text) == (ef.FailureCode.NO_VALID_HOST, True)
