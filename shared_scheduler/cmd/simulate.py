# SPDX-License-Identifier: Apache-2.0
"""Run the deterministic simulator: real scheduler and agent cores in a world with faults.

The same arguments give the same trace, byte for byte.  Without --seed, one is drawn and printed.
Exit code 1 when an invariant was broken; the last lines then say how to see it again.

examples:
  shared-scheduler-manage simulate --seed 7 --nodes 50 --schedulers 3 --loss 5% --fault-every 3
  shared-scheduler-manage simulate --seeds 300 --seed 1     many short worlds, parameters drawn
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from shared_scheduler.cmd.arguments import number, whole
from shared_scheduler.cmd.progress import Progress
from shared_scheduler.sim.network import Weather
from shared_scheduler.sim.report import as_text, report
from shared_scheduler.sim.run import RunPlan, drawn
from shared_scheduler.sim.run import run as run_plan
from shared_scheduler.sim.workload import Habits
from shared_scheduler.sim.world import Sizes, World


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--seed", type=whole(0, 2**63 - 1), help="decides everything")
    parser.add_argument(
        "--seeds",
        type=whole(1, 1_000_000),
        metavar="N",
        help="run N seeds from --seed on, sizes and faults drawn from each seed",
    )
    parser.add_argument("--nodes", type=whole(1, 20_000), default=50)
    parser.add_argument("--schedulers", type=whole(1, 64), default=3)
    parser.add_argument(
        "--rate",
        type=number(0.01, 10_000),
        default=20.0,
        metavar="PER_S",
        help="requests a second (default: %(default)s)",
    )
    parser.add_argument(
        "--lifetime",
        type=number(0.1, 100_000),
        default=60.0,
        metavar="S",
        help="how long an instance lives (default: %(default)s)",
    )
    parser.add_argument(
        "--duration",
        type=number(1, 1_000_000),
        default=60.0,
        metavar="S",
        help="virtual seconds (default: %(default)s)",
    )
    parser.add_argument("--loss", type=number(0, 1), default=0.0, metavar="PART", help="messages lost, 0.05 or 5%%")
    parser.add_argument("--duplicates", type=number(0, 1), default=0.0, metavar="PART")
    parser.add_argument(
        "--late",
        type=number(0, 1),
        default=0.0,
        metavar="PART",
        help="messages delayed by up to a second, so that others overtake them",
    )
    parser.add_argument("--agentless", type=number(0, 1), default=0.0, metavar="PART", help="nodes without an agent")
    parser.add_argument(
        "--fault-every",
        type=number(0, 100_000),
        default=0.0,
        metavar="S",
        help="about one fault (cut, crash, storm ...) each so many seconds",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--trace", metavar="FILE", help="write the last lines of the trace")


def plan_of(args: argparse.Namespace) -> RunPlan:
    """What the arguments ask for."""
    seed = args.seed if args.seed is not None else random.SystemRandom().getrandbits(32)
    return RunPlan(
        seed=seed,
        duration_s=args.duration,
        sizes=Sizes(nodes=args.nodes, schedulers=args.schedulers, agentless=args.agentless),
        habits=Habits(rate_per_s=args.rate, lifetime_s=args.lifetime),
        weather=Weather(loss=args.loss, duplicates=args.duplicates, late=args.late),
        fault_every_s=args.fault_every,
    )


def run(args: argparse.Namespace) -> int:
    """One world, or many."""
    return _many(args) if args.seeds else _one(args)


def _one(args: argparse.Namespace) -> int:
    plan = plan_of(args)
    began_s = time.monotonic()
    with Progress(f"seed {plan.seed}") as progress:
        world = run_plan(plan, progress.show)
    figures = report(world)
    wall_s = time.monotonic() - began_s
    figures["wall_s"] = round(wall_s, 2)
    figures["times_real_time"] = round(world.now / wall_s, 1)
    _print(figures, args.format)
    if args.trace:
        _write_trace(world, args.trace)
    if world.checkers.violations:
        print(f"\nan invariant is broken; see it again:\n  {plan.command()} --trace trace.txt", file=sys.stderr)
        return 1
    return 0


def _many(args: argparse.Namespace) -> int:
    first = args.seed if args.seed is not None else random.SystemRandom().getrandbits(32)
    total: Counter[str] = Counter()
    broken: dict[int, list[str]] = {}
    began_s = time.monotonic()
    with Progress(f"{args.seeds} seeds from {first}") as progress:
        for i in range(args.seeds):
            world = run_plan(drawn(first + i))
            total.update(seeds=1, checks=sum(world.checkers.checked.values()))
            total.update(requests=world.counters["requests"], virtual_s=int(world.now))
            if world.checkers.violations:
                broken[first + i] = [v.line() for v in world.checkers.violations[:3]]
            progress.show((i + 1) / args.seeds)
    figures: dict[str, Any] = {
        "first_seed": first,
        **total,
        "wall_s": round(time.monotonic() - began_s, 1),
        "broken_seeds": len(broken),
    }
    _print(figures, args.format)
    for seed, lines in broken.items():
        print(
            f"\nseed {seed}: shared-scheduler-manage simulate --seeds 1 --seed {seed}",
            *lines,
            sep="\n  ",
            file=sys.stderr,
        )
    return 1 if broken else 0


def _print(figures: dict[str, Any], how: str) -> None:
    print(json.dumps(figures, indent=2) if how == "json" else as_text(figures))


def _write_trace(world: World, name: str) -> None:
    Path(name).write_text("".join(f"{line}\n" for line in world.trace.lines()))
