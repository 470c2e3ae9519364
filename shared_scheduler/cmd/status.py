# SPDX-License-Identifier: Apache-2.0
"""Shows what the running schedulers of this machine know: nodes by freshness, claims, counters.

With --nodes, one row a node: how it is known, whether it may be chosen, and why not.  Exits with 0
when all that run have answered, with 2 and a line for each that has not otherwise.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from typing import Any

from shared_scheduler.cmd import schedulers
from shared_scheduler.service import admin

NODE_COLUMNS = ("host", "freshness", "choosable", "why_not", "sequence", "outstanding", "pending", "used")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    schedulers.add_to(parser)
    parser.add_argument("--nodes", action="store_true", help="one row a node")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Ask every scheduler and print."""
    try:
        answers, silent = schedulers.ask(args, "nodes" if args.nodes else "status")
    except admin.AdminError as error:
        return schedulers.refuse("status", [error])
    if args.format == "json":
        print(json.dumps(answers))
    else:
        print("\n\n".join(_nodes(a) if args.nodes else _summary(a) for a in answers))
    return schedulers.refuse("status", silent) if silent else 0


def _summary(answer: dict[str, Any]) -> str:
    freshness = ", ".join(f"{count} {name}" for name, count in answer["freshness"].items())
    lines = [
        f"{answer['scheduler']} (process {answer['pid']})",
        f"  nodes      {answer['nodes']}: {freshness or 'none'}",
        f"  under way  {answer['in_flight']} requests, {answer['claims_open']} claims",
        f"  cells      {_cells(answer['cells'])}",
    ]
    if answer["quarantined"]:
        lines.append(f"  quarantine {', '.join(answer['quarantined'])}")
    width = max(map(len, answer["counters"]), default=0)
    lines += [f"  {name:{width}}  {value}" for name, value in answer["counters"].items() if value]
    return "\n".join(lines)


def _cells(cells: dict[str, Any]) -> str:
    states = {True: "connected", False: "NOT CONNECTED"}
    return ", ".join(f"{cell} {states[c['connected']]}" for cell, c in cells.items()) or "none"


def _nodes(answer: dict[str, Any]) -> str:
    rows = [[_cell(node[name]) for name in NODE_COLUMNS] for node in answer["nodes"]]
    return "\n".join([answer["scheduler"], *table(NODE_COLUMNS, rows)])


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}:{amount}" for name, amount in value.items())
    return {True: "yes", False: "no"}.get(value, "") if isinstance(value, bool) else str(value)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a plain table, columns as wide as they need."""
    every = [head, *rows]
    widths = [max(len(row[column]) for row in every) for column in range(len(head))]
    return [
        "  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip()
        for row in every
    ]
