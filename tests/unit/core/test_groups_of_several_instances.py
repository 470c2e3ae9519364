# SPDX-License-Identifier: Apache-2.0
"""A server group and several servers of one request."""

from __future__ import annotations

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.group_check import YIELD_PAUSE_S
from shared_scheduler.decision.request import Group
from shared_scheduler.protocol.messages import Claim, Increment
from tests.unit.core.groups import GROUP, SOFT_GROUP, group_question, member, stand
from tests.unit.core.scheduler_driver import SchedulerDriver, claims_in, nodes_of, of_kind, only, request, taken


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


def test_servers_of_one_request_are_no_reason_to_check_a_soft_group() -> None:
    # given a built member on a host without room
    there = {"server-5": member("node-1")}
    driver = SchedulerDriver().with_agents("node-1", vcpus=1, consumers=there).with_agents("node-2")
    # when two servers go to another host, then they are answered there
    first, second = claims_in(driver.ask(request("server-1", "server-9", group=SOFT_GROUP)))
    writes = [only(ef.WriteAllocation, driver.accept(claim, 2 + i)) for i, claim in enumerate((first, second))]
    assert driver.written(writes[0]) == []
    assert nodes_of(only(ef.Answer, driver.written(writes[1]))) == ["node-2", "node-2"]


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
