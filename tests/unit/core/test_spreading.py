# SPDX-License-Identifier: Apache-2.0
"""Spreading: the constraints of a request are read when it arrives."""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.group_check import CHECK_PAUSE_S, YIELD_PAUSE_S, YIELDS_MAX
from shared_scheduler.core.spread_check import ANSWERS_MAX, DEFERRAL_PAUSE_MAX_S
from shared_scheduler.decision.decision_settings import DecisionSettings, SpreadImages
from shared_scheduler.decision.request import Group, Request
from shared_scheduler.decision.spread_request import label_uuid
from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.protocol.limits import SILENT_AFTER_S
from shared_scheduler.protocol.messages import Consumer, Increment
from tests.unit.core.scheduler_driver import (
    CELL,
    SMALL,
    SchedulerDriver,
    claims_in,
    node_read,
    nodes_of,
    of_kind,
    only,
    only_claim,
    request,
    snapshot,
    taken,
)

WEB = label_uuid("project", "web")


def in_racks(
    *nodes: str, images: SpreadImages = SpreadImages.IGNORED, vcpus: int = 4, attempts_max: int = 30
) -> SchedulerDriver:
    """A scheduler that spreads over racks; each node is in a rack of its own."""
    driver = SchedulerDriver(
        decision=DecisionSettings(spread_keys=("rack",), spread_images=images), attempts_max=attempts_max
    )
    driver.with_agents(*nodes, vcpus=vcpus)
    racks = tuple(
        AggregateFacts(number, f"aggregate-{number}", node, frozenset({node.replace("node", "host")}), {"rack": node})
        for number, node in enumerate(nodes, 1)
    )
    driver.give(ev.AggregatesRead(racks))
    return driver


def test_the_servers_of_a_label_go_to_different_racks_and_their_claims_carry_it() -> None:
    # given two racks
    driver = in_racks("node-1", "node-2")
    hints = {"shared_scheduler:spread": ("key=rack",), "shared_scheduler:label": ("web",)}
    # when two servers of one request have a label
    claims = claims_in(driver.ask(request("server-1", "server-2", hints=hints)))
    # then each rack gets one, and the agents learn the label as a group
    assert {claim.node for claim in claims} == {"node-1", "node-2"}
    assert {(claim.group.uuid, claim.group.policy) for claim in claims if claim.group} == {(WEB, "label")}


def test_a_bad_hint_fails_its_request_with_a_clear_text() -> None:
    driver = in_racks("node-1")
    failed = only(ef.Fail, driver.ask(request(hints={"shared_scheduler:spread": ("rack",)})))
    assert failed.code == ef.FailureCode.BAD_REQUEST
    assert "shared_scheduler:spread of the scheduler hints: 'rack' is not understood" in failed.text


def test_no_host_names_the_constraint_and_the_record_what_was_asked() -> None:
    # given a rack with one server of the label, and a rack whose only host is full
    driver = in_racks("node-1", "node-2")
    driver.hear(Increment("node-1", 1, 2, consumers={"server-7": Consumer(taken("node-1"), True, WEB)}))
    driver.hear(snapshot("node-2", 2, consumers={"server-8": Consumer({"node-2": {"VCPU": 4}}, True)}))
    # when the flavor asks for different racks
    extra_specs = {"shared_scheduler:spread": "key=rack", "shared_scheduler:label": "web"}
    asking = driver.ask(request(flavor=replace(SMALL, extra_specs=extra_specs)))
    where = only(ef.AskGroup, asking)
    asked = only(ef.AskFitting, driver.give(ev.GroupAnswered(where.ask_id, {}, cause=where.cause)))
    failed = only(ef.Fail, driver.give(ev.FittingAnswered(asked.ask_id, frozenset(), cause=asked.cause)))
    # then nobody gets it, and the reason is told
    assert "spread: 1" in failed.text
    assert failed.record.asked["spread"] == [{"key": "rack", "max_skew": 1, "mode": "hard", "source": "flavor"}]


def test_what_the_image_asks_holds_for_the_servers_and_for_the_check_before_the_answer() -> None:
    # given a rack with a server of the label, and an operator who lets images ask
    driver = in_racks("node-1", "node-2", images=SpreadImages.REQUIRED)
    driver.hear(Increment("node-1", 1, 2, consumers={"server-7": Consumer(taken("node-1"), True, WEB)}))
    # when the image asks for different racks
    properties = {"shared_scheduler_spread": "key=rack", "shared_scheduler_label": "web"}
    effects = driver.ask(request("server-5", image_spread=properties))
    # then it gets the other one, and servers count whose image has the label
    assert [claim.node for claim in claims_in(effects)] == ["node-2"]
    asked = placed(driver, effects)
    assert (asked.label, asked.images) == ("web", True)


