# SPDX-License-Identifier: Apache-2.0
"""Requests for several instances, for none, and those whose candidates Placement must name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.planner import Approval
from shared_scheduler.core.scheduler import StepFailedError
from shared_scheduler.decision.request import Group, PlacementForm, Request
from shared_scheduler.protocol.messages import Claim, Consumer, Reason
from tests.unit.core.scheduler_driver import (
    AcceptAll,
    SchedulerDriver,
    claims_in,
    nodes_of,
    of_kind,
    only,
    only_claim,
    releases_in,
    request,
    resyncs_in,
    snapshot,
    taken,
)


class Broken(AcceptAll):
    """A judge that fails on the second instance."""

    def verify(self, request: Request, index: int, view: Any, candidates: Sequence[ev.Candidate]) -> Approval | Reason:
        if index:
            raise RuntimeError("a bug of ours")
        return super().verify(request, index, view, candidates)


# -- several instances


def test_multi_create_claims_all_then_writes_all_then_answers_once() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2", vcpus=2)
    claims = claims_in(driver.ask(request("a", "b", "c")))
    assert [claim.consumer for claim in claims] == ["a", "b", "c"]
    assert {claim.node for claim in claims} == {"node-1", "node-2"}
    writes = [only(ef.WriteAllocation, driver.accept(claim, sequence=5)) for claim in claims]
    assert driver.written(writes[2]) == [] and driver.written(writes[0]) == []
    answer = only(ef.Answer, driver.written(writes[1]))
    assert nodes_of(answer) == [claim.node for claim in claims]
    driver.idle()


def test_multi_create_is_all_or_nothing() -> None:
    # given room for two, and three are asked for; by then one is written and one is being written
    driver = SchedulerDriver().with_agents("node-1", vcpus=3)
    claims = claims_in(driver.ask(request("a", "b", "c")))
    writes = [only(ef.WriteAllocation, driver.accept(claim, sequence=5)) for claim in claims[:2]]
    assert driver.written(writes[0]) == []
    # when the third is refused and Placement agrees that there is no room
    ask = only(ef.AskFitting, driver.refuse(claims[2]))
    effects = driver.give(ev.FittingAnswered(ask.ask_id, frozenset(), cause=ask.cause))
    # then what is written is deleted, what is in flight is awaited, and nobody is answered yet
    delete = only(ef.DeleteAllocation, effects)
    assert delete.consumer == "a"
    second = only(ef.DeleteAllocation, driver.written(writes[1]))
    assert releases_in(driver.deleted(delete)) == [claims[0].claim_id]
    effects = driver.deleted(second)
    assert releases_in(effects) == [claims[1].claim_id]
    assert [fail.code for fail in of_kind(ef.Fail, effects)] == [ef.FailureCode.NO_VALID_HOST]
    driver.idle()


def test_one_of_several_is_refused_and_decided_again_alone() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2", vcpus=2)
    claims = claims_in(driver.ask(request("a", "b")))
    again = only_claim(driver.refuse(claims[0]))
    assert (again.consumer, again.node != claims[0].node) == ("a", True)
    writes = [only(ef.WriteAllocation, driver.accept(c, sequence=5)) for c in (claims[1], again)]
    driver.written(writes[0])
    assert nodes_of(only(ef.Answer, driver.written(writes[1]))) == [again.node, claims[1].node]


# -- no claim


def test_a_rebuild_chooses_and_claims_nothing() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    answer = only(ef.Answer, driver.ask(request(forms=(), is_rebuild=True, claim=False)))
    assert nodes_of(answer) == ["node-1"] and answer.choices[0][0].candidate is None
    driver.idle()


def test_a_legacy_caller_consumes_between_instances_and_leaves_nothing_behind() -> None:
    # given two equal nodes
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    answer = only(ef.Answer, driver.ask(request("a", "b", claim=False)))
    # then the second instance sees the first one, and nothing stays consumed
    assert set(nodes_of(answer)) == {"node-1", "node-2"}
    assert driver.table.outstanding("node-1") == driver.table.outstanding("node-2") == ()


def test_a_legacy_caller_leaves_nothing_behind_even_where_we_fail_on_it() -> None:
    # given a judge with a bug that shows at the second instance
    driver = SchedulerDriver(Broken()).with_agents("node-1", "node-2")
    with pytest.raises(StepFailedError):
        driver.ask(request("a", "b", claim=False))
    driver.idle()


def test_a_legacy_caller_asks_placement_nothing_even_if_its_request_is_not_root_only() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    answer = only(ef.Answer, driver.ask(request(claim=False, root_only=False)))
    assert nodes_of(answer) == ["node-1"]


# -- not root-only


def test_candidates_are_asked_of_the_best_host_then_of_the_next() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    ask = only(ef.AskCandidates, driver.ask(request(root_only=False)))
    assert ask.queries == request().queries
    # when Placement names none there
    second = only(ef.AskCandidates, driver.give(ev.CandidatesAnswered(ask.ask_id, (), cause=ask.cause)))
    assert {ask.node, second.node} == {"node-1", "node-2"}
    # then the claim is for what it names on the next host
    nested = {second.node: {"VCPU": 1}, "nic-1": {"CUSTOM_BANDWIDTH": 100}}
    candidate = ev.Candidate(nested, {"": (second.node,), "_port": ("nic-1",)})
    claim = only_claim(driver.give(ev.CandidatesAnswered(second.ask_id, (candidate,), cause=second.cause)))
    assert claim.allocations == nested
    write = only(ef.WriteAllocation, driver.accept(claim))
    assert write.mappings == candidate.mappings


def test_placement_cannot_name_candidates() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    ask = only(ef.AskCandidates, driver.ask(request(root_only=False)))
    fail = only(ef.Fail, driver.give(ev.CandidatesAnswered(ask.ask_id, (), "503", cause=ask.cause)))
    assert fail.code == ef.FailureCode.PLACEMENT_UNREACHABLE and "503" in fail.text


def test_instances_that_are_not_root_only_are_asked_for_one_after_the_other() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    first = only(ef.AskCandidates, driver.ask(request("a", "b", root_only=False)))
    candidate = ev.Candidate(taken(first.node), {"": (first.node,)})
    effects = driver.give(ev.CandidatesAnswered(first.ask_id, (candidate,), cause=first.cause))
    assert [claim.consumer for claim in claims_in(effects)] == ["a"]
    assert len(of_kind(ef.AskCandidates, effects)) == 1


# -- several instances that must be together


TOGETHER = Group("group", "affinity", frozenset({"a", "b"}))


def two_claims_for_one_host(driver: SchedulerDriver) -> list[Claim]:
    """Two servers of an affinity group are claimed for node-1, and node-2 has room for both as well."""
    driver.with_agents("node-1", free_mb=8192).with_agents("node-2", free_mb=7000)
    claims = claims_in(driver.ask(request("a", "b", group=TOGETHER)))
    assert [claim.node for claim in claims] == ["node-1", "node-1"]
    return claims


def test_servers_that_must_be_together_leave_a_host_that_refuses_one_of_them() -> None:
    driver = SchedulerDriver()
    first, second = two_claims_for_one_host(driver)
    # given one that is being written when the other one is refused
    write = only(ef.WriteAllocation, driver.accept(first))
    assert driver.refuse(second) == []
    # when what was written is deleted
    driver.deleted(only(ef.DeleteAllocation, driver.written(write)))
    # then both go to the other host
    assert [claim.node for claim in claims_in(driver.wait(0.1))] == ["node-2", "node-2"]


def test_servers_that_must_be_together_leave_a_host_whose_agent_does_not_answer() -> None:
    driver = SchedulerDriver(claim_repeat_s=0.0)
    two_claims_for_one_host(driver)
    assert [claim.node for claim in claims_in(driver.wait(4.0))] == ["node-2", "node-2"]


def test_servers_that_must_be_together_leave_a_host_where_their_writes_may_still_arrive() -> None:
    driver = SchedulerDriver()
    writes = [only(ef.WriteAllocation, driver.accept(claim, 5)) for claim in two_claims_for_one_host(driver)]
    # given two writes that Placement does not answer in time, and may carry out later
    for write in writes:
        driver.deleted(only(ef.DeleteAllocation, driver.unanswered(write)))
    # then what the servers may still get there is no member of their group
    assert [claim.node for claim in claims_in(driver.wait(0.1))] == ["node-2", "node-2"]


def test_servers_that_must_be_together_leave_a_host_that_has_room_for_some_of_them() -> None:
    # given a host that is selected first, and has room for one according to Placement
    others = {"other": Consumer({"node-1": {"VCPU": 3}}, True)}
    driver = SchedulerDriver().with_agents("node-1", consumers=others).with_agents("node-2", free_mb=7000)
    effects = driver.ask(request("a", "b", group=TOGETHER)) + driver.wait(0.1)
    assert [claim.node for claim in claims_in(effects)] == ["node-1", "node-2", "node-2"]
    assert releases_in(effects) == [claims_in(effects)[0].claim_id]


def test_servers_that_must_be_together_have_no_host_if_none_has_room_for_all() -> None:
    # given many hosts, each of which has room for one of two servers
    driver = SchedulerDriver().with_agents(*(f"node-{number}" for number in range(20)), vcpus=1)
    effects = driver.ask(request("a", "b", group=TOGETHER, queries=())) + driver.wait(0.1)
    # then no host is claimed beside the first one, because all of them would be left again
    (claim,) = claims_in(effects)
    assert releases_in(effects) == [claim.claim_id]
    # and the reason is that of the one that had no host
    (fail,) = of_kind(ef.Fail, effects)
    assert "no_room:VCPU: 1" in fail.text
    driver.idle()


def test_servers_that_must_be_together_go_past_hosts_that_have_room_for_some_of_them() -> None:
    # given hosts that are better and have room for one of two servers, and the last one with room for both
    driver = SchedulerDriver().with_agents("node-last", free_mb=7000)
    for node in (f"node-{number}" for number in range(20)):
        driver.with_agents(node, consumers={f"other-{node}": Consumer({node: {"VCPU": 3}}, True)})
    effects = driver.ask(request("a", "b", group=TOGETHER)) + driver.wait(0.1)
    assert [claim.node for claim in claims_in(effects)][1:] == ["node-last", "node-last"]


def test_servers_that_must_be_together_leave_for_a_host_that_takes_no_claim_at_present() -> None:
    # given a host with as many claims in flight as a host may have, and another one
    driver = SchedulerDriver(claims_per_node_max=2).with_agents("node-2")
    others = claims_in(driver.ask(request("x", "y", request_id="req-others")))
    driver.with_agents("node-1")
    first, second = claims_in(driver.ask(request("a", "b", group=TOGETHER, queries=())))
    assert first.node == second.node == "node-1"
    # when the other one refuses one of two servers
    assert not of_kind(ef.Fail, driver.refuse(second, "topology"))
    # then they wait for the first one, as each of them would alone
    effects = driver.accept(first) + driver.wait(0.1)
    effects += [effect for claim in others for effect in driver.refuse(claim, "topology")]
    assert [claim.node for claim in claims_in(effects) if claim.consumer in "ab"] == ["node-2", "node-2"]


def test_servers_that_must_be_together_may_take_different_forms_on_a_host() -> None:
    # given a host that is selected first and has one CPU, and one with a pinned and another one
    forms = tuple(PlacementForm({name: 1, "MEMORY_MB": 1024}) for name in ("PCPU", "VCPU"))
    driver = SchedulerDriver().with_agents("node-1", **with_cpus("node-1", "VCPU"))
    driver.with_agents("node-2", free_mb=7000, **with_cpus("node-2", "VCPU", "PCPU"))
    first, *both = claims_in(driver.ask(request("a", "b", group=TOGETHER, forms=forms, queries=())) + driver.wait(0.1))
    # then one server gets each of them
    assert (first.node, [claim.node for claim in both]) == ("node-1", ["node-2", "node-2"])
    assert [{*claim.allocations["node-2"]} - {"MEMORY_MB"} for claim in both] == [{"PCPU"}, {"VCPU"}]


def with_cpus(node: str, *classes: str) -> dict[str, Any]:
    """The provider of a node with one CPU of each of these classes."""
    inventories = {name: [1, 0, 1, 1, 1, 1.0] for name in classes} | {"MEMORY_MB": [8192, 0, 1, 8192, 1, 1.0]}
    facts = {"name": node, "parent": None, "generation": 1, "inventories": inventories}
    return {f"rp.{node}": {**facts, "traits": [], "aggregates": []}}


def filled(node: str) -> dict[str, Consumer]:
    """Servers that leave room for one."""
    return {f"other-{node}": Consumer({node: {"VCPU": 3}}, True)}


def test_placement_is_asked_before_servers_fail_because_the_table_has_no_room_for_all_of_them() -> None:
    # given a host that refuses one of two servers for good, and one that has room for one according to the table
    driver = SchedulerDriver().with_agents("node-1").with_agents("node-2", free_mb=7000, consumers=filled("node-2"))
    first, second = claims_in(driver.ask(request("a", "b", group=TOGETHER)))
    # then its row may be old
    ask = only(ef.AskFitting, driver.refuse(second, "not_authoritative"))
    assert first.node == second.node == "node-1"

    # when Placement names it, and its agent has room for both
    effects = driver.give(ev.FittingAnswered(ask.ask_id, frozenset({"node-2"}), cause=ask.cause))
    assert resyncs_in(effects) == ["node-2"]
    effects = driver.hear(snapshot("node-2", sequence=2, free_mb=7000))
    (again,) = claims_in(effects)
    effects = driver.refuse(again, "not_authoritative") + driver.wait(0.1)
    # then both are placed there
    assert [claim.node for claim in claims_in(effects)] == ["node-2", "node-2"]


def test_placement_is_asked_before_servers_fail_that_have_passed_a_host_without_room_for_all() -> None:
    # given two hosts that refuse one of two servers for good, and a host between them with room for one
    driver = SchedulerDriver().with_agents("node-1").with_agents("node-3", free_mb=7000)
    driver.with_agents("node-2", free_mb=7500, consumers=filled("node-2"))
    first, second = claims_in(driver.ask(request("a", "b", group=TOGETHER)))
    effects = driver.refuse(second, "not_authoritative") + driver.wait(0.1)
    # when both are refused
    third, fourth = claims_in(effects)
    assert [claim.node for claim in (first, second, third, fourth)] == ["node-1", "node-1", "node-3", "node-3"]
    # then the row of the one between them may be old
    only(ef.AskFitting, driver.refuse(fourth, "not_authoritative"))


def test_servers_stay_where_the_conductor_knows_their_group() -> None:
    driver = SchedulerDriver().with_agents("node-1", vcpus=1).with_agents("node-2", free_mb=7000)
    group = Group("group", "affinity", frozenset({"a", "b", "c"}), frozenset({"host-1"}))
    effects = driver.ask(request("a", "b", group=group, queries=()))
    assert [claim.node for claim in claims_in(effects)] == ["node-1"]
    assert [fail.code for fail in of_kind(ef.Fail, effects)] == [ef.FailureCode.NO_VALID_HOST]


# -- writes that were not sent


def test_a_write_that_was_not_sent_while_another_server_is_rechecked_is_sent_later() -> None:
    # given two servers, one of which finds no host, so that Placement is asked
    driver = SchedulerDriver().with_agents("node-1", "node-2", vcpus=1)
    first, second = claims_in(driver.ask(request("a", "b")))
    write = only(ef.WriteAllocation, driver.accept(first))
    ask = of_kind(ef.AskFitting, driver.refuse(second))[0]
    # when the write of the other one is not sent, because Placement does not keep up
    assert not of_kind(ef.Fail, driver.written(write, ev.WriteCode.NEVER_SENT))
    # then the request goes on when Placement has named hosts
    driver.give(ev.FittingAnswered(ask.ask_id, frozenset({second.node}), cause=ask.cause))
    effects = driver.wait(6.0)
    assert {claim.consumer for claim in claims_in(effects)} == {"a", "b"}


def test_a_last_attempt_that_no_placement_served_while_another_server_is_rechecked_is_not_the_fault_of_hosts() -> None:
    # given two servers and one slot: the first one is being written with its last attempt, and Placement is asked where
    # the second one fits
    driver = SchedulerDriver(attempts_max=1).with_agents("node-1", vcpus=1)
    effects = driver.ask(request("a", "b"))
    (ask,) = of_kind(ef.AskFitting, effects)
    (claim,) = claims_in(effects)
    write = only(ef.WriteAllocation, driver.accept(claim))

    # when no Placement serves that write, and then one names the host
    assert not of_kind(ef.Fail, driver.written(write, ev.WriteCode.NOT_SERVED))
    effects = driver.give(ev.FittingAnswered(ask.ask_id, frozenset({"node-1"}), cause=ask.cause))

    # then the caller hears of Placement, and not that hosts were tried
    (fail,) = of_kind(ef.Fail, effects + driver.wait(6.0))
    assert fail.code is ef.FailureCode.PLACEMENT_UNREACHABLE
    driver.idle()


# -- questions whose answers are not used


def named(driver: SchedulerDriver, asked: ef.AskCandidates) -> list[ef.Effect]:
    """Placement names its candidate on the node."""
    found = ev.Candidate(taken(asked.node), {"": (asked.node,)})
    return driver.give(ev.CandidatesAnswered(asked.ask_id, (found,), cause=asked.cause))


def test_a_server_that_is_decided_again_before_it_was_tried_has_all_its_attempts() -> None:
    driver = SchedulerDriver(attempts_max=12).with_agents(*(f"node-{number}" for number in range(30)))
    group = Group("group", "anti-affinity", frozenset({"a", "b", "c", "d"}))
    asked = of_kind(ef.AskCandidates, driver.ask(request("a", "b", "c", "d", group=group, root_only=False)))
    claims = list[Claim]()
    for _ in range(3):  # the last one is asked for
        effects = named(driver, asked.pop())
        asked, claims = of_kind(ef.AskCandidates, effects), claims + claims_in(effects)
    # given one for which Placement is asked again and again, because others are refused meanwhile
    for _ in range(15):
        asked += of_kind(ef.AskCandidates, driver.refuse(claims.pop(0), "topology"))
        assert named(driver, asked.pop(0)) == []
        effects = named(driver, asked.pop(0))
        asked, claims = of_kind(ef.AskCandidates, effects), claims + claims_in(effects)
    # then it has its attempts still, because no host was tried for it
    assert [claim.consumer for claim in claims_in(named(driver, asked.pop()))] == ["d"]
