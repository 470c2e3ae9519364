# SPDX-License-Identifier: Apache-2.0
"""The index of one file of records: at which offsets the lines with a mark begin, and the reasons of failures.

A *mark* is a name of a record, or a value of it that a question may require (``store.marks_of``).  The file ``.marks``
has entries of 16 bytes: the digest of a mark, and the offset of a line with that mark.  An entry with the digest
``COVERED`` ends each addition; its offset is the end of the data that is indexed so far.  The file ``.reasons`` has a
line for each record with a reason: its offset, and the reasons as JSON, which are searched for a part of them.

Both files only grow, so a reader needs no lock.  A digest may stand for two marks, and a writer that is killed may
leave reasons of a line twice, so a reader checks the lines that it gets.  What was written but not indexed is indexed
by the next writer (``JsonLines``); a reader reads it line by line.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from shared_scheduler.records.store import FILE_MODE, Record, marks_of, part_of_reasons, reasons_text

Offsets = npt.NDArray[np.uint64]

ENTRY = np.dtype([("digest", "<u8"), ("offset", "<u8")])
COVERED = 0


class LineIndex:
    """The index of a data file.  Its name is the inode of that file, so it stays valid when the file is renamed."""

    def __init__(self, directory: Path, inode: int) -> None:
        self._marks = directory / f"{inode}.marks"
        self._reasons = directory / f"{inode}.reasons"

    def covered(self) -> int:
        """The size of the data that is indexed; 0 if there is no index."""
        with mapped(self._marks) as data:
            end = len(data) // ENTRY.itemsize * ENTRY.itemsize
            last = np.frombuffer(data[max(0, end - ENTRY.itemsize) : end], ENTRY)
        return int(last["offset"][0]) if len(last) and last["digest"][0] == COVERED else 0

    def offsets(self, marks: Sequence[str], reason: str = "") -> Offsets:
        """Where lines begin that probably have all these marks and this part of a reason, in order."""
        found = list(self._with_marks(marks))
        if reason:
            found.append(_in_order(np.fromiter(self._with_reason(reason), np.uint64)))
        return reduce(_in_both, found)

    def _with_marks(self, marks: Sequence[str]) -> Iterator[Offsets]:
        count = self._marks.stat().st_size // ENTRY.itemsize if marks else 0
        entries = np.memmap(self._marks, ENTRY, "r", shape=(count,)) if count else np.empty(0, ENTRY)
        for mark in marks:
            yield _in_order(np.asarray(entries["offset"][entries["digest"] == _digest(mark)]))

    def _with_reason(self, reason: str) -> Iterator[int]:
        part = part_of_reasons(reason).encode()
        with mapped(self._reasons) as mapping:
            data = mapping[:]  # bytes are searched ten times as fast as a map
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
        entries, reasons = [], []
        for offset, record in records:
            entries += [(_digest(mark), offset) for mark in marks_of(record)]
            if text := reasons_text(record):
                reasons.append(f"{offset} {text}\n")
        if reasons:
            _append(self._reasons, "".join(["\n", *reasons]).encode(), 1)  # the first ends what a killed writer left
        _append(self._marks, np.array([*entries, (COVERED, covered)], ENTRY).tobytes(), ENTRY.itemsize)

    def remove(self) -> None:
        """Forget everything, because the inode belongs to other data now."""
        for path in (self._marks, self._reasons):
            path.unlink(missing_ok=True)


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
    """Append the data after whole units; a killed writer may have left a part of one."""
    number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
    try:
        os.truncate(number, os.fstat(number).st_size // unit * unit)
        os.write(number, data)
    finally:
        os.close(number)


def _digest(mark: str) -> int:
    """Never ``COVERED``."""
    found = hashlib.blake2b(mark.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(found, "little") or 1


@contextmanager
def mapped(path: Path) -> Iterator[Any]:
    """The content of a file, which is not read into memory; empty if there is no such file.

    :raises OSError: when the file cannot be read
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        yield b""
        return
    with file, mapped_file(file) as content:
        yield content


@contextmanager
def mapped_file(file: BinaryIO) -> Iterator[Any]:
    """The content of an open file, as of ``mapped``."""
    if not os.fstat(file.fileno()).st_size:
        yield b""  # an empty file cannot be mapped
        return
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content
