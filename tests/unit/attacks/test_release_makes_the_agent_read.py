# SPDX-License-Identifier: Apache-2.0
"""Somebody releases a consumer that the node holds again and again: not every release may cost a read of Placement."""

from __future__ import annotations

from compute_agent.effects import ReadAllocations
from shared_scheduler.protocol.messages import Release
from tests.unit.compute_agent.core_node import SCHEDULER, Node
from tests.unit.compute_agent.node_facts import NODE

RELEASES = 500
PERIOD_S = 0.02


def test_reads_are_as_far_apart_as_after_one_release() -> None:
    # given a node that holds a server
    node = Node()
    node.allocations["vm-1"] = {NODE: {"VCPU": 1}}
    node.start()
    node.pass_s(60)
    before = len(node.done)

    # when it is released 50 times a second, for 10 seconds
    for number in range(RELEASES):
        node.send(Release(f"forged-{number}", NODE, SCHEDULER, "vm-1"))
        node.pass_s(PERIOD_S)

    # then Placement is read about once a second
    reads = [one for one in node.done[before:] if isinstance(one, ReadAllocations)]
    attacked_s = RELEASES * PERIOD_S
    assert attacked_s / 2 <= len(reads) <= 2 * attacked_s
