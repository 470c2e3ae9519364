# SPDX-License-Identifier: Apache-2.0
"""Server groups: the group in a claim, and the read of Placement before an answer."""

from __future__ import annotations

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.group_check import (
    CHECK_PAUSE_S,
    CHECKS_MAX,
    SOFT_YIELD_LEFT_S,
    SOFT_YIELDS_MAX,
    YIELD_PAUSE_S,
    YIELDS_MAX,
)
from shared_scheduler.core.request_state import SOFT_REFUSALS_MAX
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.decision.request import Group
from shared_scheduler.protocol.messages import Claim, Consumer, Increment, RefusalCode
from tests.unit.core.scheduler_driver import (
    CELL,
    SchedulerDriver,
    claims_in,
    host_of,
    nodes_of,
    of_kind,
    only,
    only_claim,
    request,
    snapshot,
    taken,
)

GROUP = Group("group", "affinity", frozenset({"server-1", "server-5"}))
SOFT_GROUP = Group("group", "soft-affinity", frozenset({"server-5", "server-9"}))
SOFT_APART = Group("group", "soft-anti-affinity", frozenset({"server-1", "server-5"}))


def member(node: str) -> Consumer:
    return Consumer(taken(node), True, "group")


def placed(driver: SchedulerDriver, effects: list[ef.Effect]) -> list[ef.Effect]:
    """The agent accepts the one claim of these effects, and Placement takes the write."""
    return driver.written(only(ef.WriteAllocation, driver.accept(only_claim(effects))))


def group_question(effects: list[ef.Effect]) -> ef.AskGroup:
    (found,) = of_kind(ef.AskGroup, effects)
    return found


def stand(driver: SchedulerDriver, ask: ef.AskGroup, error: str = "", **homes: str) -> list[ef.Effect]:
    """The members stand on these nodes (their names with _ for -); those that were left out are not read."""
    standing = {name.replace("_", "-"): frozenset({node}) for name, node in homes.items()}
    standing = {uuid: nodes for uuid, nodes in standing.items() if uuid not in ask.known}
    return driver.give(ev.GroupAnswered(ask.ask_id, standing, error, cause=ask.cause))


# -- members that move


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


# -- what a claim tells


def test_a_claim_names_the_members_that_may_be_on_the_node_first() -> None:
    # given a node with a member that only the table knows, and one whose place nobody knows
    driver = SchedulerDriver().with_agents("node-1", consumers={"server-7": member("node-1")})
    group = Group("group", "soft-anti-affinity", frozenset({"server-1", "server-5"}))
    # when another member is placed
    claim = only_claim(driver.ask(request(group=group)))
    # then the agent hears of both, and how many of them the decision saw there
    assert claim.group is not None
    assert (claim.group.members, claim.group.seen) == (("server-7", "server-5"), 1)


def test_a_host_with_a_member_that_the_conductor_did_not_know_is_not_chosen() -> None:
    driver = SchedulerDriver().with_agents("node-1", consumers={"server-7": member("node-1")})
    driver.with_agents("node-2", free_mb=2048)
    claim = only_claim(driver.ask(request(group=Group("group", "anti-affinity", frozenset({"server-1"})))))
    assert claim.node == "node-2"


def test_a_member_that_left_is_not_in_the_way() -> None:
    driver = SchedulerDriver().with_agents("node-1", consumers={"server-7": member("node-1")})
    driver.hear(Increment("node-1", 1, 2, consumers={"server-7": None}))
    claim = only_claim(driver.ask(request(group=Group("group", "anti-affinity", frozenset({"server-1"})))))
    assert claim.group is not None and claim.group.members == ()


def test_a_forced_host_is_not_judged_by_the_policy() -> None:
    driver = SchedulerDriver().with_agents("node-1", consumers={"server-7": member("node-1")})
    group = Group("group", "anti-affinity", frozenset({"server-1"}))
    claim = only_claim(driver.ask(request(group=group, force_hosts=("host-1",))))
    assert claim.group is not None and claim.group.max_server_per_host > 1_000_000


