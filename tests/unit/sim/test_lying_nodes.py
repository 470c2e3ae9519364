# SPDX-License-Identifier: Apache-2.0
"""A stolen compute node accepts claims that nobody has accepted, by its own increments."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared_scheduler.sim.run import drawn, run

#: in each, a false increment beyond a gap had left the row of the node stale until its agent had something to tell
ONCE_BROKEN = (22, 45, 51)


@pytest.mark.parametrize("seed", ONCE_BROKEN)
def test_it_harms_nobody_else_and_itself_no_longer_than_it_lies(seed: int) -> None:
    world = run(replace(drawn(seed), fault_every_s=2.0, fault_kinds=("node_lies",), swarm=False))
    assert world.counters["lies_by_increments"] > 0
    assert world.checkers.violations == []
