# SPDX-License-Identifier: Apache-2.0
"""An attacker who has read a claim's id releases the claim, so that its resources are allocated twice."""

from __future__ import annotations

from shared_scheduler.protocol.messages import Release, Verdict
from tests.unit.compute_agent.core_node import SCHEDULER, Node, said
from tests.unit.compute_agent.worlds import NODE, claim


def test_the_claim_stays() -> None:
    # given a claim that fills the node
    node = Node(vcpus=4)
    node.start()
    node.send(claim("c1", "vm-1", vcpus=4))

    # when its release names another server
    node.send(Release("c1", NODE, "ssched.scheduler.evil", "vm-2"))

    # then it counts
    (verdict,) = said(node.send(claim("c2", "vm-2")), Verdict)
    assert not verdict.accepted
    # and ends by a release of its own
    node.send(Release("c1", NODE, SCHEDULER, "vm-1"))
    assert node.core.ledger.claims() == {}