def test_a_soft_policy_is_tried_to_be_kept_once() -> None:
    # given the only node, which has taken a member meanwhile
    driver = SchedulerDriver().with_agents("node-1")
    group = Group("group", "soft-anti-affinity", frozenset({"server-1", "server-5"}))
    claim = only_claim(driver.ask(request(group=group)))
    # when its agent says so
    again = only_claim(driver.refuse(claim, RefusalCode.GROUP_CHANGED))
    # then it is asked once more, whatever is there, because there is no other
    assert claim.group is not None and again.group is not None
    assert (claim.group.seen, again.node, again.group.seen) == (0, "node-1", None)


def claimed_apart(driver: SchedulerDriver) -> tuple[Claim, Claim]:
    """The claims of a soft member: on a host that has taken another one meanwhile, and on the next host."""
    claim = only_claim(driver.ask(request(group=SOFT_APART), within_s=60.0))
    driver.hear(Increment(claim.node, 1, 2, consumers={"server-5": member(claim.node)}))
    other = only_claim(driver.refuse(claim, RefusalCode.GROUP_CHANGED))
    assert claim.node != other.node
    return claim, other


def test_a_soft_policy_is_told_again_after_a_write_that_was_not_sent() -> None:
    # given two members whose writes were not sent, of which the other one has left its host
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    refused, claim = claimed_apart(driver)
    write = only(ef.WriteAllocation, driver.accept(claim))
    driver.hear(Increment(refused.node, 1, 3, consumers={"server-5": None}))
    driver.written(write, ev.WriteCode.NEVER_SENT)

    # when both are claimed again at the same moment
    again = only_claim(driver.wait(SchedulerSettings().crowded_wait_s))

    # then the agent may still say that the other one was there first
    assert again.group is not None and again.group.seen == 0


def test_a_member_of_a_soft_group_insists_after_some_hosts_have_refused_it() -> None:
    # given hosts that take a member whenever this one comes
    names = [f"node-{number}" for number in range(SOFT_REFUSALS_MAX + 2)]
    driver = SchedulerDriver().with_agents(*names)
    claims = [only_claim(driver.ask(request(group=SOFT_APART)))]
    for number in range(SOFT_REFUSALS_MAX):
        taken_here = {f"other-{number}": Consumer(taken(claims[-1].node), True, "group")}
        driver.hear(Increment(claims[-1].node, 1, 2, consumers=taken_here))
        claims.append(only_claim(driver.refuse(claims[-1], RefusalCode.GROUP_CHANGED)))

    # then it is told so a few times, and stays on the next one
    assert [claim.group is not None and claim.group.seen for claim in claims] == [0] * SOFT_REFUSALS_MAX + [None]
    assert len({claim.node for claim in claims}) == len(claims)


def unanswered(driver: SchedulerDriver, claim: Claim) -> Claim:
    """Placement does not answer in time; what it may have written is deleted.  The next claim."""
    write = only(ef.WriteAllocation, driver.accept(claim))
    (again,) = claims_in(driver.deleted(only(ef.DeleteAllocation, driver.written(write, ev.WriteCode.UNREACHABLE))))
    return again


def test_a_member_of_a_soft_group_does_not_join_another_because_placement_was_slow() -> None:
    # given a host with another member, and one for which Placement did not answer in time
    driver = SchedulerDriver().with_agents("node-1", consumers={"server-5": member("node-1")}).with_agents("node-2")
    claim = only_claim(driver.ask(request(group=SOFT_APART), within_s=60.0))
    # then it is tried there once more
    again = unanswered(driver, claim)
    assert (claim.node, again.node) == ("node-2", "node-2")
    # and goes to the other host after that
    assert unanswered(driver, again).node == "node-1"


def test_after_a_recheck_a_host_that_refuses_a_member_of_a_soft_group_is_not_tried_again() -> None:
    # given a full host with another member, and one for which Placement did not answer in time
    driver = SchedulerDriver().with_agents("node-1", vcpus=1, consumers={"server-5": member("node-1")})
    claim = only_claim(driver.with_agents("node-2").ask(request(group=SOFT_APART), within_s=60.0))
    write = only(ef.WriteAllocation, driver.accept(claim))
    effects = driver.deleted(only(ef.DeleteAllocation, driver.written(write, ev.WriteCode.UNREACHABLE)))
    # when Placement says that both have room, and their rows were read
    (ask,) = of_kind(ef.AskFitting, effects)
    driver.give(ev.FittingAnswered(ask.ask_id, frozenset({"node-1", "node-2"}), cause=ask.cause))
    read = (snapshot("node-1", 10, consumers={"server-5": member("node-1")}), snapshot("node-2", 10))
    claim = only_claim([effect for each in read for effect in driver.hear(each)])
    # then the second host may refuse the server only once
    assert claim.node == "node-2"
    assert only_claim(driver.refuse(claim)).node == "node-1"


