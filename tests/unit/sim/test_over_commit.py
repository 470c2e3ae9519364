# SPDX-License-Identifier: Apache-2.0
"""Cases that only Placement decides: two schedulers that race for the last unit of a node without an agent, or of one
whose agent one of them does not hear (doc/source/admin/placement.rst).  And servers that come to a node without a
claim: they are not counted as an earlier claim that its agent has accepted."""

from __future__ import annotations

from shared_scheduler.core.effects import Answer
from shared_scheduler.protocol.messages import Claim, Release
from shared_scheduler.sim.computes import Size
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.nodes import SimNode
from shared_scheduler.sim.run import drawn, run
from shared_scheduler.sim.workload import FLAVORS, SentRequest, Server, ServerState, Workload
from shared_scheduler.sim.world import Sizes, World
from shared_scheduler.table.row import Freshness
from tests.unit.sim.single_requests import ask_for

#: the calls of both schedulers overlap
PLACEMENT_S = 0.2
#: more than all calls of the other scheduler
SLOW_S = 3.0
SILENT_S = 60.0
#: less than the time until the deadline of a write
AWAY_S = 3.0
#: messages have arrived after it
MOMENT_S = 0.02


def race(retries_inside: bool) -> tuple[World, list[SentRequest]]:
    """A write that the agent has judged begins before that of a scheduler that does not hear the agent, and ends after
    that one was checked.  ``retries_inside``: allocation_conflict_retry_count is not 1."""
    sizes = Sizes(nodes=1, schedulers=2, size=Size(disk_gb=FLAVORS[0].root_gb), placement_s=PLACEMENT_S)
    world = World(1, sizes, Workload(rate_per_s=1e-6, lifetime_s=1e6, build_fails=0.0), NetworkFaults())
    world.placement.races = retries_inside
    world.run(5.0)
    hears, deaf = world.schedulers
    world.network.cut(world.schedulers[deaf].name)
    world.run(SILENT_S)
    (node,) = world.nodes
    assert [one.core.table.freshness(node) for one in world.schedulers.values()] == [
        Freshness.FRESH, Freshness.PROVISIONAL,
    ]  # fmt: skip
    world.slow_placement(SLOW_S)
    judged = ask_for(world, scheduler=hears)
    while not world.placement.records:
        world.run(MOMENT_S)
    world.slow_placement(0.0)
    asked = [judged, ask_for(world, scheduler=deaf)]
    world.run(20.0)
    return world, asked


def race_without_an_agent() -> tuple[World, list[SentRequest]]:
    """Both schedulers are asked at the same moment, and Placement carries both writes out."""
    sizes = Sizes(nodes=1, schedulers=2, agentless=1.0, size=Size(disk_gb=FLAVORS[0].root_gb), placement_s=PLACEMENT_S)
    world = World(1, sizes, Workload(rate_per_s=1e-6, lifetime_s=1e6, build_fails=0.0), NetworkFaults())
    world.run(5.0)
    asked = [ask_for(world, scheduler=number) for number in world.schedulers]
    while over(world) == [{}]:
        world.run(MOMENT_S)
    return world, asked


def over(world: World) -> list[dict[str, int]]:
    return [world.placement.over_commit(node) for node in world.nodes]


def test_a_placement_that_retries_inside_over_commits_a_node_that_has_an_agent() -> None:
    world, asked = race(retries_inside=True)
    assert [isinstance(one.outcome, Answer) for one in asked] == [True, True]
    assert over(world) == [{"DISK_GB": FLAVORS[0].root_gb}]


def test_a_placement_that_answers_the_race_with_a_conflict_does_not() -> None:
    world, asked = race(retries_inside=False)
    assert sorted(isinstance(one.outcome, Answer) for one in asked) == [False, True]
    assert over(world) == [{}]


def test_racers_that_no_agent_judges_take_back_what_is_too_much() -> None:
    world, asked = race_without_an_agent()
    world.run(20.0)
    assert sorted(isinstance(one.outcome, Answer) for one in asked) == [False, True]
    assert over(world) == [{}]
    assert world.checkers.violations == []


def test_racers_take_back_what_is_too_much_although_placement_is_away_for_a_moment() -> None:
    # given two writes that over-commit a node
    world, _ = race_without_an_agent()

    # when Placement is away before either of them is checked
    world.set_placement(False)
    world.run(AWAY_S)
    world.set_placement(True)
    world.run(20.0)

    # then they are checked as soon as it is back
    assert over(world) == [{}]


def test_what_is_written_without_an_agent_is_not_counted_as_an_earlier_claim_of_its_server() -> None:
    # a server is placed directly on a node whose agent had accepted a claim for it that was released since
    world = run(drawn(51226))
    assert world.checkers.violations == []


def cast_late(world: World, server: Server, node: SimNode) -> tuple[Claim, Release]:
    """A claim and its release, which the scheduler has cast, and of which the agent of the node hears later."""
    scheduler, wanted = world.schedulers[0], {node.node: {"DISK_GB": FLAVORS[0].root_gb}}
    claim = Claim("late", node.node, scheduler.name, server.uuid, wanted, server.usage, "", node.kept_epoch)
    release = Release(claim.claim_id, node.node, scheduler.name, server.uuid)
    world.sent(scheduler, claim)
    world.sent(scheduler, release)
    return claim, release


def test_what_comes_by_force_is_not_counted_as_an_earlier_claim_that_arrives_late() -> None:
    # given two nodes with room for one server each, and a server on one of them that was claimed for the other before
    sizes = Sizes(nodes=2, schedulers=1, cells=1, size=Size(disk_gb=FLAVORS[0].root_gb))
    world = World(1, sizes, Workload(rate_per_s=1e-6, build_fails=0.0, migrations_per_s=0.1), NetworkFaults())
    world.run(5.0)
    (server,) = ask_for(world).servers
    run_until(world, server, ServerState.LIVES)
    (other,) = (node for node in world.nodes.values() if node.node != server.node)
    late = cast_late(world, server, other)

    # when an operator moves it there by force, Placement goes away, so that the agent does not see this, and the agent
    # hears of the claim and its release
    run_until(world, server, ServerState.MOVES)
    world.set_placement(False)
    for message in late:
        world.network.cast(message.scheduler, other.address, message)
        world.run(MOMENT_S)
    assert other.agent is not None
    assert other.agent.ledger.used() == {}

    # then it may accept another claim, which cannot be written
    asked = ask_for(world)
    world.run(MOMENT_S)
    assert other.agent.ledger.awaits(asked.servers[0].uuid)
    assert world.checkers.violations == []


def run_until(world: World, server: Server, state: ServerState) -> None:
    while server.state is not state:
        world.run(MOMENT_S)
