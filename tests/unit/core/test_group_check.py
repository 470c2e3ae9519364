# SPDX-License-Identifier: Apache-2.0
"""The check of a server group before the answer: a member yields to others that were written elsewhere."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.group_check import CHECK_PAUSE_S, CHECKS_MAX, YIELD_PAUSE_S, YIELDS_MAX
from shared_scheduler.decision.request import Group
from shared_scheduler.protocol.messages import Consumer, Increment
from tests.unit.core.groups import GROUP, group_question, member, placed, stand
from tests.unit.core.scheduler_driver import (
    CELL,
    SchedulerDriver,
    host_of,
    nodes_of,
    of_kind,
    only,
    only_claim,
    request,
    taken,
)


def written(server: str) -> tuple[SchedulerDriver, ef.AskGroup, str]:
    """A member is written on one of two nodes: its question for the other one, and the other node."""
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(driver.ask(request(server, group=GROUP)))
    ask = group_question(driver.written(only(ef.WriteAllocation, driver.accept(claim))))
    return driver, ask, "node-2" if claim.node == "node-1" else "node-1"


def test_members_on_the_selected_host_allow_the_answer() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(driver.ask(request(group=GROUP)))
    ask = group_question(driver.written(only(ef.WriteAllocation, driver.accept(claim))))
    answer = only(ef.Answer, stand(driver, ask, server_5=claim.node))
    assert answer.choices[0][0].node == claim.node
    driver.idle()


def test_the_junior_deletes_its_allocation_and_joins_the_other_host() -> None:
    # given a server that was written on a node, while another with a smaller name was written on the other node
    driver, ask, other = written("server-9")
    # when it checks
    (delete,) = of_kind(ef.DeleteAllocation, stand(driver, ask, server_5=other))
    driver.deleted(delete)
    # then it is claimed there after a pause, and answered when all is well
    effects = driver.wait(YIELD_PAUSE_S)
    assert only_claim(effects).node == other
    only(ef.Answer, stand(driver, group_question(placed(driver, effects)), server_5=other))
    driver.idle()


def test_the_senior_checks_again_before_it_yields() -> None:
    driver, ask, other = written("server-1")
    for _ in range(CHECKS_MAX - 1):
        assert stand(driver, ask, server_5=other) == []
        ask = group_question(driver.wait(CHECK_PAUSE_S))
    only(ef.DeleteAllocation, stand(driver, ask, server_5=other))


def test_the_senior_stays_where_the_junior_has_gone() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(driver.ask(request("server-1", group=GROUP)))
    ask = group_question(driver.written(only(ef.WriteAllocation, driver.accept(claim))))
    assert stand(driver, ask, server_5="node-2" if claim.node == "node-1" else "node-1") == []
    assert only(ef.Answer, stand(driver, group_question(driver.wait(CHECK_PAUSE_S)))).choices[0][0].node == claim.node


def test_a_group_that_cannot_be_read_fails_the_request_when_all_is_taken_back() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    ask = group_question(placed(driver, driver.ask(request(group=GROUP))))
    delete = only(ef.DeleteAllocation, stand(driver, ask, error="[api_database] connection: no server answers"))
    (fail,) = of_kind(ef.Fail, driver.deleted(delete))
    assert fail.code is ef.FailureCode.GROUP_UNSETTLED
    assert "group could not be read: [api_database] connection: no server answers" in fail.text
    driver.idle()


def test_an_unanswered_group_check_ends_with_the_request() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    group_question(placed(driver, driver.ask(request(group=GROUP), within_s=10.0)))
    (delete,) = of_kind(ef.DeleteAllocation, driver.wait(9.0))
    (fail,) = of_kind(ef.Fail, driver.deleted(delete))
    assert fail.code is ef.FailureCode.GROUP_UNSETTLED


def test_a_group_that_is_always_elsewhere_fails_the_request() -> None:
    # given others that are never where the server was written
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    effects = driver.ask(request("server-9", group=GROUP))
    for _ in range(YIELDS_MAX):
        claim = only_claim(effects)
        other = "node-2" if claim.node == "node-1" else "node-1"
        delete = only(ef.DeleteAllocation, stand(driver, group_question(placed(driver, effects)), server_5=other))
        driver.deleted(delete)
        effects = driver.wait(YIELD_PAUSE_S)
    claim = only_claim(effects)
    other = "node-2" if claim.node == "node-1" else "node-1"
    # when that happens once too often
    delete = only(ef.DeleteAllocation, stand(driver, group_question(placed(driver, effects)), server_5=other))
    (fail,) = of_kind(ef.Fail, driver.deleted(delete))
    assert fail.code is ef.FailureCode.GROUP_UNSETTLED
    driver.idle()


def test_others_without_an_answer_make_a_request_wait_but_do_not_fail_it() -> None:
    # given another member whose request has no answer, and which changes sides as often as this one
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    effects = driver.ask(request("server-9", group=GROUP))
    for _ in range(2 * YIELDS_MAX):
        claim = only_claim(effects)
        other = "node-2" if claim.node == "node-1" else "node-1"
        ask = group_question(placed(driver, effects))
        undecided = frozenset({"server-5"})
        answer = ev.GroupAnswered(ask.ask_id, {"server-5": frozenset({other})}, "", undecided, cause=ask.cause)
        driver.deleted(only(ef.DeleteAllocation, driver.give(answer)))
        effects = driver.wait(YIELD_PAUSE_S)
    # when it is where this one was written at last
    ask = group_question(placed(driver, effects))
    # then the request is answered
    only(ef.Answer, stand(driver, ask, server_5=only_claim(effects).node))


#: of members that are not alone on their host, none moves without the other
BUILT = {"server-5": member("node-1"), "server-7": member("node-1")}


def apart_already(driver: SchedulerDriver) -> ef.AskGroup:
    """A group with members on two hosts; the conductor names the first, where the table shows two that are built.

    The first question leaves those out, and finds the other; the second one asks for all.
    """
    group = Group("group", "affinity", frozenset({"server-1", *BUILT, "server-6"}), frozenset({"host-1"}))
    ask = group_question(placed(driver, driver.ask(request(group=group))))
    assert BUILT.keys() <= ask.known
    assert stand(driver, ask, server_6="node-2") == []
    ask = group_question(driver.wait(0.001))
    assert ask.known.isdisjoint(BUILT)
    return ask


def test_a_group_that_is_already_apart_grows_on_the_hosts_of_the_conductor() -> None:
    driver = SchedulerDriver().with_agents("node-1", consumers=BUILT).with_agents("node-2")
    ask = apart_already(driver)
    assert only(ef.Answer, stand(driver, ask, server_5="node-1", server_7="node-1", server_6="node-2"))


def test_no_request_joins_a_member_that_only_the_table_shows() -> None:
    # given two members that were deleted a moment ago, while another one was placed elsewhere
    driver = SchedulerDriver().with_agents("node-1", consumers=BUILT).with_agents("node-2")
    ask = apart_already(driver)
    # when the senior asks, as often as it may
    effects = stand(driver, ask, server_6="node-2")
    while not of_kind(ef.DeleteAllocation, effects):
        effects = stand(driver, group_question(driver.wait(CHECK_PAUSE_S)), server_6="node-2")
    # then it goes to the other one
    driver.deleted(only(ef.DeleteAllocation, effects))
    assert only_claim(driver.wait(YIELD_PAUSE_S)).node == "node-2"


def left_out(driver: SchedulerDriver) -> frozenset[str]:
    """The members whose allocations are not read, when server-9 of the group with server-5, 6, 7 and 8 joins host-1.

    Its own allocations are not read either.
    """
    members = frozenset(f"server-{number}" for number in range(5, 10))
    group = Group("group", "affinity", members, frozenset({"host-1"}))
    return group_question(placed(driver, driver.ask(request("server-9", group=group)))).known


def test_only_members_that_are_built_on_the_chosen_host_are_not_asked_for() -> None:
    # given two members on the host, and one on another
    driver = SchedulerDriver().with_agents("node-1", consumers=BUILT)
    driver.with_agents("node-2", consumers={"server-6": member("node-2")})
    assert left_out(driver) == {*BUILT, "server-9"}


def test_a_member_that_is_on_two_hosts_is_asked_for() -> None:
    # given three members on the host, one of which has a claim on another
    driver = SchedulerDriver().with_agents("node-1", consumers=BUILT | {"server-8": member("node-1")})
    driver.with_agents("node-2", consumers={"server-8": member("node-2")}, claims={"claim": "server-8"})
    assert left_out(driver) == {*BUILT, "server-9"}


def test_allocations_without_a_server_are_no_built_member() -> None:
    # given allocations of three members on the host, one of which nova-compute does not have
    without_server = {"server-8": Consumer(taken("node-1"), False, "group")}
    driver = SchedulerDriver().with_agents("node-1", consumers=BUILT | without_server)
    assert left_out(driver) == {*BUILT, "server-9"}


def test_where_no_agent_counts_the_members_the_scheduler_asks_placement() -> None:
    # given two nodes without an agent
    driver = SchedulerDriver().without_agents("node-1", "node-2")
    group = Group("group", "anti-affinity", frozenset({"server-5", "server-9"}))
    write = only(ef.WriteAllocation, driver.ask(request("server-9", group=group)))
    (home,) = write.allocations
    # when another member was written on the same one
    (delete,) = of_kind(ef.DeleteAllocation, stand(driver, group_question(driver.written(write)), server_5=home))
    driver.deleted(delete)
    # then the server goes to the other
    (again,) = of_kind(ef.WriteAllocation, driver.wait(YIELD_PAUSE_S))
    assert [*again.allocations] != [home]


def test_a_member_that_begins_to_leave_a_host_without_an_agent_is_there_until_it_has_left() -> None:
    driver = SchedulerDriver().without_agents("node-1", "node-2")
    group = Group("group", "anti-affinity", frozenset({"server-5", "server-9"}))
    write = only(ef.WriteAllocation, driver.ask(request("server-9", group=group)))
    (home,) = write.allocations
    # when Nova has another member there, whose allocations are in the name of its migration
    ask = group_question(driver.written(write))
    assert ask.cells == {CELL}
    answer = ev.GroupAnswered(ask.ask_id, {}, hosts={"server-5": host_of(home)}, cause=ask.cause)
    (delete,) = of_kind(ef.DeleteAllocation, driver.give(answer))
    driver.deleted(delete)
    # then the server goes to the other host
    (again,) = of_kind(ef.WriteAllocation, driver.wait(YIELD_PAUSE_S))
    assert [*again.allocations] != [home]
    # where no member is, as far as Nova knows
    ask = group_question(driver.written(again))
    answer = ev.GroupAnswered(ask.ask_id, {}, hosts={"server-5": host_of(home)}, cause=ask.cause)
    (answered,) = of_kind(ef.Answer, driver.give(answer))
    assert nodes_of(answered) == [*again.allocations]


def test_hosts_of_members_are_read_only_where_no_agent_counts_them() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    ask = group_question(placed(driver, driver.ask(request(group=GROUP))))
    assert ask.cells == frozenset()


def test_an_agent_that_counts_the_members_makes_the_check_unnecessary() -> None:
    driver = SchedulerDriver().with_agents("node-1", agent__groups=True)
    group = Group("group", "anti-affinity", frozenset({"server-1"}))
    only(ef.Answer, placed(driver, driver.ask(request(group=group))))


def test_a_member_of_a_hard_group_is_not_answered_beside_one_of_two_that_are_apart() -> None:
    # given a member that has yielded to another one, which is built there
    driver = SchedulerDriver().with_agents("node-1", "node-2", "node-3")
    group = Group("group", "affinity", frozenset({"server-5", "server-6", "server-9"}))
    effects = driver.ask(request("server-9", group=group))
    here = only_claim(effects).node
    there, elsewhere = sorted({"node-1", "node-2", "node-3"} - {here})
    ask = group_question(placed(driver, effects))
    driver.deleted(only(ef.DeleteAllocation, stand(driver, ask, server_5=there)))
    effects = driver.wait(YIELD_PAUSE_S)
    driver.hear(Increment(there, 1, 2, consumers={"server-5": member(there)}))
    write = only(ef.WriteAllocation, driver.accept(only_claim(effects), sequence=3))
    # when a third one stands elsewhere
    ask = group_question(driver.written(write))
    # then it is not answered
    only(ef.DeleteAllocation, stand(driver, ask, server_5=there, server_6=elsewhere))


def test_a_senior_that_has_yielded_checks_more_often_before_it_yields_again() -> None:
    # given a senior that has yielded
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    effects = driver.ask(request("server-1", group=GROUP))
    sides = only_claim(effects).node, "node-2" if only_claim(effects).node == "node-1" else "node-1"
    checks = []
    for other in reversed(sides):
        # when the other one is always elsewhere
        effects, asked = placed(driver, effects), 0
        while asks := of_kind(ef.AskGroup, effects):
            asked += 1
            effects = stand(driver, asks[0], server_5=other) or driver.wait(CHECK_PAUSE_S)
        driver.deleted(only(ef.DeleteAllocation, effects))
        effects = driver.wait(YIELD_PAUSE_S)
        checks.append(asked)
    # then it is twice as patient the second time
    assert checks == [CHECKS_MAX, 2 * CHECKS_MAX]


def test_a_member_of_another_request_of_this_scheduler_is_not_built() -> None:
    # given a member that this scheduler claims where the conductor knew one
    driver = SchedulerDriver().with_agents("node-1", consumers={"server-5": member("node-1")}).with_agents("node-2")
    named = Group("group", "affinity", frozenset({"server-5"}), frozenset({"host-1"}))
    other = only_claim(driver.ask(request("server-7", group=named)))
    # when that one was deleted, and a member on another host was answered
    ask = group_question(placed(driver, driver.ask(request("server-9", group=named))))
    driver.hear(Increment("node-1", 1, 3, consumers={"server-5": None}))
    # then the request does not rely on the claim, which may yield
    assert other.node == "node-1"
    effects = stand(driver, ask, server_7="node-1", server_6="node-2")
    while asks := of_kind(ef.AskGroup, effects):
        effects = stand(driver, asks[0], server_7="node-1", server_6="node-2")
    assert not of_kind(ef.Answer, effects)


def test_a_request_whose_time_is_over_while_it_yields_fails() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(driver.ask(request("server-9", group=GROUP), within_s=20.0))
    ask = group_question(driver.written(only(ef.WriteAllocation, driver.accept(claim))))
    other = "node-2" if claim.node == "node-1" else "node-1"
    (delete,) = of_kind(ef.DeleteAllocation, stand(driver, ask, server_5=other))
    # when Placement answers the delete only after the time of the request has passed
    effects = driver.wait(19.0)
    assert not of_kind(ef.AskGroup, effects)
    (fail,) = of_kind(ef.Fail, driver.deleted(delete))
    assert fail.code == ef.FailureCode.TIMED_OUT
    driver.idle()