def test_a_claim_that_failed_does_not_count_as_a_member_of_its_own_group() -> None:
    # given a host with another member, and one whose agent shows the claim of this one
    driver = SchedulerDriver().with_agents("node-1", consumers={"server-5": member("node-1")}).with_agents("node-2")
    claim = only_claim(driver.ask(request(group=SOFT_APART), within_s=60.0))
    write = only(ef.WriteAllocation, driver.accept(claim))
    accepted = {"server-1": member("node-2")}
    driver.hear(Increment("node-2", 1, 2, consumers=accepted, claims={claim.claim_id: "server-1"}))
    # when its write has lost too many races
    effects = driver.written(write, ev.WriteCode.PROVIDER_CONFLICT)
    # then its own claim is no reason to prefer the host of the other member
    (again,) = claims_in(effects)
    assert (claim.node, again.node) == ("node-2", "node-2")


def test_a_server_without_a_group_goes_to_the_next_host_because_placement_was_slow() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(driver.ask(within_s=60.0))
    assert unanswered(driver, claim).node != claim.node


# -- the check before the answer


def test_members_on_the_selected_host_allow_the_answer() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(driver.ask(request(group=GROUP)))
    ask = group_question(driver.written(only(ef.WriteAllocation, driver.accept(claim))))
    answer = only(ef.Answer, stand(driver, ask, server_5=claim.node))
    assert answer.choices[0][0].node == claim.node
    driver.idle()


def test_the_junior_deletes_its_allocation_and_joins_the_other_host() -> None:
    # given a server that was written on a node, while another with a smaller name was written on the other node
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(driver.ask(request("server-9", group=GROUP)))
    ask = group_question(driver.written(only(ef.WriteAllocation, driver.accept(claim))))
    other = "node-2" if claim.node == "node-1" else "node-1"
    # when it checks
    (delete,) = of_kind(ef.DeleteAllocation, stand(driver, ask, server_5=other))
    driver.deleted(delete)
    # then it is claimed there after a pause, and answered when all is well
    effects = driver.wait(YIELD_PAUSE_S)
    assert only_claim(effects).node == other
    only(ef.Answer, stand(driver, group_question(placed(driver, effects)), server_5=other))
    driver.idle()


def test_the_senior_checks_again_before_it_yields() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(driver.ask(request("server-1", group=GROUP)))
    ask = group_question(driver.written(only(ef.WriteAllocation, driver.accept(claim))))
    other = "node-2" if claim.node == "node-1" else "node-1"
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


def test_several_of_one_request_yield_together() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    effects = driver.ask(request("server-8", "server-9", group=GROUP))
    first, second = claims_in(effects)
    assert first.node == second.node
    for claim in (first, second):
        effects = driver.written(only(ef.WriteAllocation, driver.accept(claim)))
    other = "node-2" if first.node == "node-1" else "node-1"
    deletes = of_kind(ef.DeleteAllocation, stand(driver, group_question(effects), server_5=other))
    for delete in deletes:
        driver.deleted(delete)
    assert {claim.node for claim in claims_in(driver.wait(YIELD_PAUSE_S))} == {other}


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


def test_a_member_of_a_soft_group_is_checked_only_if_it_is_the_first() -> None:
    driver = SchedulerDriver().with_agents("node-1", consumers={"server-5": member("node-1")})
    group = Group("group", "soft-affinity", frozenset({"server-1", "server-5"}))
    only(ef.Answer, placed(driver, driver.ask(request(group=group))))


def following_a_claim(driver: SchedulerDriver) -> list[ef.Effect]:
    """A member of a soft group is claimed where the agent has accepted another one, which is not built: the effects."""
    driver.hear(Increment("node-1", 1, 2, {}, {"server-5": member("node-1")}, {"claim": "server-5"}))
    effects = driver.ask(request("server-9", group=SOFT_GROUP))
    assert only_claim(effects).node == "node-1"
    return effects


