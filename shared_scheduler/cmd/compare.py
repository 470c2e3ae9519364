# SPDX-License-Identifier: Apache-2.0
"""Compares the tables of the running schedulers, the agents, Placement and Nova's databases.

Exits with 0 when all say the same, with 1 and a line for each difference otherwise, with 2 when it
could not look.  In a cloud at work the sources are read one after the other, so a change between two
reads shows as a difference: --wait looks again until there is none or the time is over.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shared_scheduler.cmd.arguments import number
from shared_scheduler.service import admin, comparison, pictures
from shared_scheduler.service.comparison import PLACEMENT, Picture

PAUSE_S = 0.5
SHOWN_MAX = 50


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--config-file", type=Path, action="append", required=True, metavar="PATH",
        help="the schedulers' nova.conf; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--wait", type=number(0, 3600), default=0.0, metavar="SECONDS", help="look again for so long"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Look, and look again, and print."""
    from shared_scheduler.nova import backend

    backend.choose_threads()
    from oslo_config import cfg

    from shared_scheduler.nova import truth
    from shared_scheduler.placement.client import PlacementError
    from shared_scheduler.protocol.errors import KeyringError
    from shared_scheduler.service.databases import DatabaseError

    try:
        truth.configure(args.config_file)
        report = _until_equal(truth.Truth(), truth.admin_socket_dir(), args)
    except (cfg.Error, admin.AdminError, DatabaseError, PlacementError, KeyringError) as error:
        print(f"compare: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(json.dumps(report) if args.format == "json" else _text(report))
    return 1 if report["differences"] else 0


def _until_equal(truth: Any, sockets: Path, args: argparse.Namespace) -> dict[str, Any]:
    until_s = time.monotonic() + args.wait
    say = _quiet if args.format == "json" or not sys.stderr.isatty() else _say
    while True:
        report = _look(truth, sockets, say)
        if not report["differences"] or time.monotonic() >= until_s:
            return report
        time.sleep(PAUSE_S)


def _look(truth: Any, sockets: Path, say: Any) -> dict[str, Any]:
    others, owners = truth.look(say)
    say("asking the schedulers")
    tables = table_pictures(sockets)
    every = [*others, *tables]
    [placement] = [picture for picture in others if picture.source == PLACEMENT]
    found = [
        *map(str, comparison.differences(every)),
        *comparison.overcommitted(placement),
        *comparison.orphans(placement, owners),
    ]
    return {
        "sources": {picture.source: len(picture.nodes) for picture in every},
        "differences": found,
    }


def table_pictures(sockets: Path) -> list[Picture]:
    """The tables of all schedulers that run on this machine.

    :raises AdminError: there is none
    """
    return [
        pictures.of_table(answer["scheduler"], answer["nodes"])
        for answer in admin.ask_all(sockets, "tables")
    ]


def _text(report: dict[str, Any]) -> str:
    sources = [f"{source}: {nodes} nodes" for source, nodes in report["sources"].items()]
    found: Sequence[str] = report["differences"]
    lines = [*sources, *found[:SHOWN_MAX]]
    if len(found) > SHOWN_MAX:
        lines.append(f"(+{len(found) - SHOWN_MAX} more)")
    return "\n".join([*lines, f"{len(found)} differences" if found else "no difference"])


def _say(line: str) -> None:
    print(f"compare: {line} ...", file=sys.stderr)


def _quiet(_line: str) -> None:
    """Programs want the answer alone."""
