# SPDX-License-Identifier: Apache-2.0
"""The agent counts the members of server groups, and remembers them."""

from __future__ import annotations

from typing import Any

from compute_agent import events as ev
from compute_agent.effects import Keep
from compute_agent.group_ledger import GroupLedger
from shared_scheduler.decision.request import LABEL_POLICY
from shared_scheduler.protocol.messages import Claim, ClaimGroup, Increment, RefusalCode, Snapshot, Verdict
from tests.unit.compute_agent.core_node import Node, report, said
from tests.unit.compute_agent.node_facts import claim

HARD, SOFT = "anti-affinity", "soft-anti-affinity"


def of_group(claim_id: str, consumer: str, policy: str = HARD, **changes: Any) -> Claim:
    return claim(claim_id, consumer, group=ClaimGroup("group", policy, **changes))


def refusal(ledger: GroupLedger, asked: Claim, *present: str) -> str:
    reason = ledger.judge(asked, set(present), set())
    return "" if reason is None else reason.code


def test_a_member_that_the_claim_names_and_one_that_was_accepted_are_counted() -> None:
    ledger = GroupLedger({"vm-1": "group", "vm-9": "another"})
    asked = of_group("c1", "vm-3", max_server_per_host=2, members=("vm-2", "vm-7"))

    assert refusal(ledger, asked, "vm-1", "vm-9") == ""
    assert refusal(ledger, asked, "vm-1", "vm-2") == RefusalCode.GROUP_FULL


def test_stored_members_that_are_not_here_are_not_counted() -> None:
    assert refusal(GroupLedger({"vm-1": "group"}), of_group("c1", "vm-2")) == ""


def test_a_move_on_the_same_node_passes() -> None:
    ledger = GroupLedger({"vm-1": "group", "vm-2": "group"})

    assert ledger.judge(of_group("c1", "vm-1"), {"vm-1", "vm-2"}, {"vm-1", "vm-2"}) is None


def test_a_soft_claim_is_refused_only_where_more_are_here_than_were_seen() -> None:
    ledger = GroupLedger({"vm-1": "group"})

    assert refusal(ledger, of_group("c1", "vm-2", SOFT, seen=0), "vm-1") == RefusalCode.GROUP_CHANGED
    assert refusal(ledger, of_group("c1", "vm-2", SOFT, seen=1), "vm-1") == ""
    assert refusal(ledger, of_group("c1", "vm-2", SOFT, seen=None), "vm-1") == ""


def test_a_label_is_recorded_and_never_refuses_a_claim() -> None:
    # given three servers of a label on the node
    ledger = GroupLedger({"vm-1": "label", "vm-2": "label", "vm-3": "label"})
    asked = claim("c1", "vm-4", group=ClaimGroup("label", LABEL_POLICY, seen=0))
    # when another one is claimed, then it passes and is remembered as one of them
    assert refusal(ledger, asked, "vm-1", "vm-2", "vm-3") == ""
    ledger.learn(asked, {"vm-1", "vm-2", "vm-3"})
    assert ledger.known["vm-4"] == "label"


def test_the_reason_names_the_members_on_the_node() -> None:
    reason = GroupLedger({"vm-1": "group"}).judge(of_group("c1", "vm-2"), {"vm-1"}, set())

    assert reason is not None
    assert reason.detail == {
        "group": "group", "policy": HARD, "members_on_node": ["vm-1"], "max_server_per_host": 1,
    }  # fmt: skip


def test_the_second_of_two_racing_members_is_refused() -> None:
    node = Node(vcpus=4)
    node.start()

    first, second = (said(node.send(of_group(f"c{n}", f"vm-{n}")), Verdict)[0] for n in (1, 2))

    assert first.accepted
    assert second.reason is not None and second.reason.code == RefusalCode.GROUP_FULL


def test_the_groups_of_accepted_consumers_and_of_present_members_are_published() -> None:
    node = Node(vcpus=4)
    node.start()
    node.tell(report(members={"vm-1": ev.Member()}, vcpus=4))

    effects = node.send(of_group("c2", "vm-2", "affinity", members=("vm-1",))) + node.pass_s(1)

    told = {uuid: one.group for say in said(effects, Increment) for uuid, one in say.consumers.items() if one}
    assert told == {"vm-1": "group", "vm-2": "group"}


def test_a_restarted_agent_knows_the_groups_of_claims_and_of_instances() -> None:
    # given a pending claim, and one that nova-compute has taken over
    first = Node(vcpus=4)
    first.start()
    first.send(of_group("c1", "vm-1", max_server_per_host=3))
    effects = first.tell(report(members={"vm-1": ev.Member()}, vcpus=4))
    effects += first.send(of_group("c2", "vm-2", max_server_per_host=3))
    kept = [one for one in effects if isinstance(one, Keep)][-1]
    # when the agent starts again, and hears from nova-compute
    second = Node(kept.claims, vcpus=4, groups=kept.groups)
    effects = second.start(report(members={"vm-1": ev.Member()}, vcpus=4))
    # then it tells and counts both
    assert {uuid: one.group for uuid, one in said(effects, Snapshot)[0].consumers.items()} == {
        "vm-1": "group", "vm-2": "group",
    }  # fmt: skip
    refused = said(second.send(of_group("c3", "vm-3", max_server_per_host=2)), Verdict)[0].reason
    assert refused is not None and refused.detail["members_on_node"] == ["vm-1", "vm-2"]


def test_a_member_that_may_come_back_is_counted() -> None:
    # given a member that has left the node by a resize, which is not confirmed
    node = Node(vcpus=4)
    effects = node.start(report(members={"vm-1": ev.Member(instance=False, migration="move-1")}, vcpus=4))
    # then every scheduler is told that it is one, and another member is refused
    assert said(effects, Snapshot)[0].consumers["vm-1"].member
    refused = said(node.send(of_group("c2", "vm-2", members=("vm-1",))), Verdict)[0].reason
    assert refused is not None and refused.code == RefusalCode.GROUP_FULL


def test_groups_of_consumers_that_left_the_node_are_forgotten() -> None:
    node = Node(vcpus=4)
    node.start()
    node.send(of_group("c1", "vm-1"))
    node.tell(report(members={"vm-1": ev.Member()}, vcpus=4))

    effects = node.tell(report(vcpus=4)) + node.pass_s(60)

    assert [one.groups for one in effects if isinstance(one, Keep)][-1:] == [{}]
