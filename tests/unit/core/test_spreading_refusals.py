# SPDX-License-Identifier: Apache-2.0
"""Before a request is refused because of spreading, it is read where the servers are.

The table does not know the label of a server that has no agent, or that nova-scheduler has placed.  A full rack with
such servers only looks empty, and would keep all others from getting one more."""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.label_reads import (
    LABEL_READ_INTERVAL_S,
    LABEL_READ_LOST_S,
    LABEL_READ_PAUSE_S,
    LABEL_READS_BURST,
    LABEL_READS_PER_S,
)
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.request import Request
from shared_scheduler.decision.spread_request import label_uuid
from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.protocol.messages import Consumer, Increment
from tests.unit.core.racks import HINTS, WEB
from tests.unit.core.scheduler_driver import (
    SchedulerDriver,
    claims_in,
    host_of,
    node_read,
    of_kind,
    only,
    only_claim,
    request,
    snapshot,
    taken,
)


def racks_of_which_one_is_full(*others: str) -> SchedulerDriver:
    """``node-2`` is full and has no agent; the others have one server of the label.  Each is in a rack of its own."""
    driver = SchedulerDriver(decision=DecisionSettings(spread_keys=("rack",)))
    driver.with_agents(*others).without_agents("node-2", vcpus=1)
    racks = (
        AggregateFacts(number, f"aggregate-{number}", node, frozenset({host_of(node)}), {"rack": node})
        for number, node in enumerate((*others, "node-2"), 1)
    )
    driver.give(ev.AggregatesRead(tuple(racks)))
    full = {"server-2": {"node-2": {"VCPU": 1}}}
    driver.give(replace(node_read("node-2", vcpus=1), consumers=full, members=frozenset(full)))
    for number, node in enumerate(others, 1):
        driver.hear(snapshot(node, 2, consumers={f"server-{number}1": Consumer(taken(node), True, WEB)}))
    return driver


def answered(driver: SchedulerDriver, ask: ef.AskGroup, **nodes: str) -> list[ef.Effect]:
    """Placement has these servers (names with _ for -) on these nodes."""
    standing = {name.replace("_", "-"): frozenset({node}) for name, node in nodes.items()}
    return driver.give(ev.GroupAnswered(ask.ask_id, standing, cause=ask.cause))


def test_a_full_rack_whose_servers_only_placement_knows_does_not_block_the_others() -> None:
    # given two racks with a server each, and a full one with a server whose label no agent knows
    driver = racks_of_which_one_is_full("node-1", "node-3")
    # when another one comes, then the places are read before it is refused
    ask = only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS)))
    # and it gets a host when they are known
    assert only_claim(answered(driver, ask, server_2="node-2")).node in ("node-1", "node-3")


def test_a_request_that_no_rack_may_have_is_refused_after_one_label_read() -> None:
    # given the same, but no server in the full rack has the label
    driver = racks_of_which_one_is_full("node-1", "node-3")
    ask = only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS)))
    # when nothing else is found, then it is refused, and not read again
    fitting = only(ef.AskFitting, answered(driver, ask))
    failed = only(ef.Fail, driver.give(ev.FittingAnswered(fitting.ask_id, frozenset(), cause=ask.cause)))
    assert failed.code is ef.FailureCode.NO_VALID_HOST
    assert "spread: 2" in failed.text


def test_where_the_servers_cannot_be_read_the_refusal_says_so() -> None:
    # given a request that waits for the places
    driver = racks_of_which_one_is_full("node-1", "node-3")
    ask = only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS)))
    # when they cannot be read
    failed = only(ef.Fail, driver.give(ev.GroupAnswered(ask.ask_id, {}, "no route", cause=ask.cause)))
    # then nobody has told that there is no host
    assert failed.code is ef.FailureCode.GROUP_UNSETTLED
    assert "no route" in failed.text


def test_a_second_server_of_a_request_is_looked_up_while_the_first_one_is_claimed() -> None:
    # given a rack with room and without servers of the label, and the full one
    driver = racks_of_which_one_is_full("node-1")
    driver.hear(snapshot("node-1", 3))
    # when two servers are asked for, then the first one is claimed, and the second one finds no rack yet
    effects = driver.ask(request("server-5", "server-6", hints=HINTS))
    (ask,), (first,) = of_kind(ef.AskGroup, effects), claims_in(effects)
    assert ask.known == {"server-5", "server-6"}
    # and the first one goes on meanwhile
    assert of_kind(ef.WriteAllocation, driver.accept(first))
    # when the full rack has a server of the label, then the second one goes to the other rack as well
    assert only_claim(answered(driver, ask, server_2="node-2")).node == "node-1"