def test_a_required_image_that_could_not_be_read_fails_its_request_with_the_reason() -> None:
    driver = in_racks("node-1", images=SpreadImages.REQUIRED)
    failed = only(ef.Fail, driver.ask(request(image_unread="the API database has not answered for 3 s")))
    assert failed.code == ef.FailureCode.IMAGE_UNREAD
    assert "the API database has not answered for 3 s" in failed.text
    assert failed.record.asked["image_unread"] == "the API database has not answered for 3 s"


def test_a_request_goes_on_without_its_image_if_the_operator_wants_that_and_the_record_says_so() -> None:
    # given an image that could not be read, in a cloud where that is allowed
    driver = in_racks("node-1", "node-2", images=SpreadImages.IF_READABLE)
    effects = driver.ask(request("server-5", hints=HINTS, image_unread="no server answers"))
    # then what the hints ask holds
    ask = placed(driver, effects)
    answer = only(ef.Answer, stand(driver, ask))
    assert [one["source"] for one in answer.record.asked["spread"]] == ["scheduler hints"]
    assert answer.record.asked["image_unread"] == "no server answers"


def test_without_spread_keys_nothing_is_read() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    claim = only_claim(driver.ask(request(hints={"shared_scheduler:spread": ("nonsense",)})))
    assert claim.group is None


# -- the check before the answer

HINTS = {"shared_scheduler:spread": ("key=rack",), "shared_scheduler:label": ("web",)}


def asking(server: str = "server-5") -> Request:
    return request(server, hints=HINTS)


def placed(driver: SchedulerDriver, effects: list[ef.Effect]) -> ef.AskGroup:
    """The agents accept the claims, and Placement takes the writes."""
    waiting = claims_in(effects)
    while waiting:  # the first writes show a pace, then the others are claimed
        effects = driver.written(only(ef.WriteAllocation, driver.accept(waiting.pop(0))))
        waiting += claims_in(effects)
    return only(ef.AskGroup, effects)


def stand(driver: SchedulerDriver, ask: ef.AskGroup, unanswered: str = "", **homes: str) -> list[ef.Effect]:
    """Servers stand on these nodes (names with _ for -)."""
    standing = {name.replace("_", "-"): frozenset({node}) for name, node in homes.items()}
    return driver.give(ev.GroupAnswered(ask.ask_id, standing, "", frozenset(unanswered.split()), cause=ask.cause))


def test_the_servers_of_one_request_do_not_wait_for_each_other() -> None:
    # given three racks, and one request for four servers in each of them
    driver = in_racks("node-1", "node-2", "node-3")
    servers = [f"server-{number}" for number in range(12)]
    # when all are written, and Placement has no others
    ask = placed(driver, driver.ask(request(*servers, hints=HINTS)))
    # then they are answered after the first check
    answer = only(ef.Answer, stand(driver, ask))
    assert sorted(nodes_of(answer)) == ["node-1"] * 4 + ["node-2"] * 4 + ["node-3"] * 4


def test_a_request_is_answered_after_a_read_of_the_members_that_are_not_built() -> None:
    # given a server of the label that its agent reports as built
    driver = in_racks("node-1", "node-2")
    driver.hear(Increment("node-1", 1, 2, consumers={"server-7": Consumer(taken("node-1"), True, WEB)}))
    # when another one is written
    ask = placed(driver, driver.ask(asking()))
    # then the question leaves both out, and the other rack is fine
    assert (ask.label, ask.project_id, ask.known) == ("web", "project", {"server-5", "server-7"})
    assert only(ef.Answer, stand(driver, ask)).choices[0][0].node == "node-2"


def test_of_two_in_one_rack_the_junior_one_yields_and_goes_to_the_other() -> None:
    driver = in_racks("node-1", "node-2")
    effects = driver.ask(asking("server-9"))
    (home,) = (claim.node for claim in claims_in(effects))
    delete = only(ef.DeleteAllocation, stand(driver, placed(driver, effects), "server-4", server_4=home))
    driver.deleted(delete)
    claim = only_claim(driver.wait(YIELD_PAUSE_S))
    assert claim.node != home


def test_the_senior_checks_again_and_is_answered_when_the_other_has_left() -> None:
    driver = in_racks("node-1", "node-2")
    effects = driver.ask(asking("server-1"))
    (home,) = (claim.node for claim in claims_in(effects))
    assert stand(driver, placed(driver, effects), "server-4", server_4=home) == []
    again = only(ef.AskGroup, driver.wait(CHECK_PAUSE_S))
    only(ef.Answer, stand(driver, again))


def test_a_server_that_may_still_yield_does_not_raise_the_minimum() -> None:
    # given a server in each rack, one of them without an answer yet
    driver = in_racks("node-1", "node-2")
    driver.hear(Increment("node-1", 1, 2, consumers={"server-7": Consumer(taken("node-1"), True, WEB)}))
    pending = {"server-4": Consumer(taken("node-2"), True, WEB)}
    driver.hear(Increment("node-2", 1, 2, consumers=pending, claims={"claim": "server-4"}))
    ask = placed(driver, driver.ask(asking()))
    assert "server-4" not in ask.known
    # when the third one is the second of its rack, then it waits for the answer of the other
    assert stand(driver, ask, "server-4", server_4="node-2") == []
    again = only(ef.AskGroup, driver.wait(CHECK_PAUSE_S))
    only(ef.Answer, stand(driver, again, server_4="node-2"))


