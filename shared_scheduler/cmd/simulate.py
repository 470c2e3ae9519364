# SPDX-License-Identifier: Apache-2.0
"""Runs the deterministic simulator: real scheduler and agent cores in a world with faults.

The same arguments give the same trace, byte for byte.  Without --seed, a seed is drawn and printed.
The exit code is 1 when an invariant was violated; the last lines then name the command that replays
it.  If a signal or the end of a worker interrupts --seeds, the results so far are summed up, and the
exit code is not 0.

examples:
  shared-scheduler-manage simulate --seed 7 --nodes 50 --schedulers 3 --loss 5% --fault-every 3
  shared-scheduler-manage simulate --seeds 20000 --seed 1   many short worlds, parameters drawn
  shared-scheduler-manage simulate --nodes 10000 --schedulers 8 --duration 20 --heartbeat 15
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from typing import Any

from shared_scheduler.cmd.arguments import Number, whole
from shared_scheduler.cmd.progress import Progress
from shared_scheduler.cmd.swarm import SeedOutcome, SwarmTotal, cpu_s, rare_collections, run_seeds, speed
from shared_scheduler.cmd.world_arguments import (
    add_network_faults,
    add_run,
    add_size,
    add_workload,
    seed_of,
    with_trace,
    write_trace,
)
from shared_scheduler.daemon.endings import UNFORESEEN
from shared_scheduler.sim.agenda import DETAILED_LINES
from shared_scheduler.sim.computes import Size
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.report import as_text, report
from shared_scheduler.sim.run import RunPlan, drawn
from shared_scheduler.sim.run import run as run_plan
from shared_scheduler.sim.topology import Board
from shared_scheduler.sim.workload import Workload
from shared_scheduler.sim.world import Sizes

#: number of broken seeds that are printed; the first one is run again for its trace
BROKEN_SHOWN_MAX = 10


WORKLOAD = (
    Number("--lifetime", 0.1, 100_000, "S", "mean lifetime of an instance (default: %(default)s)", 60.0),
    Number(
        "--topologies", 0, 1, "PART",
        "part of the requests that ask for NUMA cells, large pages or devices; if not 0, nodes have them",
    ),
    Number("--grouped", 0, 1, "PART", "part of the requests that are for members of server groups"),
    Number("--spread", 0, 1, "PART", "part of the requests that are for servers of a label, spread over racks"),
    Number("--migrations", 0, 1_000, "PER_S", "live migrations per second without a request to a scheduler"),
    Number("--heartbeat", 0.5, 60, "S", "time between heartbeats (default: %(default)s)", 5.0, "--beat"),
    Number("--agentless", 0, 1, "PART", "part of the nodes that have no agent"),
    Number("--newer", 0, 1, "PART", "part of the peers that run a later release"),
)  # fmt: skip
NETWORK_FAULTS = (
    Number("--duplicates", 0, 1, "PART", "part of the messages that arrive twice"),
    Number("--garbled", 0, 1, "PART", "part of the messages that are truncated"),
    Number("--late", 0, 1, "PART", "part of the messages that are delayed by up to one second and overtaken"),
    Number(
        "--fault-every", 0, 100_000, "S",
        "mean time between faults (cut, crash, storm ...); 0: no faults",
    ),
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_size(parser, nodes_max=20_000, schedulers_max=64)
    add_workload(parser, rate_max=10_000)
    for number in WORKLOAD:
        number.add_to(parser)
    add_network_faults(parser, loss_max=1)
    for fault in NETWORK_FAULTS:
        fault.add_to(parser)
    add_run(parser, "write the events of the world to FILE; with --seeds, those of the first broken one")
    _add_many(parser)
    parser.set_defaults(nodes=50, schedulers=3, duration=60.0, rate=5.0, loss=0.0)


def _add_many(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seeds",
        type=whole(1, 10_000_000),
        metavar="N",
        help="run N seeds, beginning with --seed; each seed determines sizes, workload and faults",
    )
    parser.add_argument(
        "--jobs", type=whole(1, 1_024), metavar="N", help="number of processes for --seeds (default: one per CPU)"
    )


def plan_of(args: argparse.Namespace) -> RunPlan:
    """The plan that the arguments describe."""
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
            heartbeat_interval_s=args.heartbeat,
        ),
        workload=Workload(
            rate_per_s=args.rate,
            lifetime_s=args.lifetime,
            topologies=args.topologies,
            grouped=args.grouped,
            spread=args.spread,
            migrations_per_s=args.migrations,
        ),
        network_faults=NetworkFaults(loss=args.loss, duplicates=args.duplicates, garbled=args.garbled, late=args.late),
        fault_every_s=args.fault_every,
    )


def run(args: argparse.Namespace) -> int:
    """Run one world, or those of ``--seeds``.  Returns the exit code."""
    with rare_collections():
        return _many(args) if args.seeds else _one(args)


def _one(args: argparse.Namespace) -> int:
    plan = plan_of(args)
    began_s, had_cpu_s = time.monotonic(), cpu_s()
    with Progress(f"seed {plan.seed}") as progress:
        world = run_plan(plan, progress.update, DETAILED_LINES if args.trace else 0)
    figures = report(world) | speed(world.now, time.monotonic() - began_s, cpu_s() - had_cpu_s)
    _print(figures, args.format)
    if args.trace:
        write_trace(args.trace, plan, world)
    if world.checkers.violations:
        print(
            f"\nan invariant was violated; to run it again with a trace:\n  {with_trace(plan.command())}",
            file=sys.stderr,
        )
        return 1
    return 0


def _many(args: argparse.Namespace) -> int:
    first, total = seed_of(args), SwarmTotal()
    seeds = range(first, first + args.seeds)
    began_s, had_cpu_s = time.monotonic(), cpu_s()
    try:
        _run_all(seeds, args, total)
    except BrokenProcessPool:
        print("simulate: a worker process was killed, possibly because the machine ran out of memory", file=sys.stderr)
        return UNFORESEEN
    finally:  # also what ran before an early end
        figures = total.figures(time.monotonic() - began_s, cpu_s() - had_cpu_s)
        _print({"first_seed": first, "seeds_asked": args.seeds} | figures, args.format)
        if total.seeds < args.seeds:
            print(f"simulate: ended early; the first seed that was not run is {first + total.seeds}", file=sys.stderr)
    return 1 if total.broken else 0


def _run_all(seeds: range, args: argparse.Namespace, total: SwarmTotal) -> None:
    """Run the seeds and add their outcomes to ``total``.  No worker is left when it returns or raises."""
    with (
        Progress(f"{len(seeds)} seeds from {seeds.start}") as progress,
        closing(run_seeds(seeds, args.jobs or os.cpu_count() or 1)) as outcomes,
    ):
        for outcome in outcomes:
            total.add(outcome)
            if outcome.broken and total.broken <= BROKEN_SHOWN_MAX:
                _print_broken(outcome, progress, args.trace if total.broken == 1 else None)
            progress.update(total.seeds / len(seeds), f"{total.broken} broken")


def _print_broken(outcome: SeedOutcome, progress: Progress, trace: str | None) -> None:
    """Print a broken seed as soon as it is found, because the run may take hours."""
    plan = drawn(outcome.seed)
    head = f"seed {outcome.seed}: {with_trace(plan.command())}"
    progress.print_above("\n  ".join((head, *outcome.broken)))
    if trace:
        write_trace(trace, plan, run_plan(plan, lines=DETAILED_LINES))


def _print(figures: dict[str, Any], form: str) -> None:
    print(json.dumps(figures, indent=2) if form == "json" else as_text(figures))
