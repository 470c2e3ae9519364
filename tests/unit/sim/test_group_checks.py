# SPDX-License-Identifier: Apache-2.0
"""The violations that the check of server groups reports, and the cases that it accepts."""

from __future__ import annotations

import pytest

from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.protocol.messages import Claim, GroupPolicy, Usage, Verdict
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.nodes import SimNode
from shared_scheduler.sim.workload import FLAVORS, SentRequest, Server, ServerGroup, Workload, make_request
from shared_scheduler.sim.world import Sizes, World

FIRST, SECOND = "server-1-0", "server-1-1"


@pytest.fixture
def world() -> World:
    """A quiet cloud, and a request for two members of one group that shall rather be apart."""
    made = World(1, Sizes(nodes=1, schedulers=1), Workload(rate_per_s=0.001), NetworkFaults(), SchedulerSettings())
    made.run(1.0)
    request = make_request(1, FLAVORS[0], 2, True, "", 0)
    group = ServerGroup("group-1", GroupPolicy.SOFT_ANTI_AFFINITY, 1, [FIRST, SECOND])
    servers = tuple(Server(uuid, request.request_id, request.usage, group=group) for uuid in group.members)
    made.users.servers.update({server.uuid: server for server in servers})
    sent = SentRequest(request, made.schedulers[0].name, made.now, made.now + 20.0, servers)
    made.users.asked[request.request_id] = sent
    return made


def node_of(world: World) -> SimNode:
    return next(iter(world.nodes.values()))


def claim(world: World, consumer: str) -> Claim:
    node, scheduler = node_of(world).node, world.schedulers[0].name
    return Claim(f"claim-{consumer}", node, scheduler, consumer, {node: {"VCPU": 1}}, Usage(), "", 1, 1)


def choose(world: World, consumer: str) -> None:
    """The scheduler chooses the node for a member: it counts the claim in its table, and casts it after the step."""
    table, group = world.schedulers[0].core.table, world.users.servers[consumer].group
    assert group is not None
    table.assume(node_of(world).node, f"claim-{consumer}", consumer, {}, Usage(), group=group.uuid)


def give_up(world: World, consumer: str) -> None:
    world.schedulers[0].core.table.forget(f"claim-{consumer}")


def cast(world: World, consumer: str) -> None:
    world.checkers.cast(world.schedulers[0], claim(world, consumer))


def accept_second(world: World) -> None:
    """The agent accepts the second member beside the first."""
    node, second = node_of(world), claim(world, SECOND)
    verdict = Verdict(second.claim_id, node.node, 1, True, None, 1)
    world.checkers.groups.judged(node, verdict, second, [FIRST, SECOND])


def violations(world: World) -> list[str]:
    return [one.name for one in world.checkers.violations]


def test_a_member_that_was_chosen_in_the_same_step_was_seen(world: World) -> None:
    # given both members chosen in one step, which also gives the first one up: the table does not have it any more
    choose(world, FIRST)
    choose(world, SECOND)
    give_up(world, FIRST)
    cast(world, FIRST)
    cast(world, SECOND)

    # when the agent, which has not heard of the release, accepts the second one beside the first
    accept_second(world)

    # then the decision has seen the first one
    assert violations(world) == []


def test_a_member_that_the_step_of_the_decision_gives_up_was_seen(world: World) -> None:
    # given a first member whose claim was cast long ago, and a step that chooses for the second and then gives it up
    choose(world, FIRST)
    cast(world, FIRST)
    world.run(0.001)
    choose(world, SECOND)
    give_up(world, FIRST)
    cast(world, SECOND)

    # when the agent accepts the second one before it hears of the release
    accept_second(world)

    # then the decision has seen the first one
    assert violations(world) == []


def test_a_member_that_the_decision_did_not_see_is_a_violation(world: World) -> None:
    choose(world, FIRST)
    give_up(world, FIRST)
    choose(world, SECOND)
    cast(world, SECOND)
    accept_second(world)
    assert violations(world) == ["soft_anti_affinity"]
