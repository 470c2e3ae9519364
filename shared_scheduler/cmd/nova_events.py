# SPDX-License-Identifier: Apache-2.0
"""Nova's own events of servers, which ``why --nova`` and ``story --nova`` show between the records."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterable

from shared_scheduler.answers.shapes import NovaEvent
from shared_scheduler.records.errors import RecordsError
from shared_scheduler.records.story import INSTANCES_MAX


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--nova``."""
    parser.add_argument(
        "--nova",
        action="store_true",
        help="also show Nova's instance actions and faults, which are read from Nova's databases",
    )


def read(args: argparse.Namespace, servers: Iterable[str]) -> list[NovaEvent]:
    """The events of the first ``INSTANCES_MAX`` servers, oldest first.

    :raises RecordsError: when Nova's databases cannot be read
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\s*Eventlet is deprecated")  # a library of Nova's imports it
        from shared_scheduler.nova import instance_actions  # takes a second, and only this option needs Nova

    try:
        return instance_actions.read(args.config_file, list(dict.fromkeys(servers))[:INSTANCES_MAX])
    except Exception as error:  # the exceptions depend on the database driver
        raise RecordsError(
            "--nova", error, "run it with the nova.conf of a scheduler (--config-file, without --records)"
        ) from error
