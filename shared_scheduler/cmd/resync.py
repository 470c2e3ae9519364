# SPDX-License-Identifier: Apache-2.0
"""Makes the running schedulers of this machine read the nodes of a host anew.

Each scheduler asks the agent of a node for its whole state, or reads Nova's databases and Placement if the
node has no agent, and replaces its row with that.  The node may be selected meanwhile.  If the node was in
quarantine, the quarantine ends when its row has been read.  Schedulers of other machines have tables of
their own: run the command there too.  A host is read at most once in ten seconds.

To keep new servers away from a host, use "openstack compute service set --disable HOST nova-compute".

The exit code is 0 if each scheduler has read each node of the host, 1 if not, and 2 if a scheduler did not
answer, or ended before it had read them.
"""

from __future__ import annotations

import argparse
import json
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shared_scheduler.answers import terms
from shared_scheduler.cmd import printed_tables, running_schedulers
from shared_scheduler.cmd.arguments import whole
from shared_scheduler.daemon import admin

#: groups of terms that ``--help`` defines
TERMS = (terms.RESYNCS,)
COLUMNS = ("scheduler", "node", "result", "before", "after", "quarantine")
WAIT_S, WAIT_MAX_S = 10, 300
#: How often the schedulers are asked how far they are.
POLL_S = 0.2
READ, WAITING = "read", "waiting"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("host", metavar="HOST", help="name of the host, as in the list of compute services")
    running_schedulers.add_arguments(parser)
    parser.add_argument(
        "--wait", type=whole(0, WAIT_MAX_S), default=WAIT_S, metavar="SECONDS",
        help=f"how long the command waits for the result (default {WAIT_S})",
    )  # fmt: skip
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Order it, wait, and print the result.  Returns the exit code."""
    order = secrets.token_hex(8)
    try:
        running, silent = running_schedulers.ask(args, "resync", host=args.host, order=order)
        until_s = time.monotonic() + args.wait  # from now on: a scheduler that hangs has its own time to answer
        last = {_process(answer): answer for answer in running}
        while _is_waiting(running) and time.monotonic() < until_s:
            time.sleep(POLL_S)
            running, silent_now = running_schedulers.ask(args, "resync-result", host=args.host, order=order)
            running = [answer for answer in running if _process(answer) in last]  # a new process has no order
            last |= {_process(answer): answer for answer in running}
            silent = silent or silent_now
    except admin.AdminError as error:
        return running_schedulers.print_errors("resync", [error])
    answers = list(last.values())
    silent = silent or [*_ended(last, running)]
    print(json.dumps(answers) if args.format == "json" else "\n".join(_lines(answers)))
    if silent:
        return running_schedulers.print_errors("resync", silent)
    return 0 if all(answer["nodes"] and set(_results(answer)) == {READ} for answer in answers) else 1


def _process(answer: Mapping[str, Any]) -> tuple[str, int]:
    return answer["scheduler"], answer["pid"]


def _ended(
    last: Mapping[tuple[str, int], Mapping[str, Any]], running: Iterable[Mapping[str, Any]]
) -> Iterator[admin.AdminError]:
    """Errors of the schedulers that are gone and had not read the host."""
    for name, pid in last.keys() - {_process(answer) for answer in running}:
        if WAITING in _results(last[name, pid]):
            yield admin.AdminError(f"{name} (process {pid}) has ended; a scheduler that starts reads all hosts anew")


def _results(answer: Mapping[str, Any]) -> Iterator[str]:
    return (one["result"] for one in answer["nodes"])


def _is_waiting(answers: Iterable[Mapping[str, Any]]) -> bool:
    return any(WAITING in _results(answer) for answer in answers)


def _lines(answers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    rows = [row for answer in answers for row in _rows(answer)]
    yield from printed_tables.lines(COLUMNS, rows)
    yield from terms.explained(sorted({row[2] for row in rows} - {READ}), *TERMS)


def _rows(answer: Mapping[str, Any]) -> Iterator[list[str]]:
    if not answer["nodes"]:
        yield [answer["scheduler"], "", "unknown_host", "", "", ""]
    for one in answer["nodes"]:
        before, after = (_position(one[f"epoch{when}"], one[f"sequence{when}"]) for when in ("_before", ""))
        quarantine = "ended" if one["ended_quarantine"] else "yes" if one["quarantined"] else "no"
        yield [answer["scheduler"], one["node"], one["result"], before, after, quarantine]


def _position(epoch: int, sequence: int) -> str:
    return f"epoch {epoch}, sequence {sequence}" if epoch else "databases"
