# SPDX-License-Identifier: Apache-2.0
"""``shared-scheduler-manage``: what operators and developers run by hand.

A sub-command is one module of this package, imported only when it is asked for (so that ``demo``
needs nothing but Python).  It has

* ``configure(parser)``: adds its arguments to an ``argparse.ArgumentParser``;
* ``run(args) -> int``: does the work and returns the exit code.

To add one, write the module and its line in ``COMMANDS``.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from types import ModuleType

from shared_scheduler.cmd.endings import INTERRUPTED, UNFORESEEN, ended_by_signals
from shared_scheduler.cmd.reader import until_reader_leaves

#: module of this package -> what it does, for ``--help``
COMMANDS: Mapping[str, str] = {
    "demo": "schedulers and simulated nodes at work in this process, with a live view",
    "status": "what the running schedulers of this machine know",
    "why": "why a request ended as it did: what was tried, and what each host says to it",
    "compare": "schedulers' tables, agents, Placement and Nova's databases: what differs",
    "simulate": "a deterministic world with faults: reports figures and broken invariants",
}

PROGRAM = "shared-scheduler-manage"


def main(argv: Sequence[str] | None = None) -> int:
    """The console script.  Exit code 2 for wrong arguments and for what nobody foresaw, that of shells for
    signals (``endings``, ``reader``), else the sub-command's own."""
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        with ended_by_signals():
            return until_reader_leaves(partial(_carry_out, given))
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        traceback.print_exc()
        print(f"{' '.join(given[:1])}: unexpected {type(error).__name__}: {error}", file=sys.stderr)
        return UNFORESEEN


def _carry_out(given: Sequence[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        print(overview())
        return 0 if given else 2
    name = given[0]
    if name not in COMMANDS:
        print(f"{PROGRAM}: there is no command {name!r}\n\n{overview()}", file=sys.stderr)
        return 2
    command = importlib.import_module(f"shared_scheduler.cmd.{name}")
    return int(command.run(parser_of(name, command).parse_args(given[1:])))


def parser_of(name: str, command: ModuleType) -> argparse.ArgumentParser:
    """The parser of one sub-command."""
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} {name}",
        description=command.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.configure(parser)
    return parser


def overview() -> str:
    """What there is."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join([f"usage: {PROGRAM} COMMAND ...", "", *lines, "", f"{PROGRAM} COMMAND --help tells more."])


if __name__ == "__main__":
    sys.exit(main())
