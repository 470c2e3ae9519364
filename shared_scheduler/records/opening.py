# SPDX-License-Identifier: Apache-2.0
"""Opens the store of records that a configuration names, for reading, without Nova."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from oslo_config import cfg

from shared_scheduler.conf import opts
from shared_scheduler.records.errors import RecordsError
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.store import Store

#: Nova's own files are found under these names.
PROJECT, PROGRAM = "nova", "nova-scheduler"


def open_named(place: str) -> Store:
    """The store at a place: the URL of a database, or the path of a file of JSON lines.

    :raises RecordsError: when the URL is wrong
    """
    if "://" not in place:
        return JsonLines(Path(place))
    from shared_scheduler.records.database import RecordTable  # takes 0.3 s, and a file needs no database

    return RecordTable(place)


def open_configured(files: Sequence[Path]) -> Store:
    """The store that the schedulers of this configuration write; the database if there are two, as it may be shared.

    Without ``files``, Nova's configuration is looked for where Nova does (``/etc/nova``).

    :raises RecordsError: when no store is configured, or its option is wrong
    """
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf.register_opt(cfg.StrOpt("pybasedir", default=_nova_directory()))
    conf.register_opt(cfg.StrOpt("state_path", default="$pybasedir"))
    try:
        conf([], project=PROJECT, prog=PROGRAM, default_config_files=list(map(str, files)) or None)
        place = conf.shared_scheduler.records_connection or conf.shared_scheduler.records_file
    except cfg.Error as error:
        raise RecordsError("records_file", error, "correct the configuration, or name it with --config-file") from error
    if not place:
        raise RecordsError("records_file", ValueError("is empty"), "this scheduler keeps no records")
    return open_named(place)


def _nova_directory() -> str:
    """Where Nova is installed, which is its default ``state_path``; the package is not imported."""
    spec = importlib.util.find_spec("nova")
    return "" if spec is None or spec.origin is None else str(Path(spec.origin).parent.parent)
