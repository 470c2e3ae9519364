# SPDX-License-Identifier: Apache-2.0
"""What happens once is right; these tests look at the second time, and at what is kept from the first."""

from __future__ import annotations

from typing import Any

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.known_groups import with_known_members
from shared_scheduler.core.verdict_limit import VerdictLimit
from shared_scheduler.decision.request import Group
from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S
from shared_scheduler.protocol.messages import BuildResult, Consumer, Heartbeat, Verdict
from tests.unit.core.scheduler_driver import (
    CELL,
    ME,
    OTHER_CELL,
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

# -- alternates


def test_alternates_are_of_the_cell_of_the_chosen_host_although_others_have_room() -> None:
    # given two cells whose hosts are all open
    driver = SchedulerDriver().with_agents("node-1").with_agents("node-2", free_mb=4096)
    driver.with_agents("node-8", "node-9", cell=OTHER_CELL, free_mb=6144)
    # when a server is placed in the first one
    claim = only_claim(driver.ask(request(num_alternates=5)))
    answer = only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(claim))))
    # then the conductor may try the other host of this cell, and none of the other cell
    assert [choice.node for choice in answer.choices[0]] == ["node-1", "node-2"]


def test_alternates_are_selected_again_when_the_host_is_decided_again() -> None:
    # given a claim, and the alternate that was selected beside it
    driver = SchedulerDriver().with_agents("node-1").with_agents("node-2", free_mb=6144)
    driver.with_agents("node-3", free_mb=4096)
    first = only_claim(driver.ask(request(num_alternates=1)))
    driver.wait(0.001)
    # when its host refuses, and the alternate becomes the host
    second = only_claim(driver.refuse(first))
    answer = only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(second))))
    # then it is not its own alternate
    assert [choice.node for choice in answer.choices[0]] == ["node-2", "node-3"]


# -- deletes and releases


def test_the_pauses_between_deletes_grow_up_to_half_a_minute() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask())))
    delete = only(ef.DeleteAllocation, driver.written(write, ev.WriteCode.UNREACHABLE))
    pauses = []
    for _ in range(10):
        failed_s = driver.now
        driver.give(ev.AllocationDeleted(delete.claim_id, False, "Placement is away", cause=delete.cause))
        again: list[ef.DeleteAllocation] = []
        while not again:
            again = of_kind(ef.DeleteAllocation, driver.wait((driver.core.next_deadline_s() or 0.0) - driver.now))
        [delete] = again
        pauses.append(round(driver.now - failed_s, 1))
    assert pauses[:3] == [0.2, 0.4, 0.8]
    assert max(pauses) == pauses[-1] == 30.0


def test_a_claim_is_not_released_while_an_earlier_attempt_of_its_write_may_arrive() -> None:
    # given a write whose first attempt got no answer
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask())))
    # when its second attempt loses against another writer of the provider
    effects = driver.unanswered(write, ev.WriteCode.PROVIDER_CONFLICT)
    # then the request goes on with another host, and the resources of this one wait
    assert [claim.node for claim in claims_in(effects)] == ["node-2"]
    assert releases_in(effects) == []
    assert [one.claim_id for one in driver.table.outstanding("node-1")] == [write.claim_id]
    # and then they are deleted in case the attempt has arrived
    deletes = of_kind(ef.DeleteAllocation, driver.wait(CARRIED_OUT_WITHIN_S))
    assert write.claim_id in {delete.claim_id for delete in deletes}


def test_a_verdict_of_a_node_that_never_had_the_claim_releases_nothing() -> None:
    # given a claim that was released because its agent did not answer
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(driver.ask())
    other = "node-2" if claim.node == "node-1" else "node-1"
    driver.wait(6.0)
    # when another node accepts it
    effects = driver.hear(Verdict(claim.claim_id, other, 1, True, None, 2))
    # then only a verdict of its own node is answered
    assert releases_in(effects) == []
    assert releases_in(driver.hear(Verdict(claim.claim_id, claim.node, 1, True, None, 2))) == [claim.claim_id]


