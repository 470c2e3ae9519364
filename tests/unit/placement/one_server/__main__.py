# SPDX-License-Identifier: Apache-2.0
"""Runs worlds of one server in any order; the exit code is 1 if a law was broken."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from tests.unit.placement.one_server.plan import Kind
from tests.unit.placement.one_server.world import World, broken_in


def tell(kind: Kind, seed: int) -> bool:
    """Run one world and print its story, also that of an error; whether a law was broken."""
    world = World(kind, seed)
    try:
        return bool(world.run())
    finally:
        print(world.plan, *world.story.lines(), sep="\n")


def search(kinds: Sequence[Kind], seeds: range) -> bool:
    """Run many worlds and print a line for each violation; whether there was any."""
    count = 0
    for line in (line for kind in kinds for seed in seeds for line in broken_in(kind, seed)):
        count += 1
        print(line, flush=True)
    print(f"{len(kinds) * len(seeds)} worlds, {count} violations")
    return count > 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.unit.placement.one_server", description=__doc__)
    parser.add_argument("--kind", type=Kind, choices=[*Kind], help="only this kind; for a story, build by default")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seeds", type=int, default=1, help="how many of each kind; a single one tells its story")
    given = parser.parse_args(arguments)
    if given.seeds == 1:
        return int(tell(given.kind or Kind.BUILD, given.seed))
    kinds = [given.kind] if given.kind else [*Kind]
    return int(search(kinds, range(given.seed, given.seed + given.seeds)))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(main())
