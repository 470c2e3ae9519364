# SPDX-License-Identifier: Apache-2.0
"""An accepted claim is released, possibly because Placement refused it with newer data."""

from __future__ import annotations

from compute_agent import events as ev
from compute_agent.effects import ReadAllocations, ReadTree
from shared_scheduler.protocol.messages import Release, Verdict
from tests.unit.compute_agent.core_node import SCHEDULER, Node, said
from tests.unit.compute_agent.node_facts import NODE, claim, report, root


def test_a_release_makes_the_agent_read_its_allocations() -> None:
    # given an allocation that somebody wrote without telling us
    node = Node(vcpus=1)
    node.start()
    node.pass_s(2)
    node.allocations["uninvited"] = {NODE: {"VCPU": 1}}

    # when a claim that we accepted is taken back, as Placement refused it
    accepted = said(node.send(claim("c1")), Verdict)[0]
    node.send(Release("c1", NODE, SCHEDULER, "instance-of-c1"))
    node.pass_s(1)
    again = said(node.send(claim("c2")), Verdict)[0]

    # then the next one is refused at once
    assert accepted.accepted and not again.accepted


def test_a_release_makes_the_agent_read_its_inventories() -> None:
    # given an operator who took from the node in Placement
    node = Node(vcpus=1)
    node.start()
    node.pass_s(2)
    node.tree = (root(0),)

    # when a claim that we accepted is taken back, as Placement refused it
    accepted = said(node.send(claim("c1")), Verdict)[0]
    node.send(Release("c1", NODE, SCHEDULER, "instance-of-c1"))
    node.pass_s(1)
    again = said(node.send(claim("c2")), Verdict)[0]

    # then the next one is refused at once
    assert accepted.accepted and not again.accepted


def test_the_release_of_a_claim_that_was_never_written_reads_nothing() -> None:
    # given a node that was read a moment ago
    node = Node(vcpus=1)
    node.start()
    node.pass_s(2)
    node.done.clear()

    # when a claim that we accepted is released before Placement was asked, because our verdict came too late
    node.send(claim("c1"))
    node.send(Release("c1", NODE, SCHEDULER, "instance-of-c1", never_written=True))
    node.pass_s(2)

    # then its room is free, and there is no reason to read Placement
    assert said(node.send(claim("c2")), Verdict)[0].accepted
    assert not [effect for effect in node.done if isinstance(effect, (ReadTree, ReadAllocations))]


def test_consecutive_releases_cost_one_read_a_second() -> None:
    node = Node(vcpus=1)
    node.start()
    node.pass_s(2)
    node.done.clear()

    for number in range(50):  # in five seconds
        consumer = f"instance-of-c{number}"
        node.send(claim(f"c{number}"), Release(f"c{number}", NODE, SCHEDULER, consumer))
        node.pass_s(0.1)

    for kind in (ReadTree, ReadAllocations):
        assert len([read for read in node.done if isinstance(read, kind)]) <= 6


def test_allocations_older_than_the_first_report_of_nova_compute_are_checked_until_they_are_gone() -> None:
    # given an allocation that a scheduler wrote while no agent spoke, read before nova-compute was heard
    node = Node(vcpus=1)
    node.allocations["of-nobody"] = {NODE: {"VCPU": 1}}
    node.tell(ev.ChannelChanged(True), ev.Tick())
    node.pass_s(1)
    node.tell(ev.TrackerConnected("tap"), report())

    # when it is taken back, and nobody tells the agent
    node.pass_s(1)
    del node.allocations["of-nobody"]
    node.pass_s(5)

    # then its room is free long before the poll
    assert said(node.send(claim("c1")), Verdict)[0].accepted