def test_a_request_that_claims_nothing_holds_no_room_while_it_reads() -> None:
    # given the same cloud, and a request whose decision is only shown
    driver = racks_of_which_one_is_full("node-1", "node-3")
    effects = driver.ask(replace(request("server-5", hints=HINTS), dry_run=True))
    # then it shows what the table says, as it assumes servers in it
    assert not of_kind(ef.AskGroup, effects)


def test_a_server_that_nova_has_deleted_does_not_count_after_a_label_read() -> None:
    # given two racks with a server each, as their agents say, and a full one without; another request reads
    driver = racks_of_which_one_is_full("node-1", "node-3")
    ask = only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS)))
    # when Nova has deleted one of the servers, of which its agent, that is silent, has not heard
    gone = ev.GroupAnswered(ask.ask_id, {}, gone=frozenset({"server-11"}), cause=ask.cause)
    # then its rack has none, and takes the other one
    assert only_claim(driver.give(gone)).node == "node-1"


def test_a_claim_in_flight_counts_also_after_a_label_read() -> None:
    # given a full rack with a server that only Placement knows, a rack with a server of the label, and one with none
    # and room for one more only
    driver = racks_of_which_one_is_full("node-1", "node-3")
    driver.hear(snapshot("node-3", 3, vcpus=1))
    # when a server is claimed in that one, and another request reads the places before that is written
    first = only_claim(driver.ask(request("server-5", hints=HINTS)))
    assert first.node == "node-3"
    ask = only(ef.AskGroup, driver.ask(request("server-6", request_id="req-2", hints=HINTS)))
    # then each rack has one, so the other request goes where there is room
    effects = answered(driver, ask, server_2="node-2")
    assert [claim.node for claim in claims_in(effects)] == ["node-1"], effects


def test_a_server_that_was_built_after_a_label_read_counts() -> None:
    # given the same, and a request that has read while the first server was claimed; it has found the third rack
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


def test_requests_of_one_label_read_it_once_in_a_while() -> None:
    # given a label that can get no server more
    driver = racks_of_which_one_is_full("node-1", "node-3")
    # when many requests for it come together, as a client that tries again and again sends them
    requests = [request(f"server-{number}x", request_id=f"r{number}", hints=HINTS) for number in range(100)]
    asks = [ask for one in requests for ask in of_kind(ef.AskGroup, driver.ask(one))]
    # then Placement is not asked for each member a hundred times: two threads read, also for the checks of all others
    assert len(asks) == 1
    assert not of_kind(ef.AskGroup, driver.wait(LABEL_READ_INTERVAL_S / 2))
    # and it is asked again after a while, and once
    assert not of_kind(ef.AskGroup, answered(driver, asks[0]))
    effects = driver.wait(LABEL_READ_INTERVAL_S / 2) + again(driver) + driver.wait(LABEL_READ_INTERVAL_S / 2)
    assert len(of_kind(ef.AskGroup, effects)) == 1


def claimed_after_a_label_read(driver: SchedulerDriver, **nodes: str) -> str:
    """A request reads, Placement has these servers there, and the agent of this node accepts its claim."""
    ask = only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS)))
    claim = only_claim(answered(driver, ask, **nodes))
    driver.accept(claim, 9)
    return claim.node


def time_for_another_label_read(driver: SchedulerDriver) -> None:
    """The interval passes, and the agents are not silent."""
    for sequence in (3, 4):
        driver.wait(LABEL_READ_INTERVAL_S / 2)
        driver.hear(*(Increment(node, 1, sequence) for node in ("node-1", "node-3")))


def again(driver: SchedulerDriver, number: int = 6) -> list[ef.Effect]:
    """Another request for the label comes."""
    return driver.ask(request(f"server-{number}", request_id=f"req-{number}", hints=HINTS))


def test_a_request_soon_after_a_label_read_uses_what_that_has_found() -> None:
    # given a full rack with more servers than the others, of which only a label read has told
    driver = racks_of_which_one_is_full("node-1", "node-3")
    first = claimed_after_a_label_read(driver, server_2="node-2", server_3="node-2", server_4="node-2")
    # when the next server comes a second later, then it gets the other rack, although nothing is read for it
    driver.wait(1.0)
    assert {first, only_claim(again(driver)).node} == {"node-1", "node-3"}


