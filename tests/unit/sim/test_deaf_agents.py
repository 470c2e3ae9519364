# SPDX-License-Identifier: Apache-2.0
"""An agent that hears nothing, or stands still, while its node stays in the table."""

from __future__ import annotations

import pytest

from shared_scheduler.core.effects import Answer
from shared_scheduler.sim.computes import Size
from shared_scheduler.sim.faults import Faults
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.workload import FLAVORS, Workload
from shared_scheduler.sim.world import Sizes, World

#: what such an agent may cost a request
EXTRA_S = 0.2


@pytest.mark.parametrize("fault", ["deaf_node", pytest.param("agent_freezes", marks=pytest.mark.long)])
def test_such_an_agent_costs_no_request_more_than_200_ms(fault: str) -> None:
    # given four nodes with room for all, whose agents have answered claims
    workload = Workload(
        10.0, lifetime_s=2.0, several=0.0, not_root_only=0.0, build_fails=0.0, asks_again=0.0, flavors=FLAVORS[:1]
    )
    size = Size(vcpus=256, memory_mb=1_048_576, disk_gb=32_000)
    world = World(1, Sizes(nodes=4, schedulers=2, size=size), workload, NetworkFaults())
    world.run(10.0)
    usual_s = max(one.ended_s - one.asked_s for one in world.users.asked.values() if one.outcome)
    # when one of them gets the fault for ten seconds
    Faults(world, world.rng("faults")).plan(fault, 11.0, 10.0)
    world.run(15.0)
    # then every request of this time is answered, nearly as quickly as before
    asked = [one for one in world.users.asked.values() if 11.0 <= one.asked_s < 21.0]
    assert all(isinstance(one.outcome, Answer) for one in asked)
    slowest_s = max(one.ended_s - one.asked_s for one in asked)
    assert 0.15 < slowest_s <= usual_s + EXTRA_S
    # and nothing is over-committed or placed twice
    assert not world.checkers.violations
