# SPDX-License-Identifier: Apache-2.0
"""Opens the store of records that a configuration names, for reading, without Nova.

A store that is named is opened without oslo.config, and each kind without the libraries of the other: their imports
take more time than the question.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shared_scheduler.records.errors import FILE, RecordsError
from shared_scheduler.records.store import Store

#: Nova's own files are found under these names.
PROJECT, PROGRAM = "nova", "nova-scheduler"


def open_named(place: str) -> Store:
    """The store at a place: the URL of a database, or the path of a file of JSON lines.

    :raises RecordsError: when the URL is wrong
    """
    if "://" not in place:
        from shared_scheduler.records.json_lines import JsonLines

        return JsonLines(Path(place))
    from shared_scheduler.records.database import RecordTable

    return RecordTable(place)


def open_configured(files: Sequence[Path]) -> Store:
    """The store that the schedulers of this configuration write; the database if there are two, as it may be shared.

    Without ``files``, Nova's configuration is looked for where Nova does (``/etc/nova``).

    :raises RecordsError: when no store is configured, or its option is wrong
    """
    ours = _options(files)
    place = ours.records_connection or ours.records_file
    if not place:
        raise RecordsError(FILE, ValueError("is empty"), "this scheduler keeps no records")
    return open_named(place)


def configured_socket_dir(files: Sequence[Path]) -> Path | None:
    """The directory of the sockets of the schedulers of this configuration; None if they have none.

    :raises RecordsError: when the configuration cannot be read
    """
    directory = _options(files).admin_socket_dir
    return Path(directory) if directory else None


def _options(files: Sequence[Path]) -> Any:
    """The options of the scheduler.

    :raises RecordsError: when the configuration cannot be read
    """
    from oslo_config import cfg

    from shared_scheduler.conf import opts
    from shared_scheduler.daemon.config_files import unreadable_named

    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf.register_opt(cfg.StrOpt("pybasedir", default=_nova_directory()))
    conf.register_opt(cfg.StrOpt("state_path", default="$pybasedir"))
    try:
        with unreadable_named():
            conf([], project=PROJECT, prog=PROGRAM, default_config_files=list(map(str, files)) or None)
        options = conf.shared_scheduler
        for name in ("records_connection", "records_file", "admin_socket_dir"):
            getattr(options, name)  # a reference to an option that is not there shows only now
        return options
    except cfg.Error as error:
        raise RecordsError("the configuration", error, "correct it, or name another with --config-file") from error


def _nova_directory() -> str:
    """Where Nova is installed, which is its default ``state_path``; the package is not imported."""
    spec = importlib.util.find_spec("nova")
    return "" if spec is None or spec.origin is None else str(Path(spec.origin).parent.parent)
