# SPDX-License-Identifier: Apache-2.0
"""An attacker who has read a claim's id releases the claim, so that its resources are allocated twice."""

from __future__ import annotations

import pytest

from shared_scheduler.protocol.messages import Release, Verdict
from tests.unit.compute_agent.core_node import SCHEDULER, Node, said
from tests.unit.compute_agent.node_facts import NODE, claim


@pytest.mark.parametrize(("scheduler", "consumer"), [("ssched.scheduler.evil", "vm-1"), (SCHEDULER, "vm-2")])
def test_the_claim_stays(scheduler: str, consumer: str) -> None:
    # given a claim that fills the node
    node = Node(vcpus=4)
    node.start()
    node.send(claim("c1", "vm-1", vcpus=4))

    # when its release names another scheduler or another server
    node.send(Release("c1", NODE, scheduler, consumer))

    # then it counts
    (verdict,) = said(node.send(claim("c2", "vm-2")), Verdict)
    assert not verdict.accepted
    # and ends by a release of its own
    node.send(Release("c1", NODE, SCHEDULER, "vm-1"))
    assert node.core.ledger.claims() == {}
