# SPDX-License-Identifier: Apache-2.0
"""The running schedulers of this machine: the arguments that locate them, and requests to them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from shared_scheduler.daemon import admin
from shared_scheduler.records.errors import RecordsError
from shared_scheduler.records.opening import configured_socket_dir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that locate the schedulers."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--config-file", type=Path, action="append", default=[], metavar="PATH",
        help="nova.conf of the schedulers (default: where Nova looks for it)",
    )  # fmt: skip
    where.add_argument("--socket-dir", type=Path, metavar="DIR", help="admin_socket_dir of the schedulers")


def ask(args: argparse.Namespace, question: str, **fields: Any) -> tuple[list[Any], list[admin.AdminError]]:
    """Send one request to each running scheduler.  Returns the answers, and the errors of those that did not answer.

    :raises AdminError: when no scheduler runs, or the configuration names no socket directory
    """
    return admin.ask_each(directory_of(args), question, **fields)


def killed(args: argparse.Namespace) -> list[admin.AdminError]:
    """An error for each scheduler that ended without an orderly stop and does not run again.

    :raises AdminError: when the configuration names no socket directory
    """
    return admin.killed(directory_of(args))


def directory_of(args: argparse.Namespace) -> Path:
    """Where the sockets of the schedulers are.

    :raises AdminError: when the configuration cannot be read
    """
    return args.socket_dir or _configured(args.config_file)


def ask_first(args: argparse.Namespace, question: str, **fields: Any) -> Any:
    """The answer of the first running scheduler that gives one.

    :raises AdminError: when none does, or the configuration names no socket directory
    """
    return admin.ask_first(args.socket_dir or _configured(args.config_file), question, **fields)


def print_errors(command: str, errors: Iterable[Exception]) -> int:
    """Print one line for each error.  Returns the exit code 2."""
    for error in errors:
        print(f"{command}: {' '.join(str(error).split())}", file=sys.stderr)
    return 2


def _configured(config_files: Sequence[Path]) -> Path:
    try:
        directory = configured_socket_dir(config_files)
    except RecordsError as error:
        raise admin.AdminError(str(error.__cause__)) from error
    if directory is None:
        raise admin.AdminError("[shared_scheduler] admin_socket_dir is empty; set it to query the schedulers")
    return directory