def test_a_request_that_comes_during_a_label_read_waits_for_its_answer() -> None:
    # given a request that reads, and another one at the same moment
    driver = racks_of_which_one_is_full("node-1", "node-3")
    ask = only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS)))
    assert again(driver) == []
    # when the places are known, then both get a host
    first = only_claim(answered(driver, ask, server_2="node-2")).node
    assert {first, only_claim(driver.wait(LABEL_READ_PAUSE_S)).node} == {"node-1", "node-3"}


def test_a_request_after_a_label_read_that_has_failed_reads_itself_when_it_is_time() -> None:
    # given a label read that has failed
    driver = racks_of_which_one_is_full("node-1", "node-3")
    ask = only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS)))
    only(ef.Fail, driver.give(ev.GroupAnswered(ask.ask_id, {}, "no route", cause=ask.cause)))
    # when another request comes, then it waits, and reads
    assert again(driver) == []
    time_for_another_label_read(driver)
    (ask,) = of_kind(ef.AskGroup, driver.wait(LABEL_READ_INTERVAL_S / 2))
    assert only_claim(answered(driver, ask, server_2="node-2")).node in ("node-1", "node-3")


def test_a_request_without_the_time_to_wait_is_refused() -> None:
    # given a request that reads
    driver = racks_of_which_one_is_full("node-1", "node-3")
    only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS)))
    # when another one comes whose time is over soon, then it does not wait for the answer
    effects = driver.ask(request("server-6", request_id="req-2", hints=HINTS), within_s=LABEL_READ_PAUSE_S)
    only(ef.AskFitting, effects)


def test_where_a_server_is_since_a_label_read_counts() -> None:
    # given a label read that has found a server in the first rack, besides the one there
    driver = racks_of_which_one_is_full("node-1", "node-3")
    assert claimed_after_a_label_read(driver, server_2="node-2", server_7="node-1") == "node-3"
    # when the agent of the third rack has built that one since
    there = {name: Consumer(taken("node-3"), True, WEB) for name in ("server-21", "server-7")}
    driver.hear(snapshot("node-3", 3, consumers=there))
    # then the first rack has one only, and gets the next one
    assert only_claim(again(driver)).node == "node-1"


def test_what_a_label_read_has_found_refuses_nobody_for_long() -> None:
    # given racks with two servers each, and a full one with one, as a label read has found
    driver = racks_of_which_one_is_full("node-1", "node-3")
    claimed_after_a_label_read(driver, server_2="node-2")
    driver.accept(only_claim(again(driver)), 9)
    # when the full one has got another server, then the next request is refused: that was not read
    only(ef.AskFitting, again(driver, 7))
    # and when there was time for another label read, then it gets a host
    time_for_another_label_read(driver)
    ask = only(ef.AskGroup, again(driver, 8))
    assert only_claim(answered(driver, ask, server_2="node-2", server_3="node-2")).node in ("node-1", "node-3")


def test_a_server_does_not_count_for_its_own_request_where_a_label_read_for_another_one_has_found_it() -> None:
    # given that only the first rack has room, and a label read that has found two servers there besides the known one
    driver = racks_of_which_one_is_full("node-1", "node-3")
    driver.hear(snapshot("node-3", 3, vcpus=0, consumers={"server-21": Consumer(taken("node-3"), True, WEB)}))
    ask = only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS)))
    only(ef.AskFitting, answered(driver, ask, server_2="node-2", server_6="node-1", server_7="node-1"))
    # when these two are asked for again, then one may be there beside the known one, as each other rack has one
    effects = driver.ask(request("server-6", "server-7", request_id="req-2", hints=HINTS))
    assert len(claims_in(effects)) == 1


def test_what_a_label_read_finds_after_its_request_has_ended_serves_the_others() -> None:
    # given a request with little time that reads, and another one that waits for the answer
    driver = racks_of_which_one_is_full("node-1", "node-3")
    ask = only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS), within_s=1.0))
    assert again(driver) == []
    # when the time of the first one is over, and the answer comes then
    only(ef.Fail, driver.wait(0.6))
    assert answered(driver, ask, server_2="node-2") == []
    # then the other one is placed
    assert only_claim(driver.wait(1.0)).node in ("node-1", "node-3")


def test_what_a_slow_label_read_finds_serves_the_others() -> None:
    # given a label read that takes so long that its request goes on without the answer
    driver = racks_of_which_one_is_full("node-1", "node-3")
    ask = only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS)))
    time_for_another_label_read(driver)
    # when the answer comes, then it serves the next request
    assert answered(driver, ask, server_2="node-2") == []
    assert only_claim(again(driver)).node in ("node-1", "node-3")


