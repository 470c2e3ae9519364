# SPDX-License-Identifier: Apache-2.0
"""Compares the tables of the running schedulers, the agents, Placement and Nova's databases.

The exit code is 0 when all sources agree, 1 with one line per difference, and 2 when a source could
not be read.  The sources are read one after the other, so in a busy cloud a change between two reads
shows as a difference: --wait repeats the comparison until there is none or the time is over.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from shared_scheduler.answers import terms
from shared_scheduler.cmd.arguments import number
from shared_scheduler.daemon import admin
from shared_scheduler.records.plain_text import printable
from shared_scheduler.service import source_differences, source_views
from shared_scheduler.service.source_differences import AGENT, PLACEMENT, SourceView

#: groups of terms that ``--help`` defines
TERMS = (terms.SOURCES,)
PAUSE_S = 0.5
SHOWN_MAX = 50
#: Hosts without an agent that one line names.
HOSTS_NAMED_MAX = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--config-file", type=Path, action="append", default=[], metavar="PATH",
        help="nova.conf of the schedulers, may be repeated (default: where Nova looks for it)",
    )  # fmt: skip
    parser.add_argument(
        "--wait", type=number(0, 3600), default=0.0, metavar="SECONDS", help="repeat the comparison for this time"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Compare until the sources agree or ``--wait`` is over, and print the result.  Returns the exit code."""
    from shared_scheduler.novalib import threading_backend

    threading_backend.choose_threads()
    from oslo_config import cfg

    from shared_scheduler.nova import source_readers
    from shared_scheduler.placement.connection import PlacementError
    from shared_scheduler.protocol.errors import KeyringError
    from shared_scheduler.sync.databases import DatabaseError

    try:
        source_readers.configure(args.config_file)
        report = _until_equal(source_readers.SourceReaders(), source_readers.admin_socket_dir(), args)
    except (cfg.Error, admin.AdminError, DatabaseError, PlacementError, KeyringError) as error:
        print(f"compare: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(json.dumps(report) if args.format == "json" else text_of(report))
    return 1 if report["differences"] else 0


def _until_equal(source_readers: Any, sockets: Path, args: argparse.Namespace) -> dict[str, Any]:
    until_s = time.monotonic() + args.wait
    report_progress = _ignore if args.format == "json" or not sys.stderr.isatty() else _print_progress
    while True:
        report = _compare_once(source_readers, sockets, report_progress)
        if not report["differences"] or time.monotonic() >= until_s:
            return report
        time.sleep(PAUSE_S)


def _compare_once(source_readers: Any, sockets: Path, report_progress: Callable[[str], None]) -> dict[str, Any]:
    others, owners = source_readers.read(report_progress)
    report_progress("asking the schedulers")
    every = [*others, *table_views(sockets)]
    [placement] = [view for view in others if view.source == PLACEMENT]
    answered = {node for view in others if view.source == AGENT for node in view.nodes}
    hosts, without = source_differences.hosts_of(every), sorted(placement.nodes.keys() - answered)
    found = [
        *map(str, source_differences.differences(every)),
        *source_differences.overcommitted(placement),
        *source_differences.orphans(placement, owners),
    ]
    return {
        "sources": {view.source: len(view.nodes) for view in every},
        "nodes_without_agent": without,
        "hosts_without_agent": sorted({hosts.get(node, node) for node in without}),
        "differences": source_differences.with_hosts(found, hosts),
        "foreign_changes": foreign_changes(sockets),
    }


def foreign_changes(sockets: Path) -> dict[str, int]:
    """The number of foreign changes that each scheduler has found and Nova does not explain, by all of its workers,
    which have its name; those of an older release do not report it."""
    found: Counter[str] = Counter()
    for answer in admin.ask_each(sockets, "foreign-changes")[0]:
        found[answer["scheduler"]] += answer["count"]
    return dict(found)


def table_views(sockets: Path) -> list[SourceView]:
    """The table of each scheduler that runs on this machine, as a view to compare.

    :raises AdminError: when no scheduler runs
    """
    return [source_views.of_table(answer["scheduler"], answer["nodes"]) for answer in admin.ask_all(sockets, "tables")]


def text_of(report: dict[str, Any]) -> str:
    """The report as lines without control characters, because agents wrote parts of it."""
    sources = [f"{source}: {nodes} nodes" for source, nodes in report["sources"].items()]
    found: Sequence[str] = report["differences"]
    lines = [*sources, *_without_agent(report), *found[:SHOWN_MAX]]
    if len(found) > SHOWN_MAX:
        lines.append(f"(+{len(found) - SHOWN_MAX} more; --format json has all)")
    changes = [f"{scheduler} {count}" for scheduler, count in report["foreign_changes"].items() if count]
    if changes:
        lines.append(f"foreign changes since the start (status --foreign-changes): {', '.join(changes)}")
    lines.append(f"{len(found)} differences" if found else "no difference")
    return "\n".join([*map(printable, lines), *terms.explained(_families(found[:SHOWN_MAX]), *TERMS)])


def _families(found: Sequence[str]) -> list[str]:
    """The words for the facts that differ, each once."""
    return sorted({match[1] for line in found if (match := re.match(r"[^:]+: (\w+)[ :]", line))})


def _without_agent(report: dict[str, Any]) -> Iterator[str]:
    """Which nodes are compared without an agent, if other nodes have one."""
    count, nodes = len(report["nodes_without_agent"]), report["sources"][PLACEMENT]
    if 0 < count < nodes:
        hosts: Sequence[str] = report["hosts_without_agent"]
        more = f" and {len(hosts) - HOSTS_NAMED_MAX} more" if len(hosts) > HOSTS_NAMED_MAX else ""
        named = ", ".join(hosts[:HOSTS_NAMED_MAX]) + more
        told = f"of {count} of {nodes} nodes, no agent answered in time: {named}"
        yield f"{told}; only their other sources are compared"


def _print_progress(line: str) -> None:
    print(f"compare: {line} ...", file=sys.stderr)


def _ignore(_line: str) -> None:
    """Print no progress: with --format json, or without a terminal."""
