# SPDX-License-Identifier: Apache-2.0
"""A node that has gone for good, and what late messages of its agent do."""

from __future__ import annotations

from shared_scheduler.core.claim_state import ClaimState
from shared_scheduler.core.events import MessagesArrived
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.retirement import Retirement
from shared_scheduler.sim.workload import Workload
from shared_scheduler.sim.world import Sizes, World
from shared_scheduler.table.row import Freshness
from tests.unit.sim.single_requests import ask_for


def test_a_late_snapshot_begins_the_row_again_that_nobody_selects_and_without_the_claims_that_are_open() -> None:
    # given a claim that its agent has accepted and Placement, which is down, does not have
    world = World(1, Sizes(nodes=3, schedulers=1), Workload(rate_per_s=1e-9), NetworkFaults())
    world.checkers.rows_every = 1
    world.run(3.0)
    core = world.schedulers[0].core
    world.set_placement(False)
    ask_for(world)
    world.run(0.1)
    (claim,) = core.claims.open()
    node = world.nodes[claim.intent.node]
    assert node.agent is not None
    _, late = node.agent.publisher.pipe.take_snapshot(node.clock.now)
    # when the node goes, and then a snapshot arrives that was on its way
    node.kill_agent()
    Retirement(world, node).begin()
    world.run(1.5)
    assert node.node not in core.table
    world.schedulers[0].feed(MessagesArrived(node.cell, (late,)))
    # then the row is not selected, and the claim, which ends by its own evidence, is not counted in it
    assert claim.state is ClaimState.WRITING
    assert core.table.freshness(node.node) is Freshness.STALE
    assert core.table.outstanding(node.node) == ()
    # and the next read of the database removes it
    world.set_placement(True)
    world.run(10.0)
    assert node.node not in core.table
    assert world.checkers.violations == []
