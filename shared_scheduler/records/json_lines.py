# SPDX-License-Identifier: Apache-2.0
"""Decision records as lines of JSON in a file that is rotated by size.

``records.jsonl`` is the current file, ``records.jsonl.1`` the one before it, and so on.  ``logging.handlers``
rotates the files.  Each process writes its own files.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from shared_scheduler.records.errors import RecordsError

BYTES_PER_MB = 1_000_000


class JsonLines:
    """Appends records to the current file.  Used by one thread."""

    def __init__(self, path: Path, max_mb: int, kept: int) -> None:
        """``max_mb``: size of one file; ``kept``: number of files, the current one included.

        :raises RecordsError: when the file cannot be opened for writing
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handler = _Handler(path, maxBytes=max_mb * BYTES_PER_MB, backupCount=kept - 1)
        except OSError as error:
            remedy = "name a file that the scheduler may write, or leave the option empty"
            raise RecordsError("records_file", error, remedy) from error

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append each record as one line.

        :raises OSError: when the disk is full, or the file cannot be written or rotated
        """
        for record in records:
            line = json.dumps(record, separators=(",", ":"), default=str)
            self._handler.handle(logging.makeLogRecord({"msg": line}))

    def close(self) -> None:
        """Close the file.  Each record was flushed to the operating system when it was written."""
        self._handler.close()


#: Only the owner and the group of the file may read records, because they name projects, users and servers.
FILE_MODE = 0o640


class _Handler(RotatingFileHandler):
    """Raises errors to the caller, and truncates the file if no older files are kept."""

    def _open(self) -> TextIOWrapper:
        """Open the current file, which is created without rights for others."""
        number = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
        return open(number, "a", encoding=self.encoding, errors=self.errors)

    def handleError(self, record: logging.LogRecord) -> None:
        """Raise the error that is being handled to the caller of ``write``.

        :raises OSError: when the file cannot be written or rotated
        """
        raise

    def doRollover(self) -> None:
        """Rotate the files; truncate a single file, which ``logging`` does not bound."""
        if self.backupCount or self.stream is None:
            super().doRollover()
        else:
            self.stream.truncate(0)
