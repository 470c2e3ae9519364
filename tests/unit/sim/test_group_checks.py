# SPDX-License-Identifier: Apache-2.0
"""The violations that the check of server groups reports, and the cases that it accepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from shared_scheduler.core.effects import Answer, Choice, Fail, FailureCode
from shared_scheduler.core.request_state import NO_VERDICT
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.core.spread_check import SPREAD_TOO_FAR
from shared_scheduler.decision.record import Attempt, DecisionRecord
from shared_scheduler.decision.request import LABEL_POLICY, Destination
from shared_scheduler.protocol.messages import Claim, GroupPolicy, Reason, Release, Usage, Verdict
from shared_scheduler.sim.group_checks import YIELDED
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.nodes import SimNode
from shared_scheduler.sim.workload import FLAVORS, SentRequest, Server, ServerGroup, ServerState, Workload, make_request
from shared_scheduler.sim.world import Sizes, World

FIRST, SECOND = "server-1-0", "server-1-1"


@pytest.fixture
def world() -> World:
    """A quiet cloud, and a request for two members of one group that shall rather be apart."""
    return quiet_world(1, GroupPolicy.SOFT_ANTI_AFFINITY)


def quiet_world(nodes: int, policy: GroupPolicy) -> World:
    """A quiet cloud of so many nodes, and a request for two members of one group."""
    made = World(1, Sizes(nodes=nodes, schedulers=1), Workload(rate_per_s=0.001), NetworkFaults(), SchedulerSettings())
    made.run(1.0)
    request = make_request(1, FLAVORS[0], 2, True, "", 0)
    group = ServerGroup("group-1", policy, 1, [FIRST, SECOND])
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


def accept_second(world: World, beside: tuple[str, ...] = (FIRST,)) -> None:
    """The agent accepts the second member beside the first."""
    node, second = node_of(world), claim(world, SECOND)
    verdict = Verdict(second.claim_id, node.node, 1, True, None, 1)
    world.checkers.groups.judged(node, verdict, second, [*beside, SECOND])


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


def test_a_claim_that_arrives_again_after_another_member_is_not_judged_again(world: World) -> None:
    # given a member that an empty node accepted
    choose(world, SECOND)
    accept_second(world, beside=())
    # when the first member comes there, and then the claim of the second one once more
    accept_second(world, beside=(FIRST,))
    # then the agent repeats its verdict, which was true
    assert violations(world) == []


def test_a_member_that_the_decision_did_not_see_is_a_violation(world: World) -> None:
    choose(world, FIRST)
    give_up(world, FIRST)
    choose(world, SECOND)
    cast(world, SECOND)
    accept_second(world)
    assert violations(world) == ["soft_anti_affinity"]


def go_to(world: World, consumer: str, node: SimNode) -> SentRequest:
    """The scheduler chooses this node for a member, and knows no other one."""
    scheduler, server = world.schedulers[0], world.users.servers[consumer]
    request = replace(world.users.asked["req-1"].request, request_id=f"req-{consumer}", instance_uuids=(consumer,))
    asked = SentRequest(request, scheduler.name, world.now, world.now + 20.0, (server,))
    world.users.asked[request.request_id], server.request_id = asked, request.request_id
    scheduler.core.table.assume(node.node, f"claim-{consumer}", consumer, {}, Usage())
    give_up(world, consumer)
    choice = Choice(node.node, node.host, node.node, node.cell, None)
    asked.outcome = Answer(request, ((choice,),), DecisionRecord(request.request_id, {}))
    return asked


def answer(world: World, asked: SentRequest) -> None:
    assert isinstance(asked.outcome, Answer)
    world.checkers.groups.answered(world.schedulers[0], asked, asked.outcome)


def build(world: World, consumer: str, node: SimNode) -> None:
    server = world.users.servers[consumer]
    write = world.placement.begin_write(consumer, {node.node: {"VCPU": 1}})
    world.placement.end_write(write)
    node.build(consumer, server.usage, "", False, lambda _built: None)
    server.state, server.node, world.living[consumer] = ServerState.LIVES, node.node, server


@pytest.fixture
def soft() -> World:
    """A cloud of two nodes, with a member that rather has others beside it, and was built on the first one."""
    world = quiet_world(2, GroupPolicy.SOFT_AFFINITY)
    node = node_of(world)
    answer(world, go_to(world, FIRST, node))
    build(world, FIRST, node)
    return world


def second_of(world: World) -> SimNode:
    return [*world.nodes.values()][1]


def test_a_member_that_goes_elsewhere_than_a_built_one_is_a_violation(soft: World) -> None:
    answer(soft, go_to(soft, SECOND, second_of(soft)))
    assert violations(soft) == ["soft_affinity"]


def follow_a_claim(world: World) -> SentRequest:
    """The first member is claimed on the first node, and the second one goes there."""
    world.schedulers[0].core.table.assume(node_of(world).node, f"claim-{FIRST}", FIRST, {}, Usage())
    asked = go_to(world, SECOND, node_of(world))
    give_up(world, FIRST)
    return asked


def test_a_member_that_follows_a_claim_that_is_given_up_is_a_violation() -> None:
    # given a member that goes where the other one is claimed, which is answered on another node then
    world = quiet_world(2, GroupPolicy.SOFT_AFFINITY)
    second = follow_a_claim(world)
    answer(world, go_to(world, FIRST, second_of(world)))
    # when it is answered nevertheless
    answer(world, second)
    assert violations(world) == ["soft_affinity"]


def yielded(world: World) -> SentRequest:
    """The second member has yielded to the first one, and no host passed there."""
    asked = go_to(world, SECOND, second_of(world))
    scheduler, node = world.schedulers[0], second_of(world)
    scheduler.ask(asked.request, asked.deadline_s)
    (state,) = scheduler.core.requests.under_way()
    state.check.yields = 1
    attempts = (Attempt(SECOND, node.node, node.host, YIELDED, {}, 1, 1),)
    assert isinstance(asked.outcome, Answer)
    asked.outcome = replace(asked.outcome, record=replace(asked.outcome.record, attempts=attempts))
    return asked


def leave_late(world: World, node: SimNode) -> None:
    """The agent of the node is late for the second member."""
    (state,) = world.schedulers[0].core.requests.under_way()
    state.instances[0].late.append(node.node)
    state.instances[0].out[node.node] = Reason(NO_VERDICT)


def claim_again(world: World, number: int, node: SimNode) -> None:
    """The scheduler claims a node for the second member."""
    world.schedulers[0].core.table.assume(node.node, f"claim-{number}", SECOND, {}, Usage())


def test_a_host_that_was_passed_over_after_a_yield_because_its_agent_was_late_before_is_a_violation(
    soft: World,
) -> None:
    # given a member that has left the host of the other one, because the agent was late, and yields to it
    asked = yielded(soft)
    leave_late(soft, node_of(soft))
    # when it goes elsewhere without a claim for that host
    claim_again(soft, 2, second_of(soft))
    answer(soft, asked)
    assert violations(soft) == ["soft_affinity"]


def test_a_host_that_was_claimed_after_a_yield_was_tried_although_its_agent_was_late(soft: World) -> None:
    # given a member that has yielded, and found no room beside the other one
    asked = yielded(soft)
    # when that host has room after all, and is claimed, and its agent is late
    claim_again(soft, 2, node_of(soft))
    leave_late(soft, node_of(soft))
    # then the next host is right
    claim_again(soft, 3, second_of(soft))
    answer(soft, asked)
    assert violations(soft) == []


def test_a_member_that_begins_to_leave_is_nowhere(soft: World) -> None:
    # given a member whose move has no answer yet
    assert soft.scheduled_moves.begin(Random(1))
    # when another one goes elsewhere, where the first one may follow, and not where it cannot return to
    answer(soft, go_to(soft, SECOND, second_of(soft)))
    # then it is right there
    assert violations(soft) == []


def test_a_member_whose_move_fails_was_nowhere_until_then(soft: World) -> None:
    # given a member that begins to leave while another one is on its way elsewhere
    asked = go_to(soft, SECOND, second_of(soft))
    assert soft.scheduled_moves.begin(Random(1))
    # when the move fails just before the other one is answered
    (move,) = (one.moved for one in soft.users.asked.values() if one.moved is not None)
    move(None)
    answer(soft, asked)
    # then that one is right there, but one that is asked for later is not
    assert violations(soft) == []
    soft.run(0.001)
    answer(soft, go_to(soft, SECOND, second_of(soft)))
    assert violations(soft) == ["soft_affinity"]


# -- servers with a label


@pytest.fixture
def labelled(soft: World) -> World:
    """A server with a label that was built on the first node, and two racks of one node."""
    group = soft.users.servers[FIRST].group
    assert group is not None
    group.policy, group.label, group.max_skew = LABEL_POLICY, "label", 1
    return soft


def test_a_second_server_in_a_rack_beside_an_empty_one_is_a_violation(labelled: World) -> None:
    answer(labelled, go_to(labelled, SECOND, node_of(labelled)))
    assert violations(labelled) == ["spread"]


def test_a_server_that_moves_is_judged_without_its_old_place(labelled: World) -> None:
    answer(labelled, go_to(labelled, FIRST, second_of(labelled)))
    assert violations(labelled) == []


def test_a_server_whose_move_has_no_host_yet_is_in_no_rack(labelled: World) -> None:
    # given a server that is asked for while another one with its label has no host for its move
    assert labelled.scheduled_moves.begin(Random(1))
    asked = go_to(labelled, SECOND, node_of(labelled))
    # when the move fails before that one is answered, then it is right there
    (move,) = (one.moved for one in labelled.users.asked.values() if one.moved is not None)
    move(None)
    labelled.run(0.5)
    answer(labelled, asked)
    assert violations(labelled) == []
    # but one that is asked for later is not
    answer(labelled, go_to(labelled, SECOND, node_of(labelled)))
    assert violations(labelled) == ["spread"]


def test_a_rack_of_another_cell_may_stay_empty_beside_a_server_that_moves(labelled: World) -> None:
    # given a server that moves to the rack of another one, while a rack is empty
    node = node_of(labelled)
    asked = go_to(labelled, SECOND, node)
    asked.request = replace(asked.request, destination=Destination(cell=node.cell))
    answer(labelled, asked)
    assert violations(labelled) == ["spread"]
    # when the empty rack is in another cell, to which it cannot move, then that is right
    labelled.checkers.violations.clear()
    second_of(labelled).cell = "another"
    answer(labelled, asked)
    assert violations(labelled) == []


def test_a_request_that_fails_although_it_tried_one_rack_only_is_a_violation(labelled: World) -> None:
    rack, other = node_of(labelled).node, second_of(labelled).node
    give_up_after(labelled, [rack] * 7 + [other])
    assert violations(labelled) == []
    give_up_after(labelled, [rack] * 8)
    assert violations(labelled) == ["goes_on"]


def test_a_server_that_waited_for_others_in_vain_was_not_placed_too_far(labelled: World) -> None:
    rack = node_of(labelled).node
    give_up_after(labelled, [rack] * 7, waited=[rack])
    assert violations(labelled) == []


def give_up_after(world: World, nodes: list[str], waited: Sequence[str] = ()) -> None:
    """A request fails because it has yielded on each of these nodes; on the last ones, it had waited for others."""
    request = world.users.asked["req-1"].request
    found = [*((node, [{"key": "rack"}]) for node in nodes), *((node, []) for node in waited)]
    attempts = tuple(
        Attempt(FIRST, node, node, SPREAD_TOO_FAR, {"constraints": broken}, 1, 1) for node, broken in found
    )
    record = DecisionRecord(request.request_id, {}, (), attempts, (), "", "", {})
    failure = Fail(request, FailureCode.GROUP_UNSETTLED, "", record, request)
    world.checkers.groups.failed(world.schedulers[0], failure)


def accept(world: World, consumer: str, claim_id: str) -> None:
    node = node_of(world)
    accepted = replace(claim(world, consumer), claim_id=claim_id)
    world.checkers.groups.judged(node, Verdict(claim_id, node.node, 1, True, None, 1), accepted, [consumer])


def test_an_agent_that_forgot_a_member_again_with_the_claim_that_told_it_breaks_nothing(world: World) -> None:
    # given an agent that has lost its memory, with a first member whose late write will still place it there
    accept(world, FIRST, "claim-1")
    world.checkers.groups.agent_forgot(node_of(world), [FIRST])
    # and which hears of this member by a second claim, and forgets it with that one
    accept(world, FIRST, "claim-2")
    world.checkers.groups.released(Release("claim-2", node_of(world).node, "agent", FIRST))
    # when it accepts the second member without a word
    choose(world, SECOND)
    accept_second(world)
    # then it cannot know better
    assert violations(world) == []


def test_an_agent_that_was_told_of_a_member_again_knows_it(world: World) -> None:
    # given an agent that has lost its memory, and was told of the first member by a further claim that is not released
    world.checkers.groups.agent_forgot(node_of(world), [FIRST])
    accept(world, FIRST, "claim-2")
    # when it accepts the second member without a word, and the decision has not seen the first one
    choose(world, SECOND)
    accept_second(world)
    # then it knew better
    assert violations(world) == ["soft_anti_affinity"]
