# SPDX-License-Identifier: Apache-2.0
"""What an agent holds during and after moves of its instances, also if Placement answers late."""

from __future__ import annotations

from compute_agent import events as ev
from compute_agent.effects import ReadAllocations
from compute_agent.events import Member
from shared_scheduler.protocol.messages import Verdict
from tests.unit.compute_agent.core_node import Node, said
from tests.unit.compute_agent.node_facts import NODE, claim, report


def vcpus_of(node: Node) -> dict[str, int]:
    """Consumer -> VCPU, as the agent would publish them."""
    told = node.core.ledger.consumers()
    return {uuid: one.allocations.get(NODE, {}).get("VCPU", 0) for uuid, one in told.items()}


# -- late answers


def test_a_read_that_began_before_a_build_failed_does_not_end_the_watch() -> None:
    # given a read of Placement that takes long
    node = Node()
    node.start()
    node.pass_s(1.0)
    node.core.allocations.ask(node.now)
    effects = node.core.step(ev.Tick(), node.now)
    assert any(isinstance(one, ReadAllocations) for one in effects)
    began_s = node.now
    # when an instance is claimed, built and fails meanwhile
    node.now += 0.1
    assert said(node.core.step(ev.MessagesArrived((claim("c1", "vm-1"),), node.now), node.now), Verdict)[0].accepted
    node.now += 0.1
    node.core.step(report({"vm-1": Member()}), node.now)
    node.now += 0.1
    node.core.step(report({"vm-1": None}, complete=False), node.now)
    node.tell(ev.AllocationsRead({}, began_s))
    # and nova-compute needs a second to delete its allocation
    node.allocations = {"vm-1": {NODE: {"VCPU": 1, "MEMORY_MB": 256}}}
    node.pass_s(1.0)
    node.allocations = {}
    # then the agent sees it soon
    node.pass_s(5.0)
    assert vcpus_of(node) == {}


# -- moves that no claim has announced


def with_an_alternate_on_its_host() -> Node:
    """Another host has refused a resize, and nova-conductor has written an alternate, the host of the instance."""
    node = Node(vcpus=8)
    node.allocations = {"vm-1": {NODE: {"VCPU": 2}}}
    node.start(report({"vm-1": Member()}))
    node.pass_s(10.0)
    node.allocations = {"m-1": {NODE: {"VCPU": 2}}, "vm-1": {NODE: {"VCPU": 4}}}
    return node


def test_an_alternate_on_the_same_host_is_read_when_it_begins() -> None:
    # given a resize whose alternate is the host of the instance
    node = with_an_alternate_on_its_host()
    # when nova-compute begins it
    node.tell(ev.ClaimBegun("vm-1"))
    node.tell(report({"vm-1": Member(instance=True, migration="m-1")}, complete=False))
    # then both are counted
    node.pass_s(1.0)
    assert vcpus_of(node) == {"m-1": 2, "vm-1": 4}


def test_an_alternate_on_the_same_host_is_read_although_nova_compute_refuses_it() -> None:
    # given a resize whose alternate is the host of the instance
    node = with_an_alternate_on_its_host()
    # when nova-compute refuses it
    node.tell(ev.ClaimBegun("vm-1"), ev.ClaimRefused("vm-1", "resize_claim", "no"))
    # then both are counted until Nova has put the old allocation back
    node.pass_s(0.1)
    assert vcpus_of(node) == {"m-1": 2, "vm-1": 4}
    node.allocations = {"vm-1": {NODE: {"VCPU": 2}}}
    node.pass_s(5.0)
    assert vcpus_of(node) == {"vm-1": 2}


def test_the_allocation_of_a_move_is_read_when_the_source_counts_it() -> None:
    # given an instance
    node = Node()
    node.allocations = {"vm-1": {NODE: {"VCPU": 2}}}
    node.start(report({"vm-1": Member()}))
    node.pass_s(10.0)
    # when it leaves for another host, and its migration holds what it held
    node.allocations = {"m-1": {NODE: {"VCPU": 2}}}
    node.tell(report({"vm-1": Member(instance=True, migration="m-1")}, complete=False))
    # then the agent names the migration as the holder
    node.pass_s(1.0)
    assert vcpus_of(node) == {"m-1": 2, "vm-1": 0}


# -- moves to the same host that the tap has missed


def test_a_move_to_the_same_host_that_nobody_has_reported_ends_with_its_migration() -> None:
    # given a resize to the same host, which its migration shows in Placement
    node, here, asked = Node(vcpus=8), report({"vm-1": Member()}), claim("c1", "vm-1", vcpus=4)
    node.allocations = {"m-1": {NODE: {"VCPU": 2}}}
    node.start(here)
    node.pass_s(1.0)
    assert said(node.send(asked), Verdict)[0].accepted
    node.allocations |= {"vm-1": asked.allocations}
    node.pass_s(60.0)
    assert node.core.ledger.pending
    # when it begins and is confirmed while no report of nova-compute arrives
    node.tell(ev.TrackerLost("its socket closed"))
    node.pass_s(60.0)
    del node.allocations["m-1"]
    node.tell(ev.TrackerConnected("tap"), report({"vm-1": Member()}, vcpus_used=4))
    node.pass_s(180.0)
    # then it is counted once
    assert not node.core.ledger.pending
    assert node.core.ledger.leaves["cn.vcpus_used"] == 4


# -- live migrations, of which the tracker of the source tells nothing


def test_a_long_live_migration_frees_its_source_soon_after_it_has_ended() -> None:
    # given a live migration whose instance has been here for longer than the agent watches its migration
    node = Node()
    node.allocations = {"m-1": {NODE: {"VCPU": 2}}}
    node.start(report({"vm-1": Member()}))
    node.pass_s(600.0)
    # when the instance has left, and nova-compute needs a second to delete the allocation of the migration
    node.tell(report({"vm-1": None}, complete=False))
    node.pass_s(1.0)
    node.allocations = {}
    # then the agent sees it soon
    node.pass_s(5.0)
    assert vcpus_of(node) == {}


def test_a_failed_build_that_is_counted_until_the_audit_takes_no_claim_over() -> None:
    # given an instance that nova-compute counts until its next audit although its build has failed
    node, asked = Node(), claim("c1", "vm-1", vcpus=2)
    node.start(report({"vm-1": Member()}, vcpus_used=2))
    node.pass_s(1.0)
    # when it is claimed for the same node again, and waits in the queue of nova-compute
    assert said(node.send(asked), Verdict)[0].accepted
    node.allocations = {"vm-1": asked.allocations}
    node.pass_s(50.0)
    node.tell(report({"vm-1": None}, complete=False, vcpus_used=0))
    # then the claim is counted until nova-compute takes it over
    assert node.core.ledger.leaves["cn.vcpus_used"] == 2
    node.tell(report({"vm-1": Member()}, complete=False, vcpus_used=2))
    assert node.core.ledger.leaves["cn.vcpus_used"] == 2