def test_a_member_of_a_soft_group_follows_another_one_whose_claim_was_given_up() -> None:
    # given a member that is written where the only other one was claimed
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(following_a_claim(driver))
    ask = group_question(driver.written(only(ef.WriteAllocation, driver.accept(claim, sequence=3))))
    # when that one turns out to be elsewhere, because its scheduler has not heard the agent
    driver.deleted(only(ef.DeleteAllocation, stand(driver, ask, server_5="node-2")))
    # then it goes there
    effects = driver.wait(YIELD_PAUSE_S)
    assert only_claim(effects).node == "node-2"
    only(ef.Answer, stand(driver, group_question(placed(driver, effects)), server_5="node-2"))
    driver.idle()


def test_a_member_of_a_soft_group_that_finds_no_room_beside_a_claim_is_not_checked() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    # when the host with the only other member refuses it, then it is answered on the next one
    effects = driver.refuse(only_claim(following_a_claim(driver)), RefusalCode.NO_CAPACITY)
    assert nodes_of(only(ef.Answer, placed(driver, effects))) == ["node-2"]


def test_servers_of_one_request_are_no_reason_to_check_a_soft_group() -> None:
    # given a built member on a host without room
    there = {"server-5": member("node-1")}
    driver = SchedulerDriver().with_agents("node-1", vcpus=1, consumers=there).with_agents("node-2")
    # when two servers go to another host, then they are answered there
    first, second = claims_in(driver.ask(request("server-1", "server-9", group=SOFT_GROUP)))
    writes = [only(ef.WriteAllocation, driver.accept(claim, 2 + i)) for i, claim in enumerate((first, second))]
    assert driver.written(writes[0]) == []
    assert nodes_of(only(ef.Answer, driver.written(writes[1]))) == ["node-2", "node-2"]


def soft_pair_apart() -> tuple[SchedulerDriver, list[ef.Effect], str, str]:
    """The junior of a soft affinity group is written on a node while the other member stands on another one: the
    effects of its answer from Placement, its node, and that of the other."""
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    effects = driver.ask(request("server-9", group=SOFT_GROUP))
    here = only_claim(effects).node
    there = "node-2" if here == "node-1" else "node-1"
    return driver, stand(driver, group_question(placed(driver, effects)), server_5=there), here, there


def test_the_first_of_a_soft_group_yields_and_is_checked_again() -> None:
    driver, effects, _here, there = soft_pair_apart()
    driver.deleted(only(ef.DeleteAllocation, effects))
    effects = driver.wait(YIELD_PAUSE_S)
    assert only_claim(effects).node == there
    only(ef.Answer, stand(driver, group_question(placed(driver, effects)), server_5=there))
    driver.idle()


def test_members_of_a_soft_group_that_change_sides_at_once_meet_later() -> None:
    # given two members, each of which has yielded to the other
    driver, effects, here, _there = soft_pair_apart()
    driver.deleted(only(ef.DeleteAllocation, effects))
    ask = group_question(placed(driver, driver.wait(YIELD_PAUSE_S)))
    # when the junior finds the other one where it was before
    driver.deleted(only(ef.DeleteAllocation, stand(driver, ask, server_5=here)))
    # then it goes there
    effects = driver.wait(YIELD_PAUSE_S)
    assert only_claim(effects).node == here
    only(ef.Answer, stand(driver, group_question(placed(driver, effects)), server_5=here))


def yielded_to_others() -> tuple[SchedulerDriver, list[ef.Effect], str, str]:
    """A member of a soft group that has claimed again; the hosts of server-5 and of server-7, to which it yields."""
    driver = SchedulerDriver().with_agents("node-1", "node-2", "node-3")
    effects = driver.ask(request("server-9", group=Group("group", "soft-affinity", frozenset({"server-9"}))))
    first, second = sorted({"node-1", "node-2", "node-3"} - {only_claim(effects).node})
    ask = group_question(placed(driver, effects))
    driver.deleted(only(ef.DeleteAllocation, stand(driver, ask, server_5=first, server_7=second)))
    return driver, driver.wait(YIELD_PAUSE_S), first, second


