# SPDX-License-Identifier: Apache-2.0
"""The broker delivers each request to two schedulers, while Placement is slow and schedulers freeze.

Both write for one server.  The writes of one of them have no answer in time, and are carried out later, or never.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared_scheduler.sim.run import drawn, run

ALLOCATIONS = {"node-1": {"VCPU": 1}}
DEADLINE_S = 100.0
KINDS = ("requests_twice", "placement_slow", "scheduler_freezes")


@pytest.mark.parametrize("seed", [37, 42, 49])
def test_a_server_keeps_the_allocations_of_the_host_that_was_answered(seed: int) -> None:
    world = run(replace(drawn(seed), fault_every_s=0.7, fault_kinds=KINDS, swarm=False))
    assert world.counters["ended_twice"] > 0
    assert world.checkers.violations == []