def evacuated(driver: SchedulerDriver, ask: ef.AskGroup, home: str, source: str) -> list[ef.Effect]:
    """A server holds its new node, where the table has it, and its old one, which has not come back."""
    standing = {"server-7": frozenset({home, source})}
    return driver.give(ev.GroupAnswered(ask.ask_id, standing, cause=ask.cause))


def test_what_an_evacuated_server_still_holds_does_not_raise_the_minimum() -> None:
    # given a server that was evacuated into the rack of a claim, and is not built there yet
    driver = in_racks("node-1", "node-2")
    claim = only_claim(driver.ask(asking()))
    source = "node-2" if claim.node == "node-1" else "node-1"
    write = only(ef.WriteAllocation, driver.accept(claim))
    moved = {"server-7": Consumer(taken(claim.node), True, WEB)}
    driver.hear(Increment(claim.node, 1, 2, consumers=moved, claims={"claim": "server-7"}))
    # when Placement has its allocations on the source as well
    effects = evacuated(driver, only(ef.AskGroup, driver.written(write)), claim.node, source)
    # then the other rack has none, so the request goes there, and does not wait for anything
    driver.deleted(only(ef.DeleteAllocation, effects))
    assert only_claim(driver.wait(YIELD_PAUSE_S)).node == source


def test_no_host_is_tried_again_while_an_evacuated_server_holds_the_only_other_rack() -> None:
    # given a server that was evacuated from the second rack, whose node is down; the table has it on both nodes
    driver = in_racks("node-1", "node-2")
    server = {"server-7": Consumer({"node-1": {"VCPU": 1}}, False, WEB)}
    driver.hear(snapshot("node-1", 2, consumers=server))
    left = {"server-7": Consumer({"node-2": {"VCPU": 4}}, False, WEB)}
    driver.hear(snapshot("node-2", 2, consumers=left))
    # when another one is placed in the first rack, which is read to have two servers more than the second
    effects = evacuated(driver, placed(driver, driver.ask(asking())), "node-1", "node-2")
    driver.deleted(only(ef.DeleteAllocation, effects))
    # then the request is not placed there again, because of the constraint
    asked = only(ef.AskFitting, driver.wait(YIELD_PAUSE_S))
    failed = only(ef.Fail, driver.give(ev.FittingAnswered(asked.ask_id, frozenset(), cause=asked.cause)))
    assert "spread: 1" in failed.text


def test_what_an_evacuated_server_still_holds_counts_at_the_next_decision() -> None:
    # given three racks, and a server that was evacuated from the best one into the second
    driver = in_racks("node-1", "node-2", "node-3")
    moved = {"server-7": Consumer(taken("node-2"), True, WEB)}
    driver.hear(snapshot("node-2", 2, free_mb=4096, consumers=moved, claims={"claim": "server-7"}))
    driver.hear(snapshot("node-3", 2, free_mb=2048))
    # when another one is placed in the first rack, which has two then, because the first server may return there
    ask = placed(driver, driver.ask(asking()))
    driver.deleted(only(ef.DeleteAllocation, evacuated(driver, ask, "node-2", "node-1")))
    # then it goes to the third one, which has none
    assert only_claim(driver.wait(YIELD_PAUSE_S)).node == "node-3"


def test_a_server_that_is_evacuated_counts_where_placement_has_it_for_the_skew() -> None:
    # given a server in the rack of a claim, from where it is evacuated
    driver = in_racks("node-1", "node-2")
    claim = only_claim(driver.ask(asking()))
    other = "node-2" if claim.node == "node-1" else "node-1"
    moved = {"server-7": Consumer(taken(other), True, WEB)}
    write = only(ef.WriteAllocation, driver.accept(claim))
    driver.hear(Increment(other, 1, 2, consumers=moved, claims={"claim": "server-7"}))
    ask = only(ef.AskGroup, driver.written(write))
    # then it may still be in both racks, which have two and one
    only(ef.Answer, evacuated(driver, ask, other, claim.node))


def test_a_server_whose_node_is_gone_when_the_others_are_read_is_decided_again() -> None:
    # given a server that is written, and whose label is read
    driver = in_racks("node-1", "node-2")
    effects = driver.ask(asking())
    (home,) = (claim.node for claim in claims_in(effects))
    ask = placed(driver, effects)
    # when its node is deleted before the answer, then it is taken back, although no rack has too many
    driver.give(ev.NodesGone(CELL, frozenset({home})))
    driver.deleted(only(ef.DeleteAllocation, stand(driver, ask)))
    # and it goes to the other rack
    assert only_claim(driver.wait(YIELD_PAUSE_S)).node != home