def test_a_write_ends_before_the_agent_may_have_let_the_claim_go() -> None:
    # given an agent that takes nearly all of its time for the verdict
    driver = SchedulerDriver(verdict_timeout_s=10.0, written_within_s=12.0).with_agents("node-1")
    began_s = driver.now
    claim = only_claim(driver.ask(within_s=300.0))
    driver.wait(9.0)
    # when the claim is written
    write = only(ef.WriteAllocation, driver.accept(claim))
    # then no later than the agent holds it for certain
    assert write.deadline_s == began_s + 12.0


# -- agents


def test_an_agent_that_was_away_for_long_and_answers_again_gets_claims_again() -> None:
    # given a node whose agent gave no verdict, and did not answer for long
    driver = SchedulerDriver().with_agents("node-1")
    only_claim(driver.ask())
    driver.wait(20.0)
    assert not driver.core.nodes.agent_speaks_for("node-1")
    # when it is heard again
    told = snapshot("node-1")
    driver.hear(Heartbeat("node-1", 1, 1, told.host, told.digest))
    driver.hear(snapshot("node-1", sequence=2))
    # then it judges claims as before
    assert driver.core.nodes.agent_speaks_for("node-1")
    assert claims_in(driver.ask(request(request_id="req-2")))


def test_a_first_late_answer_raises_the_limit_although_its_agent_was_prompt_before() -> None:
    limit = VerdictLimit(10.0)
    for _ in range(50):
        limit.answered("node-1", 0.01)
    prompt_s = limit.after()
    limit.answered("node-1", 3.0)
    assert limit.after() > prompt_s


def test_each_end_of_a_build_that_an_older_agent_does_not_number_is_recorded() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    results = [BuildResult("node-1", 1, server, True, "", ME) for server in ("server-1", "server-2")]
    recorded = [of_kind(ef.RecordBuild, driver.hear(result)) for result in results]
    assert [[one.consumer for one in found] for found in recorded] == [["server-1"], ["server-2"]]


# -- groups


def affinity(policy: str = "affinity", *members: str) -> dict[str, Any]:
    return {"group": Group("group", policy, frozenset(members))}


def test_a_member_that_moves_is_not_bound_to_the_host_that_it_leaves() -> None:
    # given the only member of an affinity group, which is built on node-1
    driver = SchedulerDriver()
    held = Consumer(taken("node-1"), True, "group")
    driver.with_agents("node-1", consumers={"server-1": held})
    # when it is to be placed again
    asked = request("server-1", **affinity("affinity", "server-1"))
    found = with_known_members(driver.table, asked, frozenset({"server-1"}))
    # then no host is prescribed
    assert found.group is not None and found.group.hosts == frozenset()


def test_one_agent_that_does_not_count_groups_is_enough_to_look_the_members_up() -> None:
    # given one host whose agent counts the members of groups, and one without an agent
    driver = SchedulerDriver().with_agents("node-1", agent__groups=True).without_agents("node-2")
    asked = request("server-1", "server-2", **affinity("anti-affinity", "server-1", "server-2"))
    # when two members are placed, one on each
    effects = driver.ask(asked)
    [claim] = claims_in(effects)
    [direct] = of_kind(ef.WriteAllocation, effects)
    driver.written(direct)
    [judged] = of_kind(ef.WriteAllocation, driver.accept(claim))
    # then the places of all members are read before the answer
    assert of_kind(ef.AskGroup, driver.written(judged))


# -- nodes and cells


def test_a_name_means_the_node_that_has_it_now() -> None:
    # given a request that was forced to a host
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    assert only_claim(driver.ask(request(force_hosts=("host-2",)))).node == "node-2"
    # when this host goes, and another one comes
    driver.give(ev.NodesGone(CELL, frozenset({"node-2"})))
    driver.with_agents("node-3")
    # then the new name is found
    claims = claims_in(driver.ask(request("server-2", request_id="req-2", force_hosts=("host-3",))))
    assert [claim.node for claim in claims] == ["node-3"]


def test_the_hosts_of_a_cell_that_is_enabled_again_are_selected() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    driver.table.set_disabled_cells(frozenset({CELL}))
    assert not claims_in(driver.ask(within_s=1.0))

    driver.table.set_disabled_cells(frozenset())

    claim = only_claim(driver.ask(request("server-2", request_id="req-2")))
    answer = only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(claim))))
    assert nodes_of(answer) == ["node-1"]
