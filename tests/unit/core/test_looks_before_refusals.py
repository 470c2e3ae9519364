# SPDX-License-Identifier: Apache-2.0
"""What a request knows after it has read, before a refusal, where the servers are."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.protocol.messages import Consumer
from tests.unit.core.scheduler_driver import claims_in, of_kind, only, only_claim, request, snapshot, taken
from tests.unit.core.test_spreading_refusals import HINTS, WEB, answered, racks_of_which_one_is_full


def test_a_claim_in_flight_counts_also_after_a_look() -> None:
    # given a full rack with a server that only Placement knows, a rack with a server of the label, and one with none
    # and room for one more only
    driver = racks_of_which_one_is_full("node-1", "node-3")
    driver.hear(snapshot("node-3", 3, vcpus=1))
    # when a server is claimed in that one, and another request looks up the places before that is written
    first = only_claim(driver.ask(request("server-5", hints=HINTS)))
    assert first.node == "node-3"
    ask = only(ef.AskGroup, driver.ask(request("server-6", request_id="req-2", hints=HINTS)))
    # then each rack has one, so the other request goes where there is room
    effects = answered(driver, ask, server_2="node-2")
    assert [claim.node for claim in claims_in(effects)] == ["node-1"], effects


def test_requests_that_have_looked_do_not_all_take_the_same_rack() -> None:
    # given the same, with room for all, and three requests that come at once
    driver = racks_of_which_one_is_full("node-1", "node-3")
    driver.hear(snapshot("node-3", 3))
    nodes = [only_claim(driver.ask(request("server-4", hints=HINTS))).node]
    asks = [only(ef.AskGroup, driver.ask(request(f"server-{n}", request_id=f"req-{n}", hints=HINTS))) for n in (5, 6)]
    # when they have read the places, before any of them is written
    for ask in asks:
        nodes += [claim.node for claim in claims_in(answered(driver, ask, server_2="node-2"))]
    # then no rack gets more than one above the others
    assert sorted(nodes) == ["node-1", "node-3", "node-3"]


def test_a_server_that_was_built_after_a_look_counts() -> None:
    # given the same, and a request that has looked while the first server was claimed; it has found the third rack
    driver = racks_of_which_one_is_full("node-1", "node-3")
    driver.hear(snapshot("node-3", 3))
    first = only_claim(driver.ask(request("server-5", hints=HINTS)))
    ask = only(ef.AskGroup, driver.ask(request("server-6", request_id="req-2", hints=HINTS)))
    (claim,) = claims_in(answered(driver, ask, server_2="node-2"))
    # when the first server is built there
    driver.written(only(ef.WriteAllocation, driver.accept(first, 4)))
    driver.hear(snapshot("node-3", 5, consumers={"server-5": Consumer(taken("node-3"), True, WEB)}))
    # and the agent of the host that the other one has chosen refuses it
    effects = driver.refuse(claim, "topology")
    # then each rack has one, so it goes to the other one with room
    (other,) = {"node-1", "node-3"} - {claim.node}
    assert [again.node for again in claims_in(effects)] == [other], effects


def test_requests_of_one_label_that_are_refused_together_look_once() -> None:
    # given a label that can get no server more
    driver = racks_of_which_one_is_full("node-1", "node-3")
    # when many requests for it come together, as a client that tries again and again sends them
    asks = [
        ask
        for number in range(100)
        for ask in of_kind(ef.AskGroup, driver.ask(request(f"server-{number}x", request_id=f"r{number}", hints=HINTS)))
    ]
    # then Placement is not asked for each member a hundred times: two threads read, also for the checks of all others
    assert len(asks) == 1


def test_a_look_without_an_answer_does_not_keep_a_request_until_its_deadline() -> None:
    # given a request that looks, and Placement does not answer
    driver = racks_of_which_one_is_full("node-1", "node-3")
    only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS)))
    # when the time of a recheck has passed, then it goes on as before, as after a recheck without an answer
    effects = driver.wait(SchedulerSettings().recheck_timeout_s)
    assert any(isinstance(one, ef.AskFitting | ef.Fail) for one in effects)


def test_a_request_that_has_looked_and_never_yielded_does_not_say_that_others_came_first() -> None:
    # given a request that has looked, has found a server without an answer, and is claimed
    driver = racks_of_which_one_is_full("node-1", "node-3")
    ask = only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS), within_s=3.0))
    standing = {"server-2": frozenset({"node-2"}), "server-7": frozenset({"node-1"})}
    found = ev.GroupAnswered(ask.ask_id, standing, unanswered=frozenset({"server-7"}), cause=ask.cause)
    only_claim(driver.give(found))
    # when its time is over before the agent has answered
    (failed,) = of_kind(ef.Fail, driver.wait(2.5))
    # then the agent is the reason, not the servers of others
    assert failed.code is ef.FailureCode.TIMED_OUT, failed.text


def test_a_dry_run_that_looks_takes_no_room_from_a_server() -> None:
    # given a dry run for two servers: the first one would have the last room of a host, the second one looks
    driver = racks_of_which_one_is_full("node-1", "node-3")
    driver.hear(snapshot("node-1", 3, vcpus=1))
    only(ef.AskGroup, driver.ask(request("server-5", "server-6", hints=HINTS, dry_run=True)))
    # when a server must have that host meanwhile, then it gets it
    real = request("server-7", request_id="req-2", force_nodes=("host-1",))
    effects = driver.ask(real)
    assert [claim.node for claim in claims_in(effects)] == ["node-1"], effects
