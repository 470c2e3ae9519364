# SPDX-License-Identifier: Apache-2.0
"""A compromised host says that the members of a server group run on it, so that new ones join them there."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core.events import GroupAnswered
from shared_scheduler.decision.request import Group
from shared_scheduler.protocol.messages import Consumer
from tests.unit.core.scheduler_driver import SchedulerDriver, only, only_claim, request, taken

TRUE, LIAR, MEMBER = "node-1", "node-2", "server-5"


def test_placement_is_asked_where_they_are() -> None:
    # given a member of an affinity group, and a host with more room that says that it has this member
    driver = SchedulerDriver().with_agents(TRUE, free_mb=2048, consumers={MEMBER: Consumer(taken(TRUE), True, "group")})
    driver.with_agents(LIAR, consumers={MEMBER: Consumer(taken(LIAR), True, "group")})
    group = Group("group", "affinity", frozenset({MEMBER, "server-9"}), frozenset({"host-1"}))
    claim = only_claim(driver.ask(request("server-9", group=group)))
    assert claim.node == LIAR

    ask = only(ef.AskGroup, driver.written(only(ef.WriteAllocation, driver.accept(claim))))

    assert MEMBER not in ask.known
    answer = GroupAnswered(ask.ask_id, {MEMBER: frozenset({TRUE})}, cause=ask.cause)
    only(ef.DeleteAllocation, driver.give(answer))
