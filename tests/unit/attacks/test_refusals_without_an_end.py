# SPDX-License-Identifier: Apache-2.0
"""A host that looks best refuses each claim for a reason that is no fault of a host, or asks to be tried again."""

from __future__ import annotations

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.decision.request import Group, Request
from shared_scheduler.protocol.messages import Claim, RefusalCode
from tests.unit.core.scheduler_driver import SchedulerDriver, claims_in, of_kind, request

EVIL, OTHER = "node-1", "node-2"
SOFT = Group("group", "soft-anti-affinity", frozenset({"server-1", "server-5"}))


def cloud() -> SchedulerDriver:
    return SchedulerDriver(refusals_max=3).with_agents(EVIL, vcpus=16).with_agents(OTHER, vcpus=16, free_mb=8000)


def tried(driver: SchedulerDriver, code: RefusalCode, asked: Request) -> list[str]:
    """The hosts that were tried for a request; the evil one refuses."""
    effects, nodes = driver.ask(asked), list[str]()
    while claims := claims_in(effects):
        claim: Claim = claims[0]
        nodes.append(claim.node)
        effects = driver.refuse(claim, code) if claim.node == EVIL else driver.accept(claim)
    assert not of_kind(ef.Fail, effects)
    for write in of_kind(ef.WriteAllocation, effects):
        driver.written(write)
    return nodes


@pytest.mark.parametrize("asked", [request(), request(group=SOFT)])
def test_a_host_is_not_tried_again_and_again(asked: Request) -> None:
    nodes = tried(cloud(), RefusalCode.GROUP_CHANGED, asked)

    assert nodes[-1] == OTHER
    assert len(nodes) <= 3


@pytest.mark.parametrize("code", [one for one in RefusalCode if one is not RefusalCode.TOO_MANY_CLAIMS])
def test_a_host_that_always_refuses_is_tried_last(code: RefusalCode) -> None:
    driver = cloud()
    first = [tried(driver, code, request(f"server-{number}"))[0] for number in range(4)]

    assert first[0] == EVIL
    assert first[-1] == OTHER
