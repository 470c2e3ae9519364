# SPDX-License-Identifier: Apache-2.0
"""Runs several schedulers and a few hundred simulated nodes in this process.

Real scheduler and agent cores exchange real, encoded messages on an in-process channel; nova-compute
and Placement are simulated.  A few nodes are cut off and connected again, and a scheduler is killed and
restarted.  At the end the requests stop, the world comes to rest, and every table is compared with the
simulated nodes.  The demo runs in real time: --duration seconds, and a few more for that comparison.

The times called "in memory" are measured; everything else depends on the arguments only.  The summary
ends with a command that runs the same demo again.  The exit code is 1 if an invariant was violated.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from shared_scheduler.cmd.live_view import LiveView
from shared_scheduler.cmd.swarm import rare_collections
from shared_scheduler.cmd.world_arguments import (
    add_network_faults,
    add_run,
    add_size,
    add_workload,
    seed_of,
    with_trace,
    write_trace,
)
from shared_scheduler.sim.agenda import DETAILED_LINES
from shared_scheduler.sim.exhibition import FRAMES_PER_S, DemoPlan, Exhibition
from shared_scheduler.sim.report import as_text, report
from shared_scheduler.sim.world import World


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_size(parser, nodes_max=5_000, schedulers_max=16)
    add_workload(parser, rate_max=1_000)
    add_network_faults(parser, loss_max=0.5)
    add_run(parser, "write the events, message by message, to FILE")
    parser.add_argument(
        "--fast",
        action="store_true",
        help="run as fast as possible instead of in real time; --format json implies it",
    )
    usual = DemoPlan(seed=0)
    parser.set_defaults(
        nodes=usual.nodes,
        schedulers=usual.schedulers,
        duration=usual.duration_s,
        rate=usual.rate_per_s,
        loss=usual.loss,
    )


def plan_of(args: argparse.Namespace) -> DemoPlan:
    """The plan that the arguments describe."""
    return DemoPlan(seed_of(args), args.nodes, args.schedulers, args.duration, args.rate, args.loss)


def run(args: argparse.Namespace) -> int:
    """Run the demo and print its summary.  Returns the exit code."""
    plan, text = plan_of(args), args.format == "text"
    world = plan.world(time.perf_counter, DETAILED_LINES if args.trace else 0)
    exhibition = Exhibition(world, plan.duration_s)
    view = LiveView(world, exhibition, plan.duration_s, sys.stdout, text)
    pace = Pace() if text and not args.fast else None

    def show() -> None:
        view.show()
        if pace is not None:
            pace.wait()

    with rare_collections():
        try:
            exhibition.run(show)
        finally:
            view.close()
    if args.trace:
        write_trace(args.trace, plan, world)
    _summary(plan, world, exhibition, text)
    return 1 if world.checkers.violations else 0


class Pace:
    """Keeps virtual time from running ahead of real time.  On a slow machine virtual time falls behind."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._frames = 0

    def wait(self) -> None:
        """Sleep until the next frame is due."""
        self._frames += 1
        ahead_s = self._began_s + self._frames / FRAMES_PER_S - time.monotonic()
        if ahead_s > 0:
            time.sleep(ahead_s)


def _summary(plan: DemoPlan, world: World, exhibition: Exhibition, text: bool) -> None:
    figures: dict[str, Any] = report(world)
    figures["faults"] = list(exhibition.story)
    if not text:
        print(json.dumps(figures, indent=2))
        return
    for name in ("checks", "windows"):
        figures.pop(name)
    print(as_text(figures))
    broken = len(world.checkers.violations)
    checks = sum(world.checkers.checked.values())
    print(f"\n{checks:,} checks of invariants, {broken} broken.  The same again, with a trace:")
    print(f"  {with_trace(plan.command())}")