def test_a_member_of_a_soft_group_that_has_yielded_to_one_of_two_stays_there() -> None:
    # given others on two hosts, to which a member yields
    driver, effects, first, second = yielded_to_others()
    home = only_claim(effects).node
    assert home in (first, second)
    # when it is beside one of them, which is built there, then it does not go to the other
    beside = "server-5" if home == first else "server-7"
    driver.hear(Increment(home, 1, 2, consumers={beside: member(home)}))
    write = only(ef.WriteAllocation, driver.accept(only_claim(effects), sequence=3))
    only(ef.Answer, stand(driver, group_question(driver.written(write)), server_5=first, server_7=second))


def test_a_member_of_a_soft_group_does_not_stay_beside_one_that_may_yield() -> None:
    # given others on two hosts, to one of which a member has yielded
    driver, effects, first, second = yielded_to_others()
    # when the one beside it is only claimed there
    home = only_claim(effects).node
    beside = "server-5" if home == first else "server-7"
    driver.hear(Increment(home, 1, 2, {}, {beside: member(home)}, {"claim": beside}))
    write = only(ef.WriteAllocation, driver.accept(only_claim(effects), sequence=3))
    ask = group_question(driver.written(write))
    # then it yields to the other one
    only(ef.DeleteAllocation, stand(driver, ask, server_5=first, server_7=second))


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


def test_a_member_of_a_soft_group_is_checked_after_a_yield_although_the_table_knows_the_other_one_by_then() -> None:
    driver, effects, here, there = soft_pair_apart()
    driver.deleted(only(ef.DeleteAllocation, effects))
    # given the other member, which the table knows where the junior goes now
    driver.hear(Increment(there, 1, 2, {}, {"server-5": member(there)}, {"claim": "server-5"}))
    effects = driver.wait(YIELD_PAUSE_S)
    assert only_claim(effects).node == there
    # when that one has changed sides
    write = only(ef.WriteAllocation, driver.accept(only_claim(effects), sequence=3))
    ask = group_question(driver.written(write))
    # then the junior follows once more
    only(ef.DeleteAllocation, stand(driver, ask, server_5=here))


def test_a_member_of_a_soft_group_does_not_stay_beside_one_that_moves_away() -> None:
    # given a member that yields to one on another host, which is built there
    driver, effects, here, there = soft_pair_apart()
    driver.deleted(only(ef.DeleteAllocation, effects))
    effects = driver.wait(YIELD_PAUSE_S)
    assert only_claim(effects).node == there
    driver.hear(Increment(there, 1, 2, consumers={"server-5": member(there)}))
    write = only(ef.WriteAllocation, driver.accept(only_claim(effects), sequence=3))
    # when that one is moved meanwhile, to where the member was before
    driver.hear(Increment(here, 1, 2, {}, {"server-5": member(here)}, {"claim": "server-5"}))
    ask = group_question(driver.written(write))
    # then it follows
    driver.deleted(only(ef.DeleteAllocation, stand(driver, ask, server_5=here)))
    assert only_claim(driver.wait(YIELD_PAUSE_S)).node == here


def test_a_member_of_a_soft_group_does_not_yield_when_little_time_is_left() -> None:
    # given a member that is written, and whose others cannot be read for a long time
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    effects = driver.ask(request("server-9", group=SOFT_GROUP), within_s=30.0)
    home = only_claim(effects).node
    ask = group_question(placed(driver, effects))
    driver.wait(30.0 - SOFT_YIELD_LEFT_S)
    # when another one turns out to be elsewhere, then it is answered where it is
    only(ef.Answer, stand(driver, ask, server_5="node-2" if home == "node-1" else "node-1"))
    driver.idle()


def test_a_member_of_a_soft_group_is_answered_when_its_others_cannot_be_read_in_time() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    group_question(placed(driver, driver.ask(request("server-9", group=SOFT_GROUP), within_s=10.0)))
    only(ef.Answer, driver.wait(9.0))
    driver.idle()


def test_a_member_of_a_soft_group_does_not_yield_with_its_last_attempts() -> None:
    # given a member that may try only three hosts
    driver = SchedulerDriver(attempts_max=3).with_agents("node-1", "node-2")
    effects = driver.ask(request("server-9", group=SOFT_GROUP))
    home = only_claim(effects).node
    # when another one is always elsewhere
    other = "node-2" if home == "node-1" else "node-1"
    effects = stand(driver, group_question(placed(driver, effects)), server_5=other)
    driver.deleted(only(ef.DeleteAllocation, effects))
    ask = group_question(placed(driver, driver.wait(YIELD_PAUSE_S)))
    # then the last attempt is kept for a host that refuses
    only(ef.Answer, stand(driver, ask, server_5=home))
    driver.idle()