def test_a_request_that_has_gone_on_without_the_answer_to_its_label_read_uses_it_when_it_comes() -> None:
    # given a label read that takes so long that its request asks Placement which hosts fit
    driver = racks_of_which_one_is_full("node-1", "node-3")
    ask = only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS)))
    (fitting,) = of_kind(ef.AskFitting, driver.wait(SchedulerSettings().recheck_timeout_s))
    # when the answer to the label read comes before that, and the request is decided again
    assert answered(driver, ask, server_2="node-2") == []
    driver.give(ev.FittingAnswered(fitting.ask_id, frozenset({"node-1"}), cause=fitting.cause))
    there = {"server-11": Consumer(taken("node-1"), True, WEB)}
    # then it knows where the servers are
    assert only_claim(driver.hear(snapshot("node-1", 3, consumers=there))).node in ("node-1", "node-3")


def test_a_request_that_is_decided_later_uses_what_has_been_found_since() -> None:
    # given a request that uses what a label read has found, and whose write takes long
    driver = racks_of_which_one_is_full("node-1", "node-3")
    assert claimed_after_a_label_read(driver, server_2="node-2") == "node-1"
    claim = only_claim(again(driver))
    assert claim.node == "node-3"
    write = only(ef.WriteAllocation, driver.accept(claim, 9))
    # when the others have got more servers, as the label read of a third one finds, which goes to the first rack
    time_for_another_label_read(driver)
    there = dict.fromkeys(("server_2", "server_3", "server_4"), "node-2") | dict.fromkeys(
        ("server_8", "server_9"), "node-3"
    )
    third = only_claim(answered(driver, only(ef.AskGroup, again(driver, 7)), **there))
    assert third.node == "node-1"
    # and there is no room for the first one any more
    effects = driver.written(write, ev.WriteCode.NO_CAPACITY)
    # then it is decided with what was found last: each rack has three
    assert [again.node for again in claims_in(effects)] == ["node-1"], effects


def no_route(driver: SchedulerDriver, ask: ef.AskGroup) -> list[ef.Effect]:
    """The places cannot be read."""
    return driver.give(ev.GroupAnswered(ask.ask_id, {}, "no route", cause=ask.cause))


def test_a_request_that_has_waited_is_not_refused_while_a_later_one_reads() -> None:
    # given a label read that has failed, and a request that waits for the next one
    driver = racks_of_which_one_is_full("node-1", "node-3")
    no_route(driver, only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS))))
    assert again(driver) == []
    time_for_another_label_read(driver)
    # when a request that comes later reads first, then the one that waits is not refused before the answer
    ask = only(ef.AskGroup, again(driver, 7))
    assert driver.wait(2.0) == []
    # and both get a host
    first = only_claim(answered(driver, ask, server_2="node-2"))
    driver.accept(first, 9)
    driver.hear(*(Increment(node, 1, 5) for node in ("node-1", "node-3")))
    nodes = (claim.node for claim in claims_in(driver.wait(LABEL_READ_INTERVAL_S)))
    assert {first.node, *nodes} == {"node-1", "node-3"}


def test_a_request_that_has_waited_is_refused_if_later_reads_have_no_answer_either() -> None:
    # given requests that come every half second while Placement answers no label read
    driver = racks_of_which_one_is_full("node-1", "node-3")
    effects = driver.ask(request("server-5", hints=HINTS)) + again(driver)
    for number in range(7, 47):
        effects += driver.wait(0.5) + again(driver, number)
    # then the first one that has waited fails, long before its deadline
    assert "req-6" in [one.request.request_id for one in of_kind(ef.Fail, effects)]


def test_a_label_is_not_read_again_while_the_answer_is_on_its_way() -> None:
    # given a label with so many servers that Placement needs a minute for them, and requests that come all the time
    driver = racks_of_which_one_is_full("node-1", "node-3")
    effects = driver.ask(request("server-5", hints=HINTS))
    for number in range(6, 46):
        effects += driver.wait(0.5) + again(driver, number)
    # then the two threads that read, also for the checks of all others, have one such question, not one more in each
    # interval
    assert len(of_kind(ef.AskGroup, effects)) == 1
    # and an answer that has not come for long is not waited for
    driver.wait(LABEL_READ_LOST_S)
    assert of_kind(ef.AskGroup, again(driver, 46))


def test_a_request_is_not_refused_with_what_was_found_earlier_while_a_newer_answer_is_on_its_way() -> None:
    # given a label for which a label read has found no host, and another one five seconds later
    driver = racks_of_which_one_is_full("node-1", "node-3")
    answered(driver, only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS))))
    time_for_another_label_read(driver)
    ask = only(ef.AskGroup, again(driver))
    # when another request comes before its answer, then it waits
    assert again(driver, 7) == []
    # and both get a host
    first = only_claim(answered(driver, ask, server_2="node-2")).node
    assert {first, only_claim(driver.wait(LABEL_READ_PAUSE_S)).node} == {"node-1", "node-3"}


