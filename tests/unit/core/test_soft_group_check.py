# SPDX-License-Identifier: Apache-2.0
"""The check of a group with a soft policy before the answer: it yields less, and is then answered where it is."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core.group_check import SOFT_YIELD_LEFT_S, SOFT_YIELDS_MAX, YIELD_PAUSE_S
from shared_scheduler.decision.request import Group
from shared_scheduler.protocol.messages import Increment, RefusalCode
from tests.unit.core.groups import SOFT_GROUP, group_question, member, placed, stand
from tests.unit.core.scheduler_driver import SchedulerDriver, claims_in, nodes_of, only, only_claim, request


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


def test_a_member_of_a_soft_group_is_answered_where_it_is_if_the_others_cannot_be_read() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    effects = driver.ask(request("server-9", group=SOFT_GROUP))
    node = only_claim(effects).node

    answer = only(ef.Answer, stand(driver, group_question(placed(driver, effects)), error="no server answers"))

    assert nodes_of(answer) == [node]


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
