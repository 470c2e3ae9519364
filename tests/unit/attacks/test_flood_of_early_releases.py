# SPDX-License-Identifier: Apache-2.0
"""Releases and claims of one sender fill the memory of the agent, so that it forgets what another one has said."""

from __future__ import annotations

import pytest

from compute_agent.agent_settings import MAX_EARLY_RELEASES, MAX_RECENT_VERDICTS
from shared_scheduler.protocol.messages import Release, Verdict
from tests.unit.compute_agent.core_node import SCHEDULER, Node, said
from tests.unit.compute_agent.node_facts import NODE, claim

EVIL = "ssched.scheduler.evil"


def test_a_release_that_overtook_its_claim_is_remembered_during_a_flood() -> None:
    # given a release that has arrived before its claim
    node = Node(vcpus=4)
    node.start()
    node.send(Release("c1", NODE, SCHEDULER, "vm-1"))

    # when another sender releases claims that nobody has cast
    node.send(*(Release(f"junk-{number}", NODE, EVIL, "vm-9") for number in range(2 * MAX_EARLY_RELEASES)))

    # then the claim is refused, because nobody waits for it
    (verdict,) = said(node.send(claim("c1", "vm-1", vcpus=4)), Verdict)
    assert not verdict.accepted
    assert verdict.reason is not None and verdict.reason.code == "released"


def test_a_repeated_claim_gets_its_verdict_during_a_flood() -> None:
    # given a claim that was accepted, and ended by its release
    node = Node(vcpus=4)
    node.start()
    node.send(claim("c1", "vm-1", vcpus=4))
    node.send(Release("c1", NODE, SCHEDULER, "vm-1"))

    # when another sender casts claims that are refused, and the first claim arrives again
    junk = (claim(f"junk-{number}", "vm-9", vcpus=5, scheduler=EVIL) for number in range(2 * MAX_RECENT_VERDICTS))
    node.send(*junk)
    node.send(claim("c1", "vm-1", vcpus=4))

    # then it does not begin again
    assert node.core.ledger.claims() == {}


@pytest.mark.parametrize(("scheduler", "consumer"), [(EVIL, "vm-1"), (SCHEDULER, "vm-2")])
def test_a_claim_is_not_refused_because_of_a_release_that_is_not_its_own(scheduler: str, consumer: str) -> None:
    """The ids of the next claims of a scheduler can be guessed from those that its nodes publish."""
    node = Node(vcpus=4)
    node.start()

    node.send(Release("c1", NODE, scheduler, consumer))

    (verdict,) = said(node.send(claim("c1", "vm-1", vcpus=4)), Verdict)
    assert verdict.accepted


def test_a_claim_gets_no_verdict_of_another_scheduler() -> None:
    node = Node(vcpus=4)
    node.start()
    node.send(claim("c1", "vm-9", vcpus=5, scheduler=EVIL))
    node.send(claim("c2", "vm-9", scheduler=EVIL))

    verdicts = said(node.send(claim("c1", "vm-1"), claim("c2", "vm-2")), Verdict)

    assert [one.accepted for one in verdicts] == [True, False], "the first id is free, the second is pending"
    assert node.core.ledger.claims() == {"c1": "vm-1", "c2": "vm-9"}
