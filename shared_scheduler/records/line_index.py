# SPDX-License-Identifier: Apache-2.0
"""The index of one file of records: where lines with a mark or of a time begin, and the reasons of failures.

A *mark* is a name of a record, or a value of it that a question may require (``store.marks_of``).  The file ``.marks``
has entries of 16 bytes: the digest of a mark, and the offset of a line with that mark.  An entry with the digest
``COVERED`` ends each addition; its offset is the end of the data that is indexed so far.  The file ``.times`` has an
entry for each record: its time and its offset, and one without a time at the end of each addition.  The times are in no
order, because a clock may be set back.  The file ``.reasons`` has a line for each record with a reason: its offset, and
the reasons as JSON, which are searched for a part of them.

All files only grow, so a reader needs no lock.  A digest may stand for two marks, and a writer that is killed may
leave a line twice, so a reader checks the lines that it gets.  What was written but not indexed is indexed by the next
writer (``JsonLines``); a reader reads it line by line.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared_scheduler.records.store import FILE_MODE, Record, RecordConditions, marks_of, part_of_reasons, reasons_text

Offsets = npt.NDArray[np.uint64]

MARK = np.dtype([("digest", "<u8"), ("offset", "<u8")])
TIME = np.dtype([("at", "<f8"), ("offset", "<u8")])
COVERED = 0
NO_TIME = float("nan")
#: Entries of many marks are searched by this many of the lowest bits of their digests first.
LOW_BITS = 16


class LineIndex:
    """The index of a data file.  Its name is the inode of that file, so it stays valid when the file is renamed."""

    def __init__(self, directory: Path, inode: int) -> None:
        self._marks = directory / f"{inode}.marks"
        self._times = directory / f"{inode}.times"
        self._reasons = directory / f"{inode}.reasons"

    def covered(self) -> int:
        """The size of the data that is indexed; 0 if there is no index, or one of a release without times."""
        last_mark, last_time = _last(self._marks, MARK), _last(self._times, TIME)
        if last_mark is None or last_time is None or last_mark["digest"] != COVERED or not np.isnan(last_time["at"]):
            return 0
        return min(int(last_mark["offset"]), int(last_time["offset"]))

    def offsets(self, wanted: RecordConditions) -> Offsets:
        """Where lines begin that probably meet all conditions, in order.  At least one is ``is_indexed``."""
        return reduce(_in_both, self._found(wanted))

    def _found(self, wanted: RecordConditions) -> Iterator[Offsets]:
        marks = wanted.marks()
        entries = _entries(self._marks, MARK) if marks or wanted.names else np.empty(0, MARK)
        for mark in marks:
            yield _in_order(np.asarray(entries["offset"][entries["digest"] == _digest(mark)]))
        if wanted.names:
            yield _in_order(_with_any(entries, wanted.names))
        if wanted.reason:
            yield _in_order(np.fromiter(self._with_reason(wanted.reason), np.uint64))
        if wanted.since_s is not None or wanted.until_s is not None:
            yield self._of_time(wanted.since_s, wanted.until_s)

    def _of_time(self, since_s: float | None, until_s: float | None) -> Offsets:
        entries = _entries(self._times, TIME)
        found = ~np.isnan(entries["at"])
        if since_s is not None:
            found &= entries["at"] >= since_s
        if until_s is not None:
            found &= entries["at"] <= until_s
        return _in_order(np.asarray(entries["offset"][found]))

    def _with_reason(self, reason: str) -> Iterator[int]:
        part = part_of_reasons(reason).encode()
        data = self._reasons.read_bytes() if self._reasons.exists() else b""
        place = data.find(part)
        while place >= 0:
            offset, _, text = data[data.rfind(b"\n", 0, place) + 1 : place].partition(b" ")
            if text:  # otherwise the part was found in an offset
                yield int(offset)
            place = data.find(part, data.find(b"\n", place) if text else place + 1)

    def add(self, records: Iterable[tuple[int, Record]], covered: int) -> None:
        """Add the records of lines, each with its offset; all data up to ``covered`` is indexed after that.

        :raises OSError: when the index cannot be written
        """
        marks, times, reasons = [], [], []
        for offset, record in records:
            marks += [(_digest(mark), offset) for mark in marks_of(record)]
            times.append((float(record["at"]), offset))
            if text := reasons_text(record):
                reasons.append(f"{offset} {text}\n")
        if reasons:
            _append(self._reasons, "".join(["\n", *reasons]).encode(), 1)  # the first ends what a killed writer left
        _append(self._times, np.array([*times, (NO_TIME, covered)], TIME).tobytes(), TIME.itemsize)
        _append(self._marks, np.array([*marks, (COVERED, covered)], MARK).tobytes(), MARK.itemsize)

    def remove(self) -> None:
        """Forget everything, because the inode belongs to other data now."""
        for path in (self._marks, self._times, self._reasons):
            path.unlink(missing_ok=True)


def is_indexed(wanted: RecordConditions) -> bool:
    """Whether an index finds records that meet these conditions; all records meet the others."""
    return wanted != RecordConditions()


def _entries(path: Path, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """The whole entries of a file; none if there is no such file."""
    count = path.stat().st_size // kind.itemsize if path.exists() else 0
    return np.memmap(path, kind, "r", shape=(count,)) if count else np.empty(0, kind)


def _last(path: Path, kind: np.dtype[Any]) -> Any:
    """The last whole entry of a file; None if there is none."""
    try:
        with path.open("rb") as file:
            count = os.fstat(file.fileno()).st_size // kind.itemsize
            data = os.pread(file.fileno(), kind.itemsize, (count - 1) * kind.itemsize) if count else b""
    except FileNotFoundError:
        return None
    return np.frombuffer(data, kind)[0] if len(data) == kind.itemsize else None


def _with_any(entries: npt.NDArray[Any], names: Collection[str]) -> Offsets:
    """Where lines begin that probably have one of these names."""
    wanted = np.array([_digest(name) for name in names], np.uint64)
    digests = entries["digest"]
    if len(wanted) == 1:
        return np.asarray(entries["offset"][digests == wanted[0]])
    low = np.uint64((1 << LOW_BITS) - 1)
    possible = np.zeros(1 << LOW_BITS, bool)
    possible[wanted & low] = True
    places = np.flatnonzero(possible[digests & low])
    return np.asarray(entries["offset"][places[np.isin(digests[places], wanted)]])


def _in_order(offsets: Offsets) -> Offsets:
    """The offsets in order, each once; as a rule they are already."""
    return offsets if bool((offsets[1:] > offsets[:-1]).all()) else np.unique(offsets)


def _in_both(one: Offsets, other: Offsets) -> Offsets:
    """What two arrays that are in order have in common; the shorter one is searched in the longer one."""
    short, long = (one, other) if len(one) <= len(other) else (other, one)
    places = np.searchsorted(long, short)
    there = places < len(long)
    there[there] = long[places[there]] == short[there]
    return short[there]


def _append(path: Path, data: bytes, unit: int) -> None:
    """Append the data after whole units; a killed writer may have left a part of one.

    :raises OSError: when the disk does not take all of it
    """
    number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
    try:
        os.truncate(number, os.fstat(number).st_size // unit * unit)
        written = os.write(number, data)
        if written < len(data):  # otherwise the entry that ends the addition may follow what is not there
            raise OSError(f"only {written} of {len(data)} bytes were written to {path}")
    finally:
        os.close(number)


def _digest(mark: str) -> int:
    """Never ``COVERED``."""
    found = hashlib.blake2b(mark.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(found, "little") or 1
