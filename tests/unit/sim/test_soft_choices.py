# SPDX-License-Identifier: Apache-2.0
"""The cases that the check of the hosts of members of soft groups accepts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared_scheduler.core.claim_state import ClaimState
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.decision.request import Group
from shared_scheduler.protocol.messages import GroupPolicy, Usage
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.workload import FLAVORS, SentRequest, Server, ServerGroup, Workload, make_request
from shared_scheduler.sim.world import Sizes, World

NEW, OTHER = "server-1-0", "other"


@pytest.fixture
def world() -> World:
    """Three nodes whose agents have answered within milliseconds, and do not hear anything from now on."""
    made = World(1, Sizes(nodes=3, schedulers=1), Workload(rate_per_s=0.001), NetworkFaults(), SchedulerSettings())
    made.run(1.0)
    for node in made.nodes.values():
        made.schedulers[0].core.agent_casts.limit.answered(node.node, 0.005)
        made.network.cut(node.address, sending=False)
    return made


def ask_for_member(world: World, policy: GroupPolicy = GroupPolicy.SOFT_AFFINITY) -> None:
    """A request for a member of a group, whose candidates only Placement can name."""
    request = make_request(1, FLAVORS[0], 1, False, "", 0)
    request = replace(request, group=Group("group-1", policy, frozenset({NEW, OTHER})))
    group = ServerGroup("group-1", policy, 1, [NEW, OTHER])
    servers = {uuid: Server(uuid, request.request_id, request.usage, group=group) for uuid in group.members}
    world.users.servers.update(servers)
    asked = SentRequest(request, world.schedulers[0].name, world.now, world.now + 20.0, (servers[NEW],))
    world.users.asked[request.request_id] = asked
    world.schedulers[0].ask(request, asked.deadline_s)


def run_until_left(world: World) -> tuple[str, str]:
    """The node whose agent was late, and the one that was chosen for it a moment ago."""
    core = world.schedulers[0].core
    while not core.claims.endings[ClaimState.LATE] and world.now < 2.0:
        world.run(0.001)
    (state,) = core.requests.under_way()
    (instance,) = state.instances
    assert core.claims.begun == 1
    return instance.late[0], instance.asked


def come_to(world: World, node: str) -> None:
    """The scheduler sees the other member on a node."""
    world.schedulers[0].core.table.assume(node, "claim-other", OTHER, {}, Usage(), group="group-1")


def claimed(world: World) -> str:
    """The node that is claimed for the new member."""
    (claim,) = world.schedulers[0].core.claims.open()
    return claim.intent.node


@pytest.mark.parametrize("policy", [GroupPolicy.SOFT_AFFINITY, GroupPolicy.SOFT_ANTI_AFFINITY])
def test_a_member_that_comes_to_a_late_agent_when_it_was_left_is_no_reason_to_wait(
    world: World, policy: GroupPolicy
) -> None:
    # given a member that leaves a late agent for a host with as many members
    ask_for_member(world, policy)
    late, chosen = run_until_left(world)
    # when another member comes to that agent while Placement names the candidates of the next host
    come_to(world, late)
    world.run(0.01)
    # then the next host is right
    assert claimed(world) == chosen != late
    assert world.checkers.violations == []


def test_a_late_agent_is_asked_once_more_if_another_member_comes_to_it(world: World) -> None:
    # given a member that leaves a late agent for a host which is full, as only Placement knows
    ask_for_member(world)
    late, full = run_until_left(world)
    world.placement.end_write(world.placement.begin_write("filler", {full: {"MEMORY_MB": 65_536}}))
    # when another member comes to that agent meanwhile
    come_to(world, late)
    world.run(0.02)
    # then the third host is no better
    assert claimed(world) == late
    # and it is taken when the agent has been waited for
    world.run(1.0)
    assert claimed(world) not in {late, full}
    assert world.checkers.violations == []
