# SPDX-License-Identifier: Apache-2.0
"""Run the deterministic simulator: real scheduler and agent cores in a world with faults.

The same arguments give the same trace, byte for byte.  Without --seed, one is drawn and printed.
Exit code 1 when an invariant was broken; the last lines then say how to see it again.  --seeds that a
signal or a dead worker ends early sums up what was run, and exits with another code than 0.

examples:
  shared-scheduler-manage simulate --seed 7 --nodes 50 --schedulers 3 --loss 5% --fault-every 3
  shared-scheduler-manage simulate --seeds 20000 --seed 1   many short worlds, parameters drawn
  shared-scheduler-manage simulate --nodes 10000 --schedulers 8 --duration 20 --beat 15
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from pathlib import Path
from typing import Any

from shared_scheduler.cmd.arguments import Number, new_file, whole
from shared_scheduler.cmd.endings import UNFORESEEN
from shared_scheduler.cmd.progress import Progress
from shared_scheduler.cmd.swarm import Outcome, Total, cpu_s, many, rare_collections, speed
from shared_scheduler.cmd.worlds import add_habits, add_run, add_size, add_weather, seed_of
from shared_scheduler.sim.agenda import DETAILED_LINES
from shared_scheduler.sim.computes import Size
from shared_scheduler.sim.network import Weather
from shared_scheduler.sim.report import as_text, report
from shared_scheduler.sim.run import RunPlan, drawn, story
from shared_scheduler.sim.run import run as run_plan
from shared_scheduler.sim.topology import Board
from shared_scheduler.sim.workload import Habits
from shared_scheduler.sim.world import Sizes

#: broken seeds that are told; the first of them is run again for its trace
BROKEN_TOLD_MAX = 10


HABITS = (
    Number("--lifetime", 0.1, 100_000, "S", "how long an instance lives (default: %(default)s)", 60.0),
    Number(
        "--topologies", 0, 1, "PART",
        "requests for NUMA cells, large pages or devices (nodes have some where not 0)",
    ),
    Number("--migrations", 0, 1_000, "PER_S", "live migrations a second, of which no scheduler hears"),
    Number("--beat", 0.5, 60, "S", "agents beat so often (default: %(default)s)", 5.0),
    Number("--agentless", 0, 1, "PART", "nodes without an agent"),
    Number("--newer", 0, 1, "PART", "peers of a later release"),
)  # fmt: skip
WEATHER = (
    Number("--duplicates", 0, 1, "PART", "messages doubled"),
    Number("--garbled", 0, 1, "PART", "messages cut short"),
    Number("--late", 0, 1, "PART", "messages delayed by up to a second, so that others overtake them"),
    Number(
        "--fault-every", 0, 100_000, "S",
        "about one fault (cut, crash, storm ...) each so many seconds",
    ),
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_size(parser, nodes_max=20_000, schedulers_max=64)
    add_habits(parser, rate_max=10_000)
    for habit in HABITS:
        habit.add_to(parser)
    add_weather(parser, loss_max=1)
    for trouble in WEATHER:
        trouble.add_to(parser)
    add_run(parser)
    _add_many(parser)
    parser.set_defaults(nodes=50, schedulers=3, duration=60.0, rate=5.0, loss=0.0)


def _add_many(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seeds",
        type=whole(1, 10_000_000),
        metavar="N",
        help="run N seeds from --seed on, sizes, habits and faults drawn from each seed",
    )
    parser.add_argument(
        "--jobs", type=whole(1, 1_024), metavar="N", help="processes for --seeds (default: one a CPU)"
    )
    parser.add_argument(
        "--trace",
        type=new_file,
        metavar="FILE",
        help="write what happened: of the one world, or of the first broken one of --seeds",
    )


def plan_of(args: argparse.Namespace) -> RunPlan:
    """What the arguments ask for."""
    board = Board() if args.topologies else None
    return RunPlan(
        seed=seed_of(args),
        duration_s=args.duration,
        sizes=Sizes(
            nodes=args.nodes,
            schedulers=args.schedulers,
            agentless=args.agentless,
            newer=args.newer,
            size=Size(board=board),
            beat_interval_s=args.beat,
        ),
        habits=Habits(
            rate_per_s=args.rate,
            lifetime_s=args.lifetime,
            topologies=args.topologies,
            migrations_per_s=args.migrations,
        ),
        weather=Weather(
            loss=args.loss, duplicates=args.duplicates, garbled=args.garbled, late=args.late
        ),
        fault_every_s=args.fault_every,
    )


def run(args: argparse.Namespace) -> int:
    """One world, or many."""
    with rare_collections():
        return _many(args) if args.seeds else _one(args)


def _one(args: argparse.Namespace) -> int:
    plan = plan_of(args)
    began_s, had_cpu_s = time.monotonic(), cpu_s()
    with Progress(f"seed {plan.seed}") as progress:
        world = run_plan(plan, progress.show, DETAILED_LINES if args.trace else 0)
    figures = report(world) | speed(world.now, time.monotonic() - began_s, cpu_s() - had_cpu_s)
    _print(figures, args.format)
    if args.trace:
        _write(args.trace, story(plan, world))
    if world.checkers.violations:
        print(
            f"\nan invariant is broken; see it again:\n  {plan.command()} --trace trace.txt",
            file=sys.stderr,
        )
        return 1
    return 0


def _many(args: argparse.Namespace) -> int:
    first, total = seed_of(args), Total()
    seeds = range(first, first + args.seeds)
    began_s, had_cpu_s = time.monotonic(), cpu_s()
    try:
        _run_all(seeds, args, total)
    except BrokenProcessPool:
        print("simulate: a worker died: it was killed, perhaps for want of memory", file=sys.stderr)
        return UNFORESEEN
    finally:  # what has run until it ended counts too
        figures = total.figures(time.monotonic() - began_s, cpu_s() - had_cpu_s)
        _print({"first_seed": first, "seeds_asked": args.seeds} | figures, args.format)
        if total.seeds < args.seeds:
            print(f"simulate: ended early; the first seed that was not run is {first + total.seeds}", file=sys.stderr)
    return 1 if total.broken else 0


def _run_all(seeds: range, args: argparse.Namespace, total: Total) -> None:
    """Add them up in ``total``; when it returns or raises, no worker is left."""
    with (
        Progress(f"{len(seeds)} seeds from {seeds.start}") as progress,
        closing(many(seeds, args.jobs or os.cpu_count() or 1)) as outcomes,
    ):
        for outcome in outcomes:
            total.add(outcome)
            if outcome.broken and total.broken <= BROKEN_TOLD_MAX:
                _tell_broken(outcome, progress, args.trace if total.broken == 1 else None)
            progress.show(total.seeds / len(seeds), f"{total.broken} broken")


def _tell_broken(outcome: Outcome, progress: Progress, trace: str | None) -> None:
    """At once: a long run may be hours from its end."""
    plan = drawn(outcome.seed)
    head = f"seed {outcome.seed}: {plan.command()} --trace trace.txt"
    progress.tell("\n  ".join((head, *outcome.broken)))
    if trace:
        _write(trace, story(plan, run_plan(plan, lines=DETAILED_LINES)))


def _print(figures: dict[str, Any], how: str) -> None:
    print(json.dumps(figures, indent=2) if how == "json" else as_text(figures))


def _write(name: str, lines: Any) -> None:
    with Path(name).open("w") as file:
        file.writelines(f"{line}\n" for line in lines)
