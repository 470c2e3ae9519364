# SPDX-License-Identifier: Apache-2.0
"""The arguments that commands with a simulated world share."""

from __future__ import annotations

import argparse
import os
import random
import shlex
import shutil
import sys
from pathlib import Path

from shared_scheduler.cmd.arguments import new_file, number, whole
from shared_scheduler.sim.reproduction import PROGRAM, Plan, story
from shared_scheduler.sim.world import World

SEED_MAX = 2**63 - 1
#: random seeds have few bits, so that they can be typed
DRAWN_SEED_BITS = 32


def add_size(parser: argparse.ArgumentParser, nodes_max: int, schedulers_max: int) -> None:
    """Add the arguments for the size of the world and the duration of the run."""
    parser.add_argument(
        "--nodes", type=whole(1, nodes_max), metavar="N", help="number of compute nodes (default: %(default)s)"
    )
    parser.add_argument(
        "--schedulers", type=whole(1, schedulers_max), metavar="N", help="number of schedulers (default: %(default)s)"
    )
    parser.add_argument(
        "--duration", type=number(1, 1_000_000), metavar="S", help="duration in seconds (default: %(default)s)"
    )


def add_workload(parser: argparse.ArgumentParser, rate_max: float) -> None:
    """Add the arguments for the workload."""
    parser.add_argument(
        "--rate",
        type=number(0.01, rate_max),
        metavar="PER_S",
        help="requests per second (default: %(default)s)",
    )


def add_network_faults(parser: argparse.ArgumentParser, loss_max: float) -> None:
    """Add the arguments for the faults of the network."""
    parser.add_argument(
        "--loss",
        type=number(0, loss_max),
        metavar="PART",
        help="part of the messages that are lost, 0.05 or 5%% (default: %(default)s)",
    )


def add_run(parser: argparse.ArgumentParser, trace: str) -> None:
    """Add the arguments for the seed and the output; ``trace`` is the help text of ``--trace``."""
    parser.add_argument(
        "--seed", type=whole(0, SEED_MAX), metavar="N", help="seed of all random choices (default: random, printed)"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="format of the figures at the end")
    parser.add_argument("--trace", type=new_file, metavar="FILE", help=trace)


def seed_of(args: argparse.Namespace) -> int:
    """The seed of ``--seed``, or a random one."""
    given: int | None = args.seed
    return given if given is not None else random.SystemRandom().getrandbits(DRAWN_SEED_BITS)


def write_trace(name: str, plan: Plan, world: World) -> None:
    """Write the events of a world to a file."""
    with Path(name).open("w") as file:
        file.writelines(f"{line}\n" for line in story(plan, world))


#: file to which this command writes its trace
TRACE_FILE = "trace.txt"


def with_trace(command: str) -> str:
    """The same command with a trace, and with the path of the program if its name is not on the PATH."""
    return f"{program()}{command.removeprefix(PROGRAM)} --trace {TRACE_FILE}"


def program() -> str:
    """The name of the program if it is on the PATH, otherwise its path."""
    called = Path(sys.argv[0])
    if called.name != PROGRAM or shutil.which(PROGRAM):
        return PROGRAM
    near = os.path.relpath(called)
    return shlex.quote(str(called) if near.startswith(os.pardir) else near)