def test_one_of_several_servers_whose_node_is_gone_takes_all_of_them_back() -> None:
    driver = in_racks("node-1", "node-2")
    ask = placed(driver, driver.ask(request("server-5", "server-6", hints=HINTS)))
    driver.give(ev.NodesGone(CELL, frozenset({"node-2"})))
    assert len(of_kind(ef.DeleteAllocation, stand(driver, ask))) == 2


def test_soft_constraints_are_not_checked() -> None:
    driver = in_racks("node-1", "node-2")
    hints = HINTS | {"shared_scheduler:spread": ("key=rack,mode=soft",)}
    claim = only_claim(driver.ask(request(hints=hints)))
    only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(claim))))


def test_a_server_that_nova_has_deleted_does_not_count_while_its_agent_still_shows_it() -> None:
    # given a server that has gone from the first rack, which its agent does not know yet
    driver = in_racks("node-1", "node-2")
    driver.hear(Increment("node-1", 1, 2, consumers={"server-7": Consumer(taken("node-1"), True, WEB)}))
    ask = placed(driver, driver.ask(asking()))
    # when another scheduler has also put one into the second rack
    standing, gone = {"server-6": frozenset({"node-2"})}, frozenset({"server-7"})
    effects = driver.give(ev.GroupAnswered(ask.ask_id, standing, "", gone=gone, cause=ask.cause))
    # then the second rack has two more than the first one, and the request yields
    assert only(ef.DeleteAllocation, effects).consumer == "server-5"


def test_a_server_that_its_host_has_deleted_does_not_count_while_placement_has_its_allocations() -> None:
    # given two racks; Placement still has the allocations of a server that was deleted in the first one
    driver = in_racks("node-1", "node-2")
    driver.hear(snapshot("node-1", 2, consumers={"server-7": Consumer(taken("node-1"), False, WEB)}))
    driver.hear(snapshot("node-2", 2, free_mb=2048))
    # when another one comes, then it may go there
    assert only_claim(driver.ask(asking())).node == "node-1"


def test_a_server_that_its_agent_stops_to_report_while_the_others_are_read_still_counts() -> None:
    # given a server that was built in the rack of a claim meanwhile, so that it is not looked up
    driver = in_racks("node-1", "node-2")
    claim = only_claim(driver.ask(asking()))
    write = only(ef.WriteAllocation, driver.accept(claim))
    server = Consumer(taken(claim.node), True, WEB)
    driver.hear(Increment(claim.node, 1, 2, consumers={"server-7": server}))
    ask = only(ef.AskGroup, driver.written(write))
    assert "server-7" in ask.known
    # when its agent does not report it any more before the answer, which does not have it either
    driver.hear(Increment(claim.node, 1, 3, consumers={"server-7": None}))
    effects = stand(driver, ask)
    # then it is counted where it was when the question was asked
    assert of_kind(ef.Answer, effects) == []
    only(ef.DeleteAllocation, effects)


def test_a_server_that_is_built_elsewhere_when_the_others_are_read_counts_only_there() -> None:
    # given a server that is built in the rack of a claim, so that it is not looked up
    driver = in_racks("node-1", "node-2")
    claim = only_claim(driver.ask(asking()))
    other = "node-2" if claim.node == "node-1" else "node-1"
    write = only(ef.WriteAllocation, driver.accept(claim))
    driver.hear(Increment(claim.node, 1, 2, consumers={"server-7": Consumer(taken(claim.node), True, WEB)}))
    ask = only(ef.AskGroup, driver.written(write))
    # when it has moved to the other rack before the answer
    driver.hear(Increment(other, 1, 2, consumers={"server-7": Consumer(taken(other), True, WEB)}))
    driver.hear(Increment(claim.node, 1, 3, consumers={"server-7": None}))
    # then there is one in each rack
    only(ef.Answer, stand(driver, ask))


def test_a_server_that_is_built_while_the_others_are_read_counts_once() -> None:
    # given a server in the rack of a claim that nobody has built yet, so that it is looked up
    driver = in_racks("node-1", "node-2")
    driver.hear(Increment("node-1", 1, 2, consumers={"server-7": Consumer(taken("node-1"), True, WEB)}))
    ask = placed(driver, driver.ask(asking()))
    assert "server-6" not in ask.known
    # when it is built before the answer, which shows that its request is not answered yet
    driver.hear(Increment("node-2", 1, 2, consumers={"server-6": Consumer(taken("node-2"), True, WEB)}))
    # then its rack has two, and the other one has one
    only(ef.Answer, stand(driver, ask, "server-6", server_6="node-2"))


def test_a_member_of_a_soft_group_yields_because_of_its_rack_however_little_time_is_left() -> None:
    # given a server of a soft affinity group that is written in a rack with another one, shortly before its deadline
    driver = in_racks("node-1", "node-2", "node-3")
    driver.hear(Increment("node-1", 1, 2, consumers={"server-7": Consumer(taken("node-1"), True, "group")}))
    group = Group("group", "soft-affinity", frozenset({"server-4", "server-7", "server-9"}))
    hints = {"shared_scheduler:spread": ("key=rack",)}
    effects = driver.ask(request("server-9", group=group, hints=hints), within_s=10.0)
    (home,) = (claim.node for claim in claims_in(effects))
    # then the rack is no matter of a soft policy
    only(ef.DeleteAllocation, stand(driver, placed(driver, effects), server_4=home))


