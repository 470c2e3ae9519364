# SPDX-License-Identifier: Apache-2.0
"""Shows the state of the agent of this machine: its connections, its nodes, its counters.

    compute-agent-status --config-file /etc/nova/nova.conf

The exit code is 0 if the agent judges claims of its node, 1 with one line for each reason if it does not, and 2 if no
agent answers.  Run it as the user of the agent.  After a signal, the exit code is 128 plus its number.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from compute_agent.conf import status_socket_path
from shared_scheduler.daemon import admin
from shared_scheduler.daemon.endings import exit_code_of
from shared_scheduler.release import release

PROG = "compute-agent-status"
#: the question that the agent answers
STATUS = "status"
NOT_READY, NO_ANSWER = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask the agent and print the answer.  Return the exit code."""
    args = _parser().parse_args(arguments)
    return exit_code_of(partial(_ask, args), called=PROG, unforeseen=NO_ANSWER)


def _ask(args: argparse.Namespace) -> int:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\s*Eventlet is deprecated")  # oslo.messaging imports it
        from compute_agent.sources import nova_conf

    given = [word for file in args.config_file or () for word in ("--config-file", file)]
    try:
        conf = nova_conf.load(given, PROG, release())
        found: Mapping[str, Any] = admin.ask(status_socket_path(conf), STATUS)
    except (admin.AdminError, nova_conf.ConfigError) as error:
        print(f"{PROG}: {' '.join(str(error).split())}", file=sys.stderr)
        return NO_ANSWER
    print(json.dumps(found) if args.format == "json" else "\n".join(lines(found)))
    return NOT_READY if found["problems"] else 0


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The answer as text."""
    yield f"compute-agent {found['release']} of host {found['host']}"
    yield f"  channel    {'connected' if found['connected'] else 'NOT CONNECTED'}"
    yield f"  tap        {'connected' if found['tap_connected'] else 'NOT CONNECTED'}"
    yield f"  epoch      {found['epoch']}"
    yield f"  waiting    {found['waiting']} events"
    for node, state in found["nodes"].items():
        told = "ready" if state["ready"] else f"not ready: {state['missing']}"
        yield f"  node {node}: {told}; {state['pending']} claims pending"
    for title in ("notices", "counters"):
        counted = ", ".join(f"{name} {count}" for name, count in sorted(found[title].items()) if count)
        yield f"  {title:<10} {counted or '-'}"
    yield from (f"  PROBLEM    {problem}" for problem in found["problems"])


def _parser() -> argparse.ArgumentParser:
    text, _, more = str(__doc__).partition("\n\n")
    parser = argparse.ArgumentParser(
        prog=PROG, description=text, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--config-file", action="append", metavar="PATH",
        help="nova.conf of the agent; may be given several times. Without it, the files are those of Nova's services",
    )  # fmt: skip
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--version", action="version", version=release())
    return parser


if __name__ == "__main__":
    sys.exit(main())
