# SPDX-License-Identifier: Apache-2.0
"""The broker delivers each request to two schedulers, while Placement is slow and schedulers freeze.

Both write for one server.  The writes of one of them have no answer in time, and are carried out later, or never.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared_scheduler.core.events import MessagesArrived
from shared_scheduler.protocol.messages import Increment
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.run import drawn, run
from shared_scheduler.sim.workload import Workload
from shared_scheduler.sim.world import Sizes, World
from tests.unit.sim.single_requests import ask_for

ALLOCATIONS = {"node-1": {"VCPU": 1}}
DEADLINE_S = 100.0
KINDS = ("requests_twice", "placement_slow", "scheduler_freezes")


@pytest.mark.parametrize("seed", [37, 42, 49])
def test_a_server_keeps_the_allocations_of_the_host_that_was_answered(seed: int) -> None:
    world = run(replace(drawn(seed), fault_every_s=0.7, fault_kinds=KINDS, swarm=False))
    assert world.counters["ended_twice"] > 0
    assert world.checkers.violations == []


@pytest.mark.parametrize(("others", "broken"), [(frozenset(), True), (frozenset({"another"}), False)])
def test_a_server_may_be_missing_when_the_claim_of_another_scheduler_for_it_has_ended(
    others: frozenset[str], broken: bool
) -> None:
    # given a server that was answered and is not built yet, and another scheduler that may have claimed its node too
    world = World(1, Sizes(nodes=1, schedulers=1, build_queue_s=60.0), Workload(rate_per_s=1e-9), NetworkFaults())
    world.checkers.rows_every = 1
    (node,), scheduler = world.nodes.values(), world.schedulers[0]
    world.run(5.0)
    server = ask_for(world).servers[0]
    world.run(2.0)
    server.twins = others
    # when the agent reports that nothing of this server is pending, before it has read Placement again
    epoch, sequence = scheduler.core.table.version(node.node)
    gone = Increment(node.node, epoch, sequence + 1, consumers={server.uuid: None})
    scheduler.feed(MessagesArrived(node.cell, (gone,)))
    # then only the claim of another scheduler explains that
    assert any("was promised" in str(one) for one in world.checkers.violations) == broken