def test_a_member_of_a_soft_group_whose_rack_cannot_be_read_in_time_fails() -> None:
    driver = in_racks("node-1", "node-2")
    group = Group("group", "soft-affinity", frozenset({"server-4", "server-9"}))
    hints = {"shared_scheduler:spread": ("key=rack",)}
    ask = placed(driver, driver.ask(request("server-9", group=group, hints=hints), within_s=10.0))
    assert ask.ask_id.startswith("group.")
    (delete,) = of_kind(ef.DeleteAllocation, driver.wait(9.0))
    (failed,) = of_kind(ef.Fail, driver.deleted(delete))
    assert failed.code is ef.FailureCode.GROUP_UNSETTLED


def test_a_server_that_turns_out_to_move_while_the_others_are_read_counts_in_both_racks() -> None:
    # given a server that is built in the first rack, so that it is not looked up
    driver = in_racks("node-1", "node-2")
    driver.hear(Increment("node-1", 1, 2, consumers={"server-7": Consumer(taken("node-1"), True, WEB)}))
    ask = placed(driver, driver.ask(asking()))
    assert "server-7" in ask.known
    # when the news that it moves to the other rack arrive late, before the answer
    moving = {"server-7": Consumer(taken("node-2"), True, WEB)}
    driver.hear(Increment("node-2", 1, 2, consumers=moving, claims={"claim": "server-7"}))
    effects = stand(driver, ask, server_6="node-2")
    # then that rack has three
    only(ef.DeleteAllocation, effects)


def test_several_of_one_request_count_for_one_another() -> None:
    driver = in_racks("node-1", "node-2")
    ask = placed(driver, driver.ask(request("server-1", "server-2", hints=HINTS)))
    only(ef.Answer, stand(driver, ask))


def test_servers_that_cannot_be_read_fail_the_request() -> None:
    driver = in_racks("node-1")
    ask = placed(driver, driver.ask(asking()))
    delete = only(ef.DeleteAllocation, driver.give(ev.GroupAnswered(ask.ask_id, {}, "no server", cause=ask.cause)))
    (failed,) = of_kind(ef.Fail, driver.deleted(delete))
    assert failed.code is ef.FailureCode.GROUP_UNSETTLED
    assert failed.text == "the members of label web could not be read: no server"


def test_a_yield_because_of_a_rack_is_no_reason_to_look_up_a_soft_group_whose_members_are_known() -> None:
    # given a member of a soft affinity group, and another one for another rack, where a third one stands already
    driver = in_racks("node-1", "node-2", "node-3")
    driver.hear(Increment("node-1", 1, 2, consumers={"server-7": Consumer(taken("node-1"), True, "group")}))
    group = Group("group", "soft-affinity", frozenset({"server-4", "server-7", "server-9"}))
    effects = driver.ask(request("server-9", group=group, hints={"shared_scheduler:spread": ("key=rack",)}))
    (home,) = (claim.node for claim in claims_in(effects))
    driver.deleted(only(ef.DeleteAllocation, stand(driver, placed(driver, effects), server_4=home)))
    # when it is written in the third rack, then only the racks are checked again
    ask = placed(driver, driver.wait(YIELD_PAUSE_S))
    assert ask.ask_id.startswith("spread.")
    only(ef.Answer, stand(driver, ask, server_4=home))


def test_servers_count_while_the_agent_that_knows_their_label_is_silent() -> None:
    # given a server of the label on the better one of two nodes, whose agent has stopped
    driver = in_racks("node-1", "node-2")
    driver.hear(Increment("node-1", 1, 2, consumers={"server-7": Consumer(taken("node-1"), True, WEB)}))
    driver.hear(snapshot("node-2", 2, free_mb=2048))
    driver.wait(SILENT_AFTER_S + 1.0)
    # when its node is read from the databases and Placement, which know no labels
    read = node_read("node-1", read_at_s=driver.now)
    driver.give(replace(read, consumers={"server-7": taken("node-1")}, members=frozenset({"server-7"})))
    driver.give(node_read("node-2", free_mb=2048, read_at_s=driver.now))
    # then another one goes to the other rack, even if it only should
    hints = HINTS | {"shared_scheduler:spread": ("key=rack,mode=soft",)}
    write = only(ef.WriteAllocation, driver.ask(request("server-5", hints=hints)))
    assert list(write.allocations) == ["node-2"]


# -- what the check has found, at the next decision