def racks_of_many_labels(labels: list[str], one_project: bool = False) -> SchedulerDriver:
    """Racks of which none can get a server more of any of these labels; each of them is of another project, or not."""
    driver = racks_of_which_one_is_full("node-1", "node-3")
    one = {"node-1": {"VCPU": 1}}
    projects = {label: "project" if one_project else f"project of {label}" for label in labels}
    there = {f"server-{label}": Consumer(one, True, label_uuid(projects[label], label)) for label in labels}
    driver.hear(snapshot("node-1", 3, vcpus=100, consumers=there), snapshot("node-3", 3, vcpus=0))
    return driver


def one_more(label: str, request_id: str, project: str = "") -> Request:
    """A request for one more server of a label."""
    hints = HINTS | {"shared_scheduler:label": (label,)}
    project = project or f"project of {label}"
    return request(f"{request_id}x", request_id=request_id, project_id=project, hints=hints)


def reads_for(driver: SchedulerDriver, label: str, request_id: str, project: str = "") -> bool:
    """Whether a request for one more server of a label reads the label before it is refused."""
    return bool(of_kind(ef.AskGroup, driver.ask(one_more(label, request_id, project))))


LABELS = [f"label-{number}" for number in range(LABEL_READS_BURST + 1)]


def test_requests_of_many_labels_do_not_all_read_them() -> None:
    # given many labels that can get no server more
    driver = racks_of_many_labels(LABELS)
    # when a request for each comes at once, then only some read
    assert sum(reads_for(driver, label, f"r-{label}") for label in LABELS) == LABEL_READS_BURST


def test_a_label_that_was_not_read_for_the_sake_of_others_is_read_as_soon_as_it_may_be() -> None:
    # given a label whose request did not read it, because others did
    driver = racks_of_many_labels(LABELS)
    assert not [reads_for(driver, label, f"r-{label}") for label in LABELS][-1]
    # when there is time for one more read, then it reads
    (ask,) = of_kind(ef.AskGroup, driver.wait(2 / LABEL_READS_PER_S))
    assert ask.label == LABELS[-1]


def test_the_labels_of_one_project_do_not_keep_those_of_others_from_being_read() -> None:
    # given a project with many labels that can get no server more, whose client tries again and again
    labels = [f"label-{number}" for number in range(3 * LABEL_READS_BURST)]
    driver = racks_of_many_labels(labels, one_project=True)
    for attempt in range(6):
        driver.wait(0.25)
        for label in labels:
            for ask in of_kind(ef.AskGroup, driver.ask(one_more(label, f"{label} {attempt}", "project"))):
                answered(driver, ask)
    # when a request of another project would be refused, then it reads nevertheless
    for node in ("node-1", "node-3"):
        there = {f"server-on-{node}": Consumer(taken(node), True, label_uuid("other", "web"))}
        driver.hear(snapshot(node, 9, consumers=there))
    assert reads_for(driver, "web", "req-other", "other")


def test_a_label_read_without_an_answer_does_not_keep_a_request_until_its_deadline() -> None:
    # given a request that reads, and Placement does not answer
    driver = racks_of_which_one_is_full("node-1", "node-3")
    only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS)))
    # when the time of a recheck has passed, then it goes on as before, as after a recheck without an answer
    effects = driver.wait(SchedulerSettings().recheck_timeout_s)
    assert any(isinstance(one, ef.AskFitting | ef.Fail) for one in effects)


def test_a_request_that_has_read_and_never_yielded_does_not_say_that_others_came_first() -> None:
    # given a request that has read, has found a server without an answer, and is claimed
    driver = racks_of_which_one_is_full("node-1", "node-3")
    ask = only(ef.AskGroup, driver.ask(request("server-5", hints=HINTS), within_s=3.0))
    standing = {"server-2": frozenset({"node-2"}), "server-7": frozenset({"node-1"})}
    found = ev.GroupAnswered(ask.ask_id, standing, unanswered=frozenset({"server-7"}), cause=ask.cause)
    only_claim(driver.give(found))
    # when its time is over before the agent has answered
    (failed,) = of_kind(ef.Fail, driver.wait(2.5))
    # then the agent is the reason, not the servers of others
    assert failed.code is ef.FailureCode.TIMED_OUT, failed.text
