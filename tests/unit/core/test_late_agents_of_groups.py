# SPDX-License-Identifier: Apache-2.0
"""A member of a soft group waits longer for a late agent, if only hosts that serve its policy differently are left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.events import WriteCode
from shared_scheduler.core.planner import HostJudge
from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.request import Group
from shared_scheduler.protocol.messages import Claim, Consumer, Hello, Role, Want
from tests.unit.core.scheduler_driver import (
    CELL,
    Picky,
    SchedulerDriver,
    claims_in,
    nodes_of,
    of_kind,
    only,
    only_claim,
    releases_in,
    request,
    snapshot,
    taken,
)

NODES = ("node-1", "node-2", "node-3")


def with_members_on(*homes: str) -> SchedulerDriver:
    """Three nodes whose agents have answered claims within milliseconds, and one member of the group on each of
    ``homes``.  node-2 is the best for requests without a group."""
    driver = SchedulerDriver()
    for node in NODES:
        held = {f"member-of-{node}": Consumer(taken(node), True, "group")} if node in homes else {}
        vcpus, free_mb = (128, 65_536) if node == "node-2" else (64, 32_768)
        driver.with_agents(node, vcpus=vcpus, free_mb=free_mb, consumers=held)
    for number in range(3):
        claim = only_claim(driver.ask(request(f"early-{number}")))
        driver.wait(0.005)
        place(driver, claim, sequence=number + 2)
    return driver


def place(driver: SchedulerDriver, claim: Claim, sequence: int = 20) -> ef.Answer:
    """The agent accepts the claim, and Placement takes the write."""
    return only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(claim, sequence))))


def ask_for_member(driver: SchedulerDriver, policy: str, server: str = "new") -> Claim:
    return only_claim(driver.ask(request(server, group=Group("group", policy, frozenset({server})))))


def be_late_on_node_2(driver: SchedulerDriver) -> None:
    """The agent of node-2 is late for a request without a group, which gets another host after 200 ms."""
    late = only_claim(driver.ask(request("late")))
    effects = driver.wait(0.2)
    assert late.node == "node-2" and releases_in(effects) == [late.claim_id]
    (second,) = claims_in(effects)
    place(driver, second)
    assert driver.core.quarantine.nodes == {"node-2"}


def refuse_on_node_2(driver: SchedulerDriver) -> None:
    """The agent of node-2 refuses several claims in a row."""
    others = frozenset({"host-1", "host-3"})
    for number in range(driver.core.settings.refusals_max):
        driver.refuse(only_claim(driver.ask(request(f"refused-{number}", ignore_hosts=others))))
    assert driver.core.quarantine.refusing == {"node-2"}


def name_candidates(driver: SchedulerDriver, effects: Sequence[ef.Effect]) -> list[ef.Effect]:
    """Placement names the candidates of the host that it is asked about."""
    asked = only(ef.AskCandidates, effects)
    return driver.give(
        ev.CandidatesAnswered(asked.ask_id, (ev.Candidate(taken(asked.node), {"": (asked.node,)}),), cause=asked.cause)
    )


def test_a_member_waits_for_the_agent_of_the_host_where_the_others_are() -> None:
    # given a group on node-2, whose agent is late for another member
    driver = with_members_on("node-2")
    claim = ask_for_member(driver, "soft-affinity")
    # when more than the usual time has passed, then no other host is claimed
    assert (claim.node, driver.wait(0.6)) == ("node-2", [])
    # and the members are together when it answers
    assert nodes_of(place(driver, claim)) == ["node-2"]
    driver.idle()
    # and the agent is one as the others again
    assert driver.core.quarantine.nodes == frozenset()


def test_an_agent_that_has_answered_is_not_late_although_placement_refuses_the_write() -> None:
    # given a member that waits for a late agent, which accepts
    driver = with_members_on("node-2")
    claim = ask_for_member(driver, "soft-affinity")
    driver.wait(0.6)
    write = only(ef.WriteAllocation, driver.accept(claim, sequence=20))
    # when the write fails for a reason that says nothing about the node
    driver.written(write, WriteCode.PROVIDER_CONFLICT)
    # then the node is selected like the others
    assert driver.core.quarantine.nodes == frozenset()


def test_a_member_waits_once_and_no_longer_than_a_second() -> None:
    driver = with_members_on("node-2")
    claim = ask_for_member(driver, "soft-affinity")
    # when the agent has not answered for a second, then the next host is claimed
    effects = driver.wait(1.0)
    assert releases_in(effects) == [claim.claim_id]
    (second,) = claims_in(effects)
    assert nodes_of(place(driver, second)) == [second.node] != ["node-2"]
    # and the next member does not wait for it again
    third = ask_for_member(driver, "soft-affinity", "newer")
    assert third.node == second.node
    # but does when it has answered
    driver.accept(claim)
    place(driver, third)
    assert driver.core.quarantine.nodes == frozenset()


@pytest.mark.parametrize("policy", ["soft-affinity", "soft-anti-affinity"])
def test_a_member_returns_to_an_agent_that_has_answered_if_its_write_waited_in_vain(policy: str) -> None:
    # given a member that has waited for a late agent, and goes to a host with more or fewer members
    driver = with_members_on(*(("node-2",) if policy == "soft-affinity" else ("node-1", "node-3")))
    claim = ask_for_member(driver, policy)
    (second,) = claims_in(driver.wait(1.0))
    assert claim.node == "node-2" != second.node
    # when the agent answers meanwhile, and Placement does not keep up with the writes
    driver.accept(claim)
    write = only(ef.WriteAllocation, driver.accept(second, sequence=20))
    driver.written(write, WriteCode.NEVER_SENT)
    # then the member is decided anew
    (third,) = claims_in(driver.wait(driver.core.requests._settings.crowded_wait_s))
    assert third.node == claim.node
    place(driver, third, sequence=21)


def test_a_member_does_not_return_to_an_agent_that_is_silent_if_its_write_waited_in_vain() -> None:
    # given a member that has waited for an agent that does not answer
    driver = with_members_on("node-2")
    claim = ask_for_member(driver, "soft-affinity")
    (second,) = claims_in(driver.wait(1.0))
    # when Placement does not keep up with the writes
    driver.written(only(ef.WriteAllocation, driver.accept(second, sequence=20)), WriteCode.NEVER_SENT)
    # then the member does not wait for the agent again
    (third,) = claims_in(driver.wait(driver.core.requests._settings.crowded_wait_s))
    assert third.node == second.node != claim.node


def test_other_requests_do_not_wait_for_an_agent_for_which_a_member_waits() -> None:
    # given a member that waits for a late agent
    driver = with_members_on("node-2")
    ask_for_member(driver, "soft-affinity")
    driver.wait(0.2)
    # then its node is selected last for requests without a group
    assert all(only_claim(driver.ask(request(f"other-{n}"))).node != "node-2" for n in range(3))


def test_a_late_agent_is_not_passed_over_for_hosts_with_other_numbers_of_members() -> None:
    # given a node whose agent was late for another request, and the members there
    driver = with_members_on("node-2")
    be_late_on_node_2(driver)
    # when another member is placed, then it comes to them
    claim = ask_for_member(driver, "soft-affinity")
    assert claim.node == "node-2"
    assert nodes_of(place(driver, claim)) == ["node-2"]


def test_a_late_agent_is_passed_over_for_a_host_with_as_many_members() -> None:
    # given two nodes with a member each, of which one has a late agent
    driver = with_members_on("node-2", "node-3")
    be_late_on_node_2(driver)
    assert ask_for_member(driver, "soft-affinity").node == "node-3"


def test_a_member_leaves_a_late_agent_soon_for_a_host_with_as_many_members() -> None:
    driver = with_members_on("node-2", "node-3")
    claim = ask_for_member(driver, "soft-affinity")
    effects = driver.wait(0.2)
    assert releases_in(effects) == [claim.claim_id]
    assert {one.node for one in claims_in(effects)} == {"node-2", "node-3"} - {claim.node}


def test_a_member_leaves_a_node_that_was_removed_before_its_agent_answered() -> None:
    # given a claim of one of two nodes with members
    driver = with_members_on("node-2", "node-3")
    claim = ask_for_member(driver, "soft-affinity")
    # when the node is removed from the cloud
    driver.give(ev.NodesGone(CELL, frozenset({claim.node})))
    # then another one is claimed as soon as the agent is late
    effects = driver.wait(0.2)
    assert releases_in(effects) == [claim.claim_id]
    assert [one.node != claim.node for one in claims_in(effects)] == [True]


def test_a_member_that_shall_be_apart_waits_if_every_other_host_has_one() -> None:
    # given members on all nodes but one, whose agent was late
    driver = with_members_on("node-1", "node-3")
    be_late_on_node_2(driver)
    claim = ask_for_member(driver, "soft-anti-affinity")
    # then the next member goes there, and waits
    assert (claim.node, driver.wait(0.6)) == ("node-2", [])
    assert nodes_of(place(driver, claim)) == ["node-2"]


@pytest.mark.parametrize("policy", ["anti-affinity", ""])
def test_other_policies_do_not_wait(policy: str) -> None:
    driver = with_members_on()
    claim = ask_for_member(driver, policy)
    assert releases_in(driver.wait(0.2)) == [claim.claim_id]


def test_a_node_that_refuses_is_passed_over_for_members_as_well() -> None:
    # given the members on a node that has refused several claims in a row
    driver = with_members_on("node-2")
    refuse_on_node_2(driver)
    # then another member goes elsewhere
    assert ask_for_member(driver, "soft-affinity").node != "node-2"


def beside_another_scheduler(judge: HostJudge | None = None, **settings: Any) -> SchedulerDriver:
    """A better host than that of the others, and a near tie of it that is worse; another scheduler is alive.

    By weight: "best" has no member, then come "home" with one and "near" with none.  The policy adds so little that all
    three would be near ties of each other without the members."""
    weak = DecisionSettings(
        soft_affinity_weight_multiplier=0.05,
        cpu_weight_multiplier=0.0,
        disk_weight_multiplier=0.0,
        io_ops_weight_multiplier=0.0,
    )
    driver = SchedulerDriver(judge, weak, **settings)
    driver.hear(Hello(Role.SCHEDULER, "scheduler-b", 1, "", "", Want.NOTHING))
    driver.with_agents("best", vcpus=64, free_mb=64_000)
    driver.with_agents("near", vcpus=64, free_mb=60_000)
    driver.with_agents("home", vcpus=64, free_mb=58_000, consumers={"member": Consumer(taken("home"), True, "group")})
    return driver


def test_a_member_is_not_claimed_for_near_ties_of_a_host_that_refuses() -> None:
    # given a host that has refused several claims in a row, and would be the best one
    driver = beside_another_scheduler()
    others = frozenset({"near", "home"})
    for number in range(driver.core.settings.refusals_max):
        driver.refuse(only_claim(driver.ask(request(f"refused-{number}", ignore_hosts=others))))
    assert driver.core.quarantine.refusing == {"best"}
    # when a member of the group is placed, then it goes to the best one of the others, where the other member is
    assert ask_for_member(driver, "soft-affinity").node == "home"


def test_a_member_is_not_claimed_for_near_ties_of_a_host_with_many_claims_in_flight() -> None:
    # given the maximum number of claims that wait for the agent of the best host
    driver = beside_another_scheduler(claims_per_node_max=1)
    assert only_claim(driver.ask(request("first", ignore_hosts=frozenset({"near", "home"})))).node == "best"
    # when a member of the group is placed, then it goes to the best one of the others
    assert ask_for_member(driver, "soft-affinity").node == "home"


def test_a_member_is_not_claimed_for_near_ties_of_a_host_that_a_filter_of_nova_refuses() -> None:
    driver = beside_another_scheduler(Picky("best"))
    assert ask_for_member(driver, "soft-affinity").node == "home"


def test_a_host_in_quarantine_is_claimed_for_a_member_if_no_other_passes() -> None:
    # given a host that refuses
    driver = beside_another_scheduler()
    others = frozenset({"near", "home"})
    for number in range(driver.core.settings.refusals_max):
        driver.refuse(only_claim(driver.ask(request(f"refused-{number}", ignore_hosts=others))))
    # when a request of a member excludes the others, then it is claimed
    group = Group("group", "soft-affinity", frozenset({"new"}))
    assert only_claim(driver.ask(request("new", group=group, ignore_hosts=others))).node == "best"


def only_in_quarantine() -> SchedulerDriver:
    """Agents of node-1 and node-3 that were late for other requests, and node-2, which refuses."""
    driver = with_members_on()
    refuse_on_node_2(driver)
    for server in ("late", "later"):
        driver.ask(request(server, ignore_hosts=frozenset({"host-2"})))
        driver.wait(0.2)
    assert driver.core.quarantine.nodes == set(NODES)
    assert driver.core.quarantine.refusing == {"node-2"}
    return driver


@pytest.mark.parametrize("policy", ["soft-affinity", "soft-anti-affinity"])
def test_a_node_that_refuses_is_passed_over_for_late_agents_if_there_is_no_other_host(policy: str) -> None:
    assert ask_for_member(only_in_quarantine(), policy).node != "node-2"


def test_a_member_returns_to_a_late_agent_if_members_have_come_to_the_other_hosts() -> None:
    # given a host that refuses, a good one whose agent was late, and two members that shall be apart on two others
    driver = with_members_on()
    refuse_on_node_2(driver)
    driver.with_agents("node-4", vcpus=66, free_mb=33_792)
    driver.ask(request("late", ignore_hosts=frozenset({"host-2"})))
    place(driver, claims_in(driver.wait(0.2))[0])
    group = Group("group", "soft-anti-affinity", frozenset({"new", "newer"}))
    effects = name_candidates(driver, driver.ask(request("new", "newer", group=group, root_only=False)))
    driver.wait(0.01)
    new, newer = *claims_in(effects), only_claim(name_candidates(driver, effects[1:]))
    # when both leave their agents, which are late, and another member comes to the first one
    asked = of_kind(ef.AskCandidates, driver.wait(0.2))
    held = {"member": Consumer(taken(new.node), True, "group")}
    driver.hear(snapshot(new.node, 30, vcpus=64, free_mb=16_384, consumers=held))
    assert driver.core.quarantine.nodes == {"node-2", "node-4", new.node, newer.node}
    # then the first one is claimed for the host that was late before, and the second one where it was, alone
    effects = name_candidates(driver, name_candidates(driver, asked))
    assert [one.node for one in claims_in(effects)] == ["node-4"]
    assert only_claim(name_candidates(driver, effects[1:])).node == newer.node