def next_home(driver: SchedulerDriver, gone: str = "", **homes: str) -> str:
    """A server of the label is written, and yields to the members on these nodes; where it is claimed next."""
    effects = driver.ask(asking("server-9"))
    (first,) = (claim.node for claim in claims_in(effects))
    assert first == "node-1"
    ask = placed(driver, effects)
    standing = {name.replace("_", "-"): frozenset({node}) for name, node in homes.items()}
    assert ask.known.isdisjoint(standing)
    answer = ev.GroupAnswered(ask.ask_id, standing, gone=frozenset(gone.split()), cause=ask.cause)
    driver.deleted(only(ef.DeleteAllocation, driver.give(answer)))
    return only_claim(driver.wait(YIELD_PAUSE_S)).node


def test_a_server_whose_agent_does_not_know_its_label_is_counted_after_a_yield() -> None:
    # given a server of the label that was placed before spreading was enabled, on the best node
    driver = in_racks("node-1", "node-2")
    driver.hear(Increment("node-1", 1, 2, consumers={"server-7": Consumer(taken("node-1"), True)}))
    driver.hear(snapshot("node-2", 2, free_mb=2048))
    # when another one finds it there, then it goes to the other rack
    assert next_home(driver, server_7="node-1") == "node-2"


def test_a_server_whose_resize_is_not_confirmed_counts_after_a_yield_where_placement_has_it() -> None:
    # given three racks with one server, as the agents report it: one was resized from the second to the third rack
    driver = in_racks("node-1", "node-2", "node-3")
    driver.hear(snapshot("node-1", 2, consumers={"server-5": Consumer(taken("node-1"), True, WEB)}))
    driver.hear(snapshot("node-2", 2, free_mb=4096, consumers={"server-7": Consumer({}, True, WEB)}))
    driver.hear(snapshot("node-3", 2, free_mb=2048, consumers={"server-7": Consumer(taken("node-3"), True, WEB)}))
    # when a third one finds the second rack empty, then it goes there
    assert next_home(driver, server_7="node-3") == "node-2"


def test_a_server_that_nova_has_deleted_does_not_count_after_a_yield() -> None:
    # given two racks with one server, as the agents report it: that of the second one was deleted
    driver = in_racks("node-1", "node-2")
    driver.hear(snapshot("node-1", 2, consumers={"server-5": Consumer(taken("node-1"), True, WEB)}))
    driver.hear(snapshot("node-2", 2, free_mb=2048, consumers={"server-7": Consumer(taken("node-2"), True, WEB)}))
    # when a third one finds out, then it goes to the second rack
    assert next_home(driver, gone="server-7") == "node-2"


def test_a_claim_that_nobody_needs_any_more_does_not_count_after_a_yield() -> None:
    # given two racks with one server, as the agents report it: that of the second one is a claim whose request failed
    driver = in_racks("node-1", "node-2")
    driver.hear(snapshot("node-1", 2, consumers={"server-5": Consumer(taken("node-1"), True, WEB)}))
    pending = {"server-7": Consumer(taken("node-2"), True, WEB)}
    driver.hear(snapshot("node-2", 2, free_mb=2048, consumers=pending, claims={"claim": "server-7"}))
    # when a third one finds nothing of it, then it goes to the second rack
    assert next_home(driver) == "node-2"


def test_a_server_that_has_yielded_as_well_counts_where_it_is_claimed_since() -> None:
    # given a server that another one finds in its rack
    driver = in_racks("node-1", "node-2", "node-3")
    driver.hear(snapshot("node-2", 2, free_mb=4096))
    driver.hear(snapshot("node-3", 2, free_mb=2048))
    effects = driver.ask(asking("server-9"))
    delete = only(ef.DeleteAllocation, stand(driver, placed(driver, effects), "server-4", server_4="node-1"))
    driver.deleted(delete)
    # when it is claimed in another rack during the pause
    pending = {"server-4": Consumer(taken("node-2"), True, WEB)}
    driver.hear(Increment("node-2", 1, 3, consumers=pending, claims={"claim": "server-4"}))
    # then the first rack is empty again, and the other one goes there
    assert only_claim(driver.wait(YIELD_PAUSE_S)).node == "node-1"


def waits_in_vain(vcpus: int) -> tuple[SchedulerDriver, list[ef.Effect]]:
    """A server is built in the rack of the best node, and another one, which takes so much in the second rack, has no
    answer for long.  A third one waits for that answer in the first rack, yields, and decides again: the effects."""
    driver = in_racks("node-1", "node-2")
    driver.hear(snapshot("node-1", 2, consumers={"server-5": Consumer(taken("node-1"), True, WEB)}))
    pending = {"server-4": Consumer({"node-2": {"VCPU": vcpus}}, True, WEB)}
    driver.hear(snapshot("node-2", 2, free_mb=2048, consumers=pending, claims={"claim": "server-4"}))
    ask = placed(driver, driver.ask(asking("server-9")))
    while not of_kind(ef.DeleteAllocation, effects := stand(driver, ask, "server-4", server_4="node-2")):
        (ask,) = of_kind(ef.AskGroup, driver.wait(CHECK_PAUSE_S))
    driver.deleted(only(ef.DeleteAllocation, effects))
    return driver, driver.wait(YIELD_PAUSE_S)