def test_a_soft_group_that_is_always_elsewhere_is_answered() -> None:
    driver, effects, here, there = soft_pair_apart()
    for _ in range(SOFT_YIELDS_MAX - 1):
        driver.deleted(only(ef.DeleteAllocation, effects))
        here, there = there, here
        ask = group_question(placed(driver, driver.wait(YIELD_PAUSE_S)))
        effects = stand(driver, ask, server_5=there)
    driver.deleted(only(ef.DeleteAllocation, effects))
    only(ef.Answer, placed(driver, driver.wait(YIELD_PAUSE_S)))


def test_a_member_of_a_soft_group_that_finds_no_room_beside_the_others_is_not_checked_again() -> None:
    # given a member that yields to one on a host whose room is gone meanwhile
    driver, effects, here, there = soft_pair_apart()
    driver.deleted(only(ef.DeleteAllocation, effects))
    claim = only_claim(driver.wait(YIELD_PAUSE_S))
    # when that host refuses it, then it stays on the other one
    effects = driver.refuse(claim, RefusalCode.NO_CAPACITY)
    assert (claim.node, only_claim(effects).node) == (there, here)
    only(ef.Answer, placed(driver, effects))


def test_a_member_of_a_soft_group_yields_to_a_host_whose_agent_was_late() -> None:
    # given a member that left a late agent for another host
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    late = only_claim(driver.ask(request("server-9", group=SOFT_GROUP)))
    (second,) = claims_in(driver.wait(1.0))
    assert second.node != late.node
    # when the other member stands where it was before
    ask = group_question(driver.written(only(ef.WriteAllocation, driver.accept(second))))
    driver.deleted(only(ef.DeleteAllocation, stand(driver, ask, server_5=late.node)))
    # then it is claimed there again
    again = only_claim(driver.wait(YIELD_PAUSE_S))
    assert again.node == late.node
    # and if the agent is late again, it goes back after a second
    (last,) = claims_in(driver.wait(1.0))
    assert last.node == second.node
    only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(last))))


def test_a_member_that_had_to_come_back_to_a_late_agent_does_not_wait_longer_for_the_next_one() -> None:
    # given a member that came back to the host of a late agent, because the only other host has refused it
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    late = only_claim(driver.ask(request("server-9", group=SOFT_GROUP)))
    (second,) = claims_in(driver.wait(1.0))
    back = only_claim(driver.refuse(second, RefusalCode.NO_CAPACITY))
    assert back.node == late.node
    # when it yields to a member on a new host, whose agent is late as well
    ask = group_question(driver.written(only(ef.WriteAllocation, driver.accept(back))))
    driver.with_agents("node-3")
    driver.deleted(only(ef.DeleteAllocation, stand(driver, ask, server_5="node-3")))
    again = only_claim(driver.wait(YIELD_PAUSE_S))
    # then it goes back after a second
    assert again.node == "node-3"
    assert [claim.node for claim in claims_in(driver.wait(1.0)) if claim.claim_id != again.claim_id] == [late.node]


def test_servers_of_one_request_stay_together_where_the_table_has_claims_on_two_hosts() -> None:
    # given two members on two hosts, one of which will yield, and neither known to the conductor
    driver = SchedulerDriver().with_agents("node-1", consumers={"server-5": member("node-1")})
    driver.with_agents("node-2", consumers={"server-6": member("node-2")})
    # when two more are asked for in one request
    group = Group("group", "affinity", frozenset({"server-5", "server-6", "server-8", "server-9"}))
    first, second = claims_in(driver.ask(request("server-8", "server-9", group=group)))
    # then they go to one host
    assert first.node == second.node


