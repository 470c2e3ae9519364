# SPDX-License-Identifier: Apache-2.0
"""The server group in a claim: the members that the agent of the node is told of, and its refusals."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.request_state import SOFT_REFUSALS_MAX
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.decision.request import Group
from shared_scheduler.protocol.messages import Claim, Consumer, Increment, RefusalCode
from tests.unit.core.groups import member
from tests.unit.core.scheduler_driver import (
    SchedulerDriver,
    claims_in,
    of_kind,
    only,
    only_claim,
    request,
    snapshot,
    taken,
)

SOFT_APART = Group("group", "soft-anti-affinity", frozenset({"server-1", "server-5"}))


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