def test_after_a_yield_a_server_goes_to_a_rack_where_it_need_not_wait() -> None:
    driver, effects = waits_in_vain(vcpus=1)
    assert [claim.node for claim in claims_in(effects)] == ["node-2"]
    only(ef.Answer, stand(driver, placed(driver, effects), "server-4", server_4="node-2"))


def test_a_server_waits_again_if_no_other_rack_has_room() -> None:
    driver, effects = waits_in_vain(vcpus=4)
    assert [claim.node for claim in claims_in(effects)] == ["node-1"]
    only(ef.Answer, stand(driver, placed(driver, effects), server_4="node-2"))


def nodes_in_turn(answer: ef.Answer) -> list[str]:
    """The chosen node, and the alternates."""
    return [choice.node for choice in answer.choices[0]]


def test_alternates_are_within_the_constraint_with_the_servers_that_were_read() -> None:
    # given a request with alternates, which were searched while the table knew no other server
    driver = in_racks("node-1", "node-2", "node-3")
    driver.hear(snapshot("node-2", 2, free_mb=2048), snapshot("node-3", 2, free_mb=1024))
    effects = driver.ask(request("server-5", hints=HINTS, num_alternates=2))
    driver.wait(0.001)
    # when another scheduler has placed one in the second rack
    answer = only(ef.Answer, stand(driver, placed(driver, effects), server_7="node-2"))
    # then the conductor must not build there: the rack would have two, and the others none
    assert nodes_in_turn(answer) == ["node-1", "node-3"]


# -- many requests at the same moment


def yields(driver: SchedulerDriver, effects: list[ef.Effect], unanswered: str = "", **homes: str) -> list[ef.Effect]:
    """A request is written, finds these servers and deletes what it wrote: what it does after the pause."""
    delete = only(ef.DeleteAllocation, stand(driver, placed(driver, effects), unanswered, **homes))
    return after_pause(driver, delete)


def after_pause(driver: SchedulerDriver, delete: ef.DeleteAllocation) -> list[ef.Effect]:
    """The claims, or the end, of the request after this delete."""
    driver.deleted(delete)
    found, until_s = list[ef.Effect](), driver.now + DEFERRAL_PAUSE_MAX_S
    while not found and driver.now < until_s:
        effects = driver.wait(0.01)
        found = [one for one in effects if isinstance(one, ef.Fail) or claims_in([one])]
    return found


def home_in(effects: list[ef.Effect]) -> str:
    (claim,) = claims_in(effects)
    return claim.node


def test_a_server_makes_way_for_a_senior_one_in_its_rack_that_waits_for_the_same_third_one() -> None:
    # given two racks with one undecided server each, and one more that is placed beside the senior of them
    driver = in_racks("node-1", "node-2")
    driver.hear(snapshot("node-2", 2, free_mb=2048))
    effects = driver.ask(asking("server-9"))
    assert home_in(effects) == "node-1"
    # when both have come at the same moment, then it does not wait there, because the senior one waits until it leaves
    only_claim(yields(driver, effects, "server-4 server-5", server_4="node-1", server_5="node-2"))


def test_a_server_keeps_its_place_while_only_junior_ones_are_in_its_rack() -> None:
    # given two junior ones in the rack of a server, and one in the other rack
    driver = in_racks("node-1", "node-2")
    ask = placed(driver, driver.ask(asking("server-1")))
    others = {"server_4": "node-1", "server_5": "node-1", "server_6": "node-2"}
    home = {"server_4": "node-1", "server_6": "node-2"}
    # when they leave one after the other, then it is answered as soon as none of them is there
    assert stand(driver, ask, "server-4 server-5 server-6", **others) == []
    ask = only(ef.AskGroup, driver.wait(CHECK_PAUSE_S))
    assert stand(driver, ask, "server-4 server-6", **home) == []
    ask = only(ef.AskGroup, driver.wait(CHECK_PAUSE_S))
    only(ef.Answer, stand(driver, ask, "server-6", server_6="node-2"))


def test_making_way_costs_neither_one_of_the_yields_nor_an_attempt() -> None:
    # given a request that may try few hosts, and a senior one that is always in its rack
    driver = in_racks("node-1", "node-2", attempts_max=2)
    effects = driver.ask(asking("server-9"), within_s=300.0)
    for _ in range(3 * YIELDS_MAX):
        effects = yields(driver, effects, "server-4", server_4=home_in(effects))
    # when that one has an answer at last, then this one is placed
    other = "node-2" if home_in(effects) == "node-1" else "node-1"
    only(ef.Answer, stand(driver, placed(driver, effects), server_4=other))


