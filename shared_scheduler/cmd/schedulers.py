# SPDX-License-Identifier: Apache-2.0
"""The running schedulers of this machine: the arguments that tell where they are, and asking them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from shared_scheduler.service import admin


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--config-file", type=Path, action="append", metavar="PATH", help="the schedulers' nova.conf"
    )
    where.add_argument(
        "--socket-dir", type=Path, metavar="DIR", help="the schedulers' admin_socket_dir"
    )


def ask(
    args: argparse.Namespace, question: str, **fields: Any
) -> tuple[list[Any], list[admin.AdminError]]:
    """The answers of all that run, and what is wrong with those that do not answer.

    :raises AdminError: none runs, or the configuration does not tell where
    """
    directory = args.socket_dir or _configured(args.config_file)
    return admin.ask_each(directory, question, **fields)


def refuse(command: str, errors: Iterable[Exception]) -> int:
    """One line each; the exit code."""
    for error in errors:
        print(f"{command}: {' '.join(str(error).split())}", file=sys.stderr)
    return 2


def _configured(config_files: Sequence[Path]) -> Path:
    from oslo_config import cfg

    from shared_scheduler.nova import backend

    backend.choose_threads()
    from shared_scheduler.nova import truth

    try:
        truth.configure(config_files)
        return truth.admin_socket_dir()
    except cfg.Error as error:
        raise admin.AdminError(str(error)) from error
