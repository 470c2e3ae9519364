# SPDX-License-Identifier: Apache-2.0
"""An agent that has lost its memory while its clock was set back, and a late message of the run that it forgot."""

from __future__ import annotations

from shared_scheduler.sim.run import drawn, run

#: the time between two heartbeats of this world
HEARTBEAT_S = 2.0


def test_a_scheduler_follows_a_forgotten_run_until_the_agent_is_heard_again() -> None:
    # given a scheduler that follows an agent in an older epoch, when a snapshot of its forgotten run arrives
    plan = drawn(51209)
    assert plan.sizes.heartbeat_interval_s == HEARTBEAT_S
    world = run(plan)
    lines = [line.partition(" ")[::2] for line in world.trace.lines()]
    # then the agent is asked to exceed that, soon after it has begun again, and long before it seems silent
    (begun_s,) = (float(at_s) for at_s, what in lines if what == "node-00003 agent starts, epoch 999832000")
    (goes_on_s,) = (float(at_s) for at_s, what in lines if what.startswith("node-00003 agent goes on in epoch"))
    assert begun_s < goes_on_s < begun_s + HEARTBEAT_S
    assert world.checkers.violations == []