def test_servers_that_were_answered_meanwhile_came_first_too() -> None:
    # given racks in which more servers are answered each time before a request reads them
    driver = in_racks("node-1", "node-2", vcpus=64)
    effects, others = driver.ask(asking("server-9"), within_s=300.0), dict[str, str]()
    for number in range(2 * YIELDS_MAX):
        more = (f"server_{each}{number}" for each in range(4 if others else 2))
        others |= dict.fromkeys(more, home_in(effects))
        effects = yields(driver, effects, **others)
    # when no other one comes, then it is placed
    only(ef.Answer, stand(driver, placed(driver, effects), **others))


def test_a_request_fails_if_the_same_servers_are_in_its_way_wherever_it_goes() -> None:
    # given two servers with an answer that are read in the rack of a request each time, which no history explains
    driver = in_racks("node-1", "node-2")
    effects = driver.ask(asking("server-9"))
    for _ in range(1 + YIELDS_MAX):
        home = home_in(effects)
        effects = yields(driver, effects, server_4=home, server_5=home)
    # when that happens once too often
    home = home_in(effects)
    delete = only(ef.DeleteAllocation, stand(driver, placed(driver, effects), server_4=home, server_5=home))
    # then the request ends long before its deadline
    (failed,) = of_kind(ef.Fail, driver.deleted(delete))
    assert failed.code is ef.FailureCode.GROUP_UNSETTLED


def test_a_request_for_which_others_come_first_until_its_deadline_fails_with_that_reason() -> None:
    driver = in_racks("node-1", "node-2")
    effects = driver.ask(asking("server-9"), within_s=12.0)
    while claims_in(effects):
        effects = yields(driver, effects, "server-4", server_4=home_in(effects))
    failed = only(ef.Fail, effects)
    assert failed.code is ef.FailureCode.GROUP_UNSETTLED
    assert failed.text.startswith("other servers of label web came first: it has yielded ")
    driver.idle()


def stays_in_vain(driver: SchedulerDriver, ask: ef.AskGroup, unanswered: str, **homes: str) -> list[ef.Effect]:
    """Younger servers stay undecided in the rack of a request, as if their scheduler had died: what the request does
    after all of its checks."""
    for _ in range(ANSWERS_MAX):
        effects = stand(driver, ask, unanswered, **homes)
        if of_kind(ef.DeleteAllocation, effects):
            return after_pause(driver, only(ef.DeleteAllocation, effects))
        (ask,) = of_kind(ef.AskGroup, driver.wait(CHECK_PAUSE_S))
    raise AssertionError("it waits without an end")


def test_a_senior_one_does_not_wait_without_an_end_for_a_junior_one_whose_scheduler_has_died() -> None:
    # given a junior one that never leaves the rack of a senior one
    driver = in_racks("node-1", "node-2")
    driver.hear(snapshot("node-2", 2, free_mb=2048))
    effects = driver.ask(asking("server-1"))
    assert home_in(effects) == "node-1"
    # when the senior one decides again, then it goes to the other rack, and waits for nobody
    effects = stays_in_vain(driver, placed(driver, effects), "server-4", server_4="node-1")
    assert home_in(effects) == "node-2"
    only(ef.Answer, stand(driver, placed(driver, effects), "server-4", server_4="node-1"))


def test_a_junior_one_that_has_not_left_comes_first_from_then_on() -> None:
    # given a rack that is full, one with an undecided server, and one that a junior server never leaves
    driver = in_racks("node-1", "node-2", "node-3")
    full = {"server-3": Consumer({"node-2": {"VCPU": 4}}, True, WEB)}
    driver.hear(snapshot("node-2", 2, consumers=full))
    driver.hear(snapshot("node-3", 2, consumers={"other": Consumer({"node-3": {"VCPU": 4}}, True)}))
    others = {"server_0": "node-3", "server_4": "node-1"}
    # when a senior one has waited for that one in vain, and finds it in its rack again
    ask = placed(driver, driver.ask(asking("server-1")))
    effects = stays_in_vain(driver, ask, "server-0 server-4", **others)
    assert home_in(effects) == "node-1"
    # then it makes way at once, until the undecided one has an answer
    effects = yields(driver, effects, "server-0 server-4", **others)
    only(ef.Answer, stand(driver, placed(driver, effects), "server-4", **others))


def test_a_senior_one_on_a_node_that_the_scheduler_does_not_know_is_in_nobodys_way() -> None:
    # given a server that waits for the answer of a senior one in the other rack
    driver = in_racks("node-1", "node-2")
    driver.hear(Increment("node-1", 1, 2, consumers={"server-7": Consumer(taken("node-1"), True, WEB)}))
    pending = {"server-4": Consumer(taken("node-2"), True, WEB)}
    driver.hear(Increment("node-2", 1, 2, consumers=pending, claims={"claim": "server-4"}))
    ask = placed(driver, driver.ask(asking()))
    # when still another one holds something of a provider that is no known node, then it goes on to wait
    assert stand(driver, ask, "server-3 server-4", server_3="elsewhere", server_4="node-2") == []
    only(ef.AskGroup, driver.wait(CHECK_PAUSE_S))
