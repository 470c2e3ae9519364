# SPDX-License-Identifier: Apache-2.0
"""Members of a server group that move, and a new member that is placed meanwhile."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.group_check import CHECK_PAUSE_S, YIELD_PAUSE_S
from shared_scheduler.decision.request import Group
from shared_scheduler.protocol.messages import Increment
from tests.unit.core.groups import group_question, member, placed, stand
from tests.unit.core.scheduler_driver import (
    SchedulerDriver,
    claims_in,
    host_of,
    nodes_of,
    of_kind,
    only,
    only_claim,
    request,
)


def moved_from_node_1() -> tuple[SchedulerDriver, list[ef.Effect]]:
    """Both members of a soft affinity group are on node-1, and one of them is to be moved: the effects of its write."""
    both = {"server-1": member("node-1"), "server-5": member("node-1")}
    driver = SchedulerDriver().with_agents("node-1", consumers=both).with_agents("node-2", "node-3")
    group = Group("group", "soft-affinity", frozenset(both), frozenset({"host-1"}))
    asked = driver.ask(request("server-1", group=group, ignore_hosts=frozenset({"host-1"})))
    return driver, placed(driver, asked)


def test_members_of_a_soft_group_that_move_at_once_go_to_one_host() -> None:
    driver, effects = moved_from_node_1()
    # given the other member, which another scheduler has moved elsewhere at the same moment
    ask = group_question(effects)
    effects = stand(driver, ask, server_5="node-3")
    while not of_kind(ef.DeleteAllocation, effects):  # it waits for the other one to yield
        effects = driver.wait(CHECK_PAUSE_S)
        for again in of_kind(ef.AskGroup, effects):
            effects = stand(driver, again, server_5="node-3")
    driver.deleted(only(ef.DeleteAllocation, effects))
    # then it follows
    (claim,) = claims_in(driver.wait(YIELD_PAUSE_S))
    assert claim.node == "node-3"


def test_a_member_that_stays_does_not_call_another_one_back() -> None:
    driver, effects = moved_from_node_1()
    effects = stand(driver, group_question(effects), server_5="node-1")
    assert of_kind(ef.Answer, effects)


def follows_the_first_to_node_2(driver: SchedulerDriver) -> None:
    """A second member of an affinity group is written on node-1.  Placement is asked where the first one is or will be,
    and the second one yields and goes there."""
    group = Group("group", "affinity", frozenset({"server-5", "server-9"}), frozenset({"host-1"}))
    effects = driver.ask(request("server-9", group=group))
    assert only_claim(effects).node == "node-1"
    ask = group_question(placed(driver, effects))
    driver.deleted(only(ef.DeleteAllocation, stand(driver, ask, server_5="node-2")))
    assert only_claim(driver.wait(YIELD_PAUSE_S)).node == "node-2"


def test_a_member_that_is_being_moved_away_does_not_keep_a_new_one_on_its_old_host() -> None:
    # given the only member of an affinity group, which moves from node-1 to node-2, where its claim is accepted
    driver = SchedulerDriver().with_agents("node-1", consumers={"server-5": member("node-1")})
    driver.with_agents("node-2", free_mb=2048)
    driver.hear(Increment("node-2", 1, 2, {}, {"server-5": member("node-2")}, {"claim": "server-5"}))
    # when another one is written where the conductor and nova-compute still have the first, then it follows
    follows_the_first_to_node_2(driver)


def test_the_only_member_is_looked_up_because_it_may_have_left_unseen() -> None:
    # given the only member of an affinity group, which was moved to node-2 while messages of that agent were lost
    driver = SchedulerDriver().with_agents("node-1", consumers={"server-5": member("node-1")})
    driver.with_agents("node-2", free_mb=2048)
    # when another one is written where the conductor and the table still have the first, then it follows
    follows_the_first_to_node_2(driver)


def test_a_new_member_follows_one_whose_resize_is_not_confirmed_yet() -> None:
    # given a member that was resized from node-1, where nova-compute still counts it, to node-2
    driver = SchedulerDriver().with_agents("node-1", consumers={"server-5": member("node-1")})
    driver.with_agents("node-2", free_mb=2048, consumers={"server-5": member("node-2")})
    # when another one is written where the first one was
    group = Group("group", "affinity", frozenset({"server-5", "server-9"}), frozenset({"host-2"}))
    ask = group_question(placed(driver, driver.ask(request("server-9", group=group))))
    # then it follows
    driver.deleted(only(ef.DeleteAllocation, stand(driver, ask, server_5="node-2")))
    assert only_claim(driver.wait(YIELD_PAUSE_S)).node == "node-2"


def second_member_on_node_2(driver: SchedulerDriver) -> ef.AskGroup:
    """A second member of an affinity group is written on node-2, because nobody knew the first one, server-5."""
    effects = driver.ask(request("server-9", group=Group("group", "affinity", frozenset({"server-5", "server-9"}))))
    assert only_claim(effects).node == "node-2"
    return group_question(placed(driver, effects))


def leaves(driver: SchedulerDriver, ask: ef.AskGroup, node: str) -> list[ef.Effect]:
    """Nova has server-5 on this node, whose allocations are in the name of its migration."""
    return driver.give(ev.GroupAnswered(ask.ask_id, {}, hosts={"server-5": host_of(node)}, cause=ask.cause))


def test_a_new_member_goes_where_one_is_that_begins_to_leave() -> None:
    # given a member that was built on node-1, and begins to leave it, before a second one has looked it up
    driver = SchedulerDriver().with_agents("node-1", free_mb=2048).with_agents("node-2")
    ask = second_member_on_node_2(driver)
    # then the second one yields to it, because the move may fail
    driver.deleted(only(ef.DeleteAllocation, leaves(driver, ask, "node-1")))
    effects = driver.wait(YIELD_PAUSE_S)
    assert only_claim(effects).node == "node-1"
    # and is answered there while the other one has no target
    assert nodes_of(only(ef.Answer, leaves(driver, group_question(placed(driver, effects)), "node-1"))) == ["node-1"]
    driver.idle()


def test_a_new_member_is_not_beside_one_that_may_not_come_there() -> None:
    driver = SchedulerDriver().with_agents("node-1", free_mb=2048).with_agents("node-2")
    ask = second_member_on_node_2(driver)
    # given a first one whose move has no answer yet: its allocations are written on node-2, and Nova has it on node-1
    standing, hosts = {"server-5": frozenset({"node-2"})}, {"server-5": "host-1"}
    # then the second one yields, because the move may fail
    only(ef.DeleteAllocation, driver.give(ev.GroupAnswered(ask.ask_id, standing, hosts=hosts, cause=ask.cause)))


def test_a_new_member_is_beside_one_that_comes_there() -> None:
    driver = SchedulerDriver().with_agents("node-1", free_mb=2048).with_agents("node-2")
    # given a first one whose move to node-2 was answered
    answer = stand(driver, second_member_on_node_2(driver), server_5="node-2")
    assert nodes_of(only(ef.Answer, answer)) == ["node-2"]
