# SPDX-License-Identifier: Apache-2.0
"""``shared-scheduler-manage``: the commands for operators and developers.

Each sub-command is a module of this package.  It is imported when it is used, so that ``demo`` does not need
Nova.  The module has

* ``configure(parser)``, which adds its arguments to an ``argparse.ArgumentParser``;
* ``run(args) -> int``, which runs the command and returns the exit code;
* ``TERMS``, if it prints terms of this project: the groups of ``terms`` that its ``--help`` defines.

To add one, write the module and its line in ``COMMANDS``.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from shared_scheduler.answers import terms
from shared_scheduler.daemon.endings import exit_code_of

#: name of a module of this package, with - for _ -> its line in ``--help``
COMMANDS: Mapping[str, str] = {
    "demo": "run schedulers and simulated nodes in this process, with a live view",
    "status": "show the state of the running schedulers of this machine",
    "why": "show why a request got its result, from the records",
    "why-not": "show why a server is not on a host, from the records",
    "why-now": "show which hosts would pass now, for a request that a running scheduler remembers",
    "records": "list the last records",
    "story": "show what the records say of a host",
    "replay": "decide recorded requests again, and show which choices differ",
    "fit": "show whether servers would fit, where, and why the next one would not",
    "keys": "create, derive and rotate the keys with which schedulers and agents verify the sender of a message",
    "top": "show what the running schedulers of this machine do, live",
    "serve": "serve a read-only page with the fleet, requests, hosts and reasons",
    "compare": "compare the schedulers' tables, agents, Placement and Nova's databases",
    "resync": "make the running schedulers of this machine read the nodes of a host anew",
    "agreement": "show how mode shadow agrees with nova-scheduler, from the records",
    "simulate": "simulate a cloud with faults; report figures and violated invariants",
}

PROGRAM = "shared-scheduler-manage"


def main(argv: Sequence[str] | None = None) -> int:
    """The console script.  Returns the exit code: 2 for wrong arguments and unexpected errors, 128 plus the number of
    the signal after a signal (``endings``), otherwise that of the sub-command."""
    given = list(sys.argv[1:] if argv is None else argv)
    return exit_code_of(partial(_run_command, given), called=" ".join(given[:1]))


def _run_command(given: Sequence[str]) -> int:
    if given == ["--version"]:
        from shared_scheduler.release import release

        print(f"{PROGRAM} {release()}")
        return 0
    if not given or given[0] in ("-h", "--help"):
        print(overview())
        return 0 if given else 2
    name = given[0]
    if name not in COMMANDS:
        print(f"{PROGRAM}: there is no command {name!r}\n\n{overview()}", file=sys.stderr)
        return 2
    command = command_of(name)
    return int(command.run(parser_of(name, command).parse_args(given[1:])))


def command_of(name: str) -> ModuleType:
    """The module of a sub-command."""
    return importlib.import_module(f"shared_scheduler.cmd.{name.replace('-', '_')}")


class Parser(argparse.ArgumentParser):
    """A parser whose help raises the error of a closed output; argparse ignores it for a long text."""

    def print_help(self, file: Any = None) -> None:
        """Print the help.

        :raises BrokenPipeError: when the reader has left
        """
        print(self.format_help(), end="", file=file or sys.stdout)


def parser_of(name: str, command: ModuleType) -> argparse.ArgumentParser:
    """The parser of one sub-command."""
    parser = Parser(
        prog=f"{PROGRAM} {name}",
        description=command.__doc__,
        epilog=terms.help_text(*getattr(command, "TERMS", ())),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.configure(parser)
    return parser


def overview() -> str:
    """The list of commands, for ``--help``."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join([f"usage: {PROGRAM} COMMAND ...", "", *lines, "", f"{PROGRAM} COMMAND --help describes it."])


if __name__ == "__main__":
    sys.exit(main())