def test_servers_of_one_request_follow_the_first_to_a_host_that_the_conductor_did_not_name() -> None:
    # given a member that only the table knows, on the host with the most room
    driver = SchedulerDriver().with_agents("node-1", free_mb=7680, consumers={"server-5": member("node-1")})
    driver.with_agents("node-2", consumers={"server-6": member("node-2")})
    group = Group("group", "affinity", frozenset({"server-5", "server-8", "server-9"}), frozenset({"host-1"}))
    # when two more are asked for, and the first of them leaves less room there than the other host has
    claims = claims_in(driver.ask(request("server-8", "server-9", group=group)))
    # then the second follows the first
    assert [claim.node for claim in claims] == ["node-2", "node-2"]


def candidates(driver: SchedulerDriver, asked: ef.AskCandidates) -> list[ef.Effect]:
    """Placement names its candidate on the node."""
    found = ev.Candidate(taken(asked.node), {"": (asked.node,)})
    return driver.give(ev.CandidatesAnswered(asked.ask_id, (found,), cause=asked.cause))


@pytest.mark.parametrize("first", ["the refused one", "the other one"])
@pytest.mark.parametrize(("policy", "second_on", "then"), [
    ("affinity", "node-1", ["node-2", "node-2"]), ("anti-affinity", "node-2", ["node-2", "node-1"]),
])  # fmt: skip
def test_servers_of_one_request_that_are_decided_at_once_obey_their_policy(
    policy: str, second_on: str, then: list[str], first: str
) -> None:
    # given two servers of one request, the first of which is refused while Placement is asked about the second one
    driver = SchedulerDriver().with_agents("node-1", free_mb=9000).with_agents("node-2", free_mb=8000)
    driver.with_agents("node-3", free_mb=7000)
    group = Group("group", policy, frozenset({"server-8", "server-9"}))
    effects = driver.ask(request("server-8", "server-9", group=group, root_only=False))
    effects = candidates(driver, only(ef.AskCandidates, effects))
    (refused,), second = claims_in(effects), of_kind(ef.AskCandidates, effects)[0]
    again = only(ef.AskCandidates, driver.refuse(refused))
    assert (refused.node, second.node, again.node) == ("node-1", second_on, "node-2")
    # when Placement answers about both, in any order
    questions, claims = [again, second] if first == "the refused one" else [second, again], list[Claim]()
    while questions:
        effects = candidates(driver, questions.pop(0))
        claims += claims_in(effects)
        questions += of_kind(ef.AskCandidates, effects)
    # then the second one, which was decided before the first one lost its host, has been decided again
    assert [(claim.consumer, claim.node) for claim in claims] == [*zip(("server-8", "server-9"), then, strict=True)]


def test_servers_of_one_request_may_use_all_hosts_that_the_conductor_names() -> None:
    # given a group that is on two hosts already, each with room for one more
    driver = SchedulerDriver().with_agents("node-1", vcpus=2, consumers={"server-5": member("node-1")})
    driver.with_agents("node-2", vcpus=2, consumers={"server-6": member("node-2")})
    members, hosts = frozenset({"server-5", "server-6"}), frozenset({"host-1", "host-2"})
    # when two more are asked for
    claims = claims_in(driver.ask(request("server-8", "server-9", group=Group("group", "affinity", members, hosts))))
    # then each gets a host, as from Nova's filter
    assert {claim.node for claim in claims} == {"node-1", "node-2"}


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


# -- members of a hard group that begin to leave


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


def test_what_an_agent_still_has_of_a_server_is_no_reason_to_place_it_beside_another_one() -> None:
    # given two servers of one request, and agents of a release that does not count members
    driver = SchedulerDriver().with_agents("node-1", free_mb=8192).with_agents("node-2", free_mb=8000)
    group = Group("group", "anti-affinity", frozenset({"server-8", "server-9"}))
    first, second = claims_in(driver.ask(request("server-8", "server-9", group=group, queries=())))
    assert (first.node, second.node) == ("node-1", "node-2")
    driver.written(only(ef.WriteAllocation, driver.accept(second)))
    # when node-2 still has an earlier claim for the first one, whose Release was lost, and node-1 refuses that one
    both, claims = {uuid: member("node-2") for uuid in group.members}, {second.claim_id: "server-9", "old": "server-8"}
    driver.hear(Increment("node-2", 1, 2, consumers=both, claims=claims))
    effects = driver.refuse(first)
    # then it does not go where the second one is
    assert not claims_in(effects)
    driver.deleted(only(ef.DeleteAllocation, [one for one in effects if not isinstance(one, ef.Send)]))
    driver.idle()
