# SPDX-License-Identifier: Apache-2.0
"""Demos without a screen."""

from __future__ import annotations

from shared_scheduler.sim.exhibition import DemoPlan, Exhibition
from shared_scheduler.sim.world import World


def run_demo(plan: DemoPlan, lines: int = 0) -> World:
    """Run a complete demo.  The checkers of the world hold the violations."""
    world = plan.world(lines=lines)
    Exhibition(world, plan.duration_s).run()
    return world
