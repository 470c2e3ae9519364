# SPDX-License-Identifier: Apache-2.0
"""The store of records as lines of JSON in a file that is rotated by size.

``records.jsonl`` is the current file, ``records.jsonl.1`` the one before it, and so on.  logrotate may move the current
file as well: before each write, the path is compared with the open file, and opened again if it is another one.  All
schedulers of a machine may write to one path, because each write and each rotation holds a lock.

``records.jsonl.index`` is a directory with the lock and one index per file (``line_index.py``).  Reading takes no lock
and needs no right to write.  Compressed files are not read.

A question searches its conditions in the index of each file, and reads the lines that are not indexed yet.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from shared_scheduler.records.errors import FILE, RecordsError
from shared_scheduler.records.file_bytes import FileBytes
from shared_scheduler.records.line_index import LineIndex, is_indexed
from shared_scheduler.records.record_shape import read_record
from shared_scheduler.records.store import (
    FILE_MODE,
    FOUND_MAX,
    SECONDS_PER_DAY,
    Record,
    RecordConditions,
    as_current,
    text_of,
)

BYTES_PER_MB = 1_000_000
#: The end of the name of a file in the archive, which may be the directory of the records as well: time and inode.
ARCHIVED = re.compile(r"\.\d{8}-\d{6}\.\d+$")
#: The end of the name of a file that was rotated; a longer number is a date.
NUMBERED = re.compile(r"\.\d{1,5}")
DIRECTORY_MODE = 0o750
#: A file is rotated at this part of the greatest age as well, so that records leave soon after they are too old.
AGE_PARTS = 4
#: how often files are listed for one question: again if there was one that was not read, because writers rename them
LISTINGS_MAX = 4
#: what logrotate adds to the names of files that are not read
COMPRESSED = frozenset({".gz", ".xz", ".bz2", ".zst"})


class JsonLines:
    """See ``store.Store``.  Nothing is opened before the first write: a scheduler starts without its records."""

    def __init__(
        self, path: Path, max_mb: int = 100, kept: int | None = 5, days_max: float = 0, archive: Path | None = None
    ) -> None:
        """``max_mb``: size of one file; ``kept``: number of files, the current one included, None for all.

        ``days_max``: age of the oldest records, 0 for any.  ``archive``: directory for the files that leave.
        """
        self._path = path
        self._indexes = path.with_name(f"{path.name}.index")
        self._max_bytes = max_mb * BYTES_PER_MB
        self._kept = kept
        self._age_max_s = days_max * SECONDS_PER_DAY
        self._archive = archive
        self._number: int | None = None  # of the open file

    # -- writing

    def write(self, records: Iterable[Record]) -> None:
        """Append each record as one line.

        :raises RecordRefused: when one of them is not a record
        :raises OSError: when the disk is full, or the file cannot be written or rotated
        """
        lines = [(f"{text_of(record)}\n".encode(), record) for record in records]
        with self._locked():
            while lines:
                start = self._open_current()
                if start and start + len(lines[0][0]) > self._max_bytes:
                    self._rotate()
                    continue
                fitting = list(_fitting(lines, self._max_bytes - start))
                text = b"".join(line for line, _ in fitting)
                self._append(text)
                self._index().add(_placed(fitting, start), start + len(text))
                del lines[: len(fitting)]

    def close(self) -> None:
        """Close the file.  Each record was passed to the operating system when it was written."""
        if self._number is not None:
            os.close(self._number)
            self._number = None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the path; the end of the process releases it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._indexes.mkdir(DIRECTORY_MODE, exist_ok=True)
        number = os.open(self._indexes / "lock", os.O_WRONLY | os.O_CREAT, FILE_MODE)
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            yield
        finally:
            os.close(number)

    def _open_current(self) -> int:
        """Open the file at the path unless it is open, and complete its index.  Returns its size."""
        if self._number is None or not self._is_at_path():
            self.close()
            self._number = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, FILE_MODE)
        size, index = os.fstat(self._number).st_size, self._index()
        covered = index.covered()
        if not 0 < covered <= size:  # truncated, or a new file with the inode of a deleted one
            index.remove()
            covered = 0
        return size if covered == size else self._complete(index, covered)

    def _is_at_path(self) -> bool:
        assert self._number is not None
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._number))
        except FileNotFoundError:
            return False

    def _complete(self, index: LineIndex, covered: int) -> int:
        """Index what a writer that was killed has left, and end its last line.  Returns the size of the data."""
        with self._path.open("rb") as file:
            data = FileBytes(file)
            if data.part(len(data) - 1, len(data)) != b"\n":
                self._append(b"\n")
                data = FileBytes(file)
            index.add(_records(data, _lines(data, covered)), len(data))
        return len(data)

    def _append(self, line: bytes) -> None:
        assert self._number is not None
        written = os.write(self._number, line)
        if written < len(line):
            raise OSError(f"only {written} of {len(line)} bytes were written to {self._path}")

    def _index(self) -> LineIndex:
        assert self._number is not None
        return LineIndex(self._indexes, os.fstat(self._number).st_ino)

    def _rotate(self) -> None:
        """Rename each file to the next number; the one beyond ``kept`` leaves."""
        names = [self._path]
        while names[-1].exists() and len(names) != self._kept:
            names.append(self._path.with_name(f"{self._path.name}.{len(names)}"))
        self._leave(names[-1])
        for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
            newer.replace(older)
        self.close()
        self._remove_indexes()

    def _leave(self, path: Path) -> None:
        """Delete a file, or move it to the archive."""
        if self._archive is None or not path.exists():
            path.unlink(missing_ok=True)
            return
        self._archive.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        status = path.stat()
        ended = time.strftime("%Y%m%d-%H%M%S", time.gmtime(status.st_mtime))
        shutil.move(path, self._archive / f"{self._path.name}.{ended}.{status.st_ino}")

    def _remove_indexes(self) -> None:
        """Remove the indexes of files that have left."""
        there = {str(path.stat().st_ino) for path in self._files()}
        for index in self._indexes.iterdir():
            if index.name != "lock" and not (index.suffix and index.stem in there):
                index.unlink(missing_ok=True)

    def retain(self, now_s: float) -> bool:
        """See ``store.Store``.  A step is one file."""
        if not self._age_max_s or not self._indexes.exists():
            return False
        with self._locked():
            if self._began_at(self._path) < now_s - self._age_max_s / AGE_PARTS:
                self._rotate()
            there = [path for path in self._files() if not ARCHIVED.search(path.name)]
            oldest = min(there, key=lambda path: path.stat().st_mtime, default=self._path)
            if oldest == self._path or oldest.stat().st_mtime >= now_s - self._age_max_s:
                return False
            self._leave(oldest)
            self._remove_indexes()
            return True

    @staticmethod
    def _began_at(path: Path) -> float:
        """The time of the first record of a file; infinite if it has none."""
        if not path.exists():
            return float("inf")
        with path.open("rb") as file:
            data = FileBytes(file)
            _, first = next(_records(data, _lines(data, 0)), (0, {"at": float("inf")}))
        return float(first["at"])

    # -- reading

    def find(self, name: str) -> list[Record]:
        """See ``store.Store``."""
        return self.last(FOUND_MAX, RecordConditions(names=frozenset({name})))

    def last(self, count: int, wanted: RecordConditions) -> list[Record]:
        """See ``store.Store``."""
        try:
            if not (self._path.parent.is_dir() and self._files()):
                raise FileNotFoundError(f"there is no file {self._path}")
            found = list(islice(self._matching(wanted), count))
        except OSError as error:
            remedy = "name it with --config-file or --records, and read it as a user of its group"
            raise RecordsError(FILE, error, remedy) from error
        return sorted(found, key=lambda record: float(record["at"]))

    def _matching(self, wanted: RecordConditions) -> Iterator[Record]:
        for inode, data in self._contents():
            for _, record in _records(data, self._candidates(inode, data, wanted)):
                if wanted.accepts(record):
                    yield record

    def _contents(self) -> Iterator[tuple[int, FileBytes]]:
        """The inode and the content of each file, newest first; each once, although a writer may rename them."""
        read: set[int] = set()
        for _ in range(LISTINGS_MAX):
            before = len(read)
            for path in self._files():
                with suppress(FileNotFoundError), path.open("rb") as file:
                    inode = os.fstat(file.fileno()).st_ino
                    if inode not in read:
                        read.add(inode)
                        yield inode, FileBytes(file)
            if len(read) == before:
                return

    def _candidates(self, inode: int, data: FileBytes, wanted: RecordConditions) -> Iterator[int]:
        """Where lines begin that may match, last first: those not indexed yet, then those that the index finds."""
        index = LineIndex(self._indexes, inode)
        covered = index.covered() if is_indexed(wanted) else 0
        if covered > len(data):  # of a file that was truncated
            covered = 0
        yield from _lines_backwards(data, covered)
        if covered:
            found = index.offsets(wanted)
            yield from map(int, found[found < covered][::-1])

    def _files(self) -> list[Path]:
        """The current file and the rotated ones, newest first."""
        found: dict[int, tuple[tuple[int, int], Path]] = {}
        for path in self._path.parent.iterdir():
            if path.name.startswith(self._path.name) and path.suffix not in COMPRESSED and path.is_file():
                with suppress(FileNotFoundError):  # renamed at this moment
                    status = path.stat()
                    found[status.st_ino] = (self._rank(path.name, status.st_mtime_ns), path)
        return [path for _, path in sorted(found.values())]

    def _rank(self, name: str, changed_ns: int) -> tuple[int, int]:
        """Less for newer files: the current one, then by number, then by time, which a clock that is set may change."""
        suffix = name.removeprefix(self._path.name)
        if NUMBERED.fullmatch(suffix):
            return 1, int(suffix[1:])
        return (2, -changed_ns) if suffix else (0, 0)


#: a line, and its record
Line = tuple[bytes, Record]


def _fitting(lines: Iterable[Line], room: int) -> Iterator[Line]:
    """The first lines that have room together; the first one in any case."""
    for number, line in enumerate(lines):
        room -= len(line[0])
        if number and room < 0:
            return
        yield line


def _placed(lines: Iterable[Line], start: int) -> Iterator[tuple[int, Record]]:
    """Where each line begins, and its record."""
    for line, record in lines:
        yield start, record
        start += len(line)


def _lines(data: FileBytes, start: int) -> Iterator[int]:
    """Where lines begin, from ``start`` on."""
    while start < len(data):
        yield start
        start = data.next_line(start) or len(data)


def _lines_backwards(data: FileBytes, first: int) -> Iterator[int]:
    """Where lines begin, from the last one back to ``first``, which is one of them."""
    end = len(data)
    while end > first:
        end = data.line_before(first, end)
        yield end


def _records(data: FileBytes, starts: Iterable[int]) -> Iterator[tuple[int, Record]]:
    """The records at these places; a line that a killed writer left half is no record."""
    for start in starts:
        end = data.next_line(start)
        record = read_record(data.part(start, end)) if end else None
        if record is not None:
            yield start, as_current(record)
