# SPDX-License-Identifier: Apache-2.0
"""Several schedulers and a few hundred simulated nodes at work in this process.

Real scheduler and agent cores exchange real, encoded messages on an in-process channel; nova-compute
and Placement are simulated, at the pace of real time.  On the way some nodes are cut off and come
back, and a scheduler is killed and restarted.  The times called "in memory" are measured.
Ends by itself with a summary; exit code 1 when an invariant was broken.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from shared_scheduler.cmd.live_view import LiveView
from shared_scheduler.cmd.worlds import add_habits, add_run, add_size, add_weather, seed_of
from shared_scheduler.core.settings import Settings
from shared_scheduler.sim.exhibition import Exhibition
from shared_scheduler.sim.network import Weather
from shared_scheduler.sim.report import as_text, report
from shared_scheduler.sim.workload import Habits
from shared_scheduler.sim.world import Sizes, World

FRAMES_PER_S = 10
#: short times, so that everything is to be seen within seconds
BEAT_S = 1.0
SETTINGS = Settings(
    verdict_timeout_s=1.0,
    claim_repeat_s=0.2,
    silent_after_s=3.5,
    silent_after_timeout_s=2.0,
    hello_interval_s=1.0,
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_size(parser, nodes_max=5_000, schedulers_max=16)
    add_habits(parser, rate_max=1_000)
    add_weather(parser, loss_max=0.5)
    add_run(parser)
    parser.set_defaults(nodes=300, schedulers=4, duration=20.0, rate=40.0, loss=0.01)


def run(args: argparse.Namespace) -> int:
    """Show it."""
    world = World(
        seed_of(args),
        Sizes(nodes=args.nodes, schedulers=args.schedulers, beat_interval_s=BEAT_S),
        Habits(rate_per_s=args.rate, lifetime_s=15.0),
        Weather(loss=args.loss, duplicates=args.loss, late=args.loss, late_max_s=0.2),
        SETTINGS,
        time.perf_counter,
    )
    exhibition = Exhibition(world, args.duration)
    view = LiveView(world, exhibition, args.duration, sys.stdout, args.format == "text")
    try:
        _play(world, exhibition, view, args.duration)
        exhibition.end()
    finally:
        view.close()
    _summary(world, exhibition, args)
    return 1 if world.checkers.violations else 0


def _play(world: World, exhibition: Exhibition, view: LiveView, duration_s: float) -> None:
    """Let virtual time follow real time, frame by frame; a slow machine sees it slowed down."""
    began_s = time.monotonic()
    for frame in range(1, int(duration_s * FRAMES_PER_S) + 1):
        world.run(1 / FRAMES_PER_S)
        exhibition.look()
        view.show()
        ahead_s = began_s + frame / FRAMES_PER_S - time.monotonic()
        if ahead_s > 0:
            time.sleep(ahead_s)


def _summary(world: World, exhibition: Exhibition, args: argparse.Namespace) -> None:
    figures: dict[str, Any] = report(world)
    figures["faults"] = list(exhibition.story)
    if args.format == "json":
        print(json.dumps(figures, indent=2))
        return
    for name in ("checks", "windows", "trace"):
        figures.pop(name)
    print(as_text(figures))
    broken = len(world.checkers.violations)
    checks = sum(world.checkers.checked.values())
    print(f"\n{checks:,} checks of invariants, {broken} broken.  The same again, with a trace:")
    print(
        f"  shared-scheduler-manage simulate --seed {world.seed} --nodes {args.nodes}"
        f" --schedulers {args.schedulers} --rate {args.rate:g} --loss {args.loss:g}"
    )
