# SPDX-License-Identifier: Apache-2.0
"""Decision records as lines of JSON in a file that is put aside when it grows too large.

``records.jsonl`` is the file in use, ``records.jsonl.1`` the one before it, and so on.  A process
owns its file alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shared_scheduler.records.errors import RecordsError

BYTES_PER_MB = 1_000_000


class JsonLines:
    """Appends; one thread uses it."""

    def __init__(self, path: Path, max_mb: int, kept: int) -> None:
        """``max_mb``: size of one file; ``kept``: number of files, the one in use included.

        :raises RecordsError: the file cannot be opened for writing
        """
        self._path = path
        self._max_bytes = max_mb * BYTES_PER_MB
        self._kept = kept
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab")
        except OSError as error:
            remedy = "name a file that the scheduler may write, or leave it empty"
            raise RecordsError("records_file", error, remedy) from error

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append each record as one line, then flush.

        :raises OSError: the disk is full, or the file cannot be written
        """
        if self._file.closed:  # it could not be put aside the last time
            self._file = self._path.open("ab")
        for record in records:
            line = json.dumps(record, separators=(",", ":"), default=str).encode() + b"\n"
            if self._file.tell() and self._file.tell() + len(line) > self._max_bytes:
                self._rotate()
            self._file.write(line)
        self._file.flush()

    def close(self) -> None:
        """Close the file; what was written is on its way to the disk."""
        self._file.close()

    def _rotate(self) -> None:
        self._file.close()
        for number in range(self._kept - 1, 0, -1):
            older = self._numbered(number)
            newer = self._numbered(number - 1)
            if newer.exists():
                newer.replace(older)
        self._file = self._path.open("wb" if self._kept == 1 else "ab")

    def _numbered(self, number: int) -> Path:
        return self._path if number == 0 else self._path.with_name(f"{self._path.name}.{number}")
