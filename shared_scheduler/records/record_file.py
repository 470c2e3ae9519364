# SPDX-License-Identifier: Apache-2.0
"""A file of records, read from its beginning to its end, any number of times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from shared_scheduler.records.errors import RecordsError
from shared_scheduler.records.store import DECISION, Record, as_current

#: The field of what stands for a line that is not a record.
DAMAGED = "damaged"


class RecordFile:
    """A line of JSON for each record, as a scheduler or ``records --format json`` writes it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[Record]:
        """:raises RecordsError: when the file cannot be read"""
        try:
            with self._path.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    yield _record(line, number)
        except OSError as error:
            raise RecordsError(str(self._path), error, "name a file of records that you may read") from error


def _record(line: bytes, number: int) -> Record:
    try:
        found = as_current(json.loads(line))
        return {**found, "at": float(found["at"])}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {"kind": DECISION, "at": 0.0, "request_id": f"line {number}", DAMAGED: True}
