# SPDX-License-Identifier: Apache-2.0
"""The arguments that commands with a simulated world share."""

from __future__ import annotations

import argparse
import random

from shared_scheduler.cmd.arguments import number, whole

SEED_MAX = 2**63 - 1
#: seeds that are drawn are short enough to be typed
DRAWN_SEED_BITS = 32


def add_size(parser: argparse.ArgumentParser, nodes_max: int, schedulers_max: int) -> None:
    """How large the world is, and for how long it runs."""
    parser.add_argument("--nodes", type=whole(1, nodes_max), metavar="N", help="(default: %(default)s)")
    parser.add_argument(
        "--schedulers", type=whole(1, schedulers_max), metavar="N", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--duration", type=number(1, 1_000_000), metavar="S", help="seconds (default: %(default)s)"
    )


def add_habits(parser: argparse.ArgumentParser, rate_max: float) -> None:
    """What users do."""
    parser.add_argument(
        "--rate",
        type=number(0.01, rate_max),
        metavar="PER_S",
        help="requests a second (default: %(default)s)",
    )


def add_weather(parser: argparse.ArgumentParser, loss_max: float) -> None:
    """How bad the network is."""
    parser.add_argument(
        "--loss",
        type=number(0, loss_max),
        metavar="PART",
        help="messages lost, 0.05 or 5%% (default: %(default)s)",
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """What decides everything, and how it is told."""
    parser.add_argument(
        "--seed", type=whole(0, SEED_MAX), metavar="N", help="decides everything (default: drawn)"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")


def seed_of(args: argparse.Namespace) -> int:
    """The seed that was given, or one that is drawn."""
    given: int | None = args.seed
    return given if given is not None else random.SystemRandom().getrandbits(DRAWN_SEED_BITS)
