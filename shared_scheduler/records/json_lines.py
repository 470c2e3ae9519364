# SPDX-License-Identifier: Apache-2.0
"""The store of records as lines of JSON in a file that is rotated by size.

``records.jsonl`` is the current file, ``records.jsonl.1`` the one before it, and so on.  logrotate may move the current
file as well: before each write, the path is compared with the open file, and opened again if it is another one.  All
schedulers of a machine may write to one path, because each write and each rotation holds a lock.

``records.jsonl.index`` is a directory with the lock and one index per file (``line_index.py``).  Reading takes no lock
and needs no right to write.  Compressed files are not read.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from shared_scheduler.records.errors import RecordsError
from shared_scheduler.records.line_index import LineIndex, mapped
from shared_scheduler.records.store import FILE_MODE, FOUND_MAX, Record, Wanted, as_current, names_of

BYTES_PER_MB = 1_000_000
DIRECTORY_MODE = 0o750
#: What is read at a time to find the last records.
BLOCK_BYTES = 1 << 20
#: what logrotate adds to the names of files that are not read
COMPRESSED = frozenset({".gz", ".xz", ".bz2", ".zst"})


class JsonLines:
    """See ``store.Store``.  Nothing is opened before the first write: a scheduler starts without its records."""

    def __init__(self, path: Path, max_mb: int = 100, kept: int = 5) -> None:
        """``max_mb``: size of one file; ``kept``: number of files, the current one included."""
        self._path = path
        self._indexes = path.with_name(f"{path.name}.index")
        self._max_bytes = max_mb * BYTES_PER_MB
        self._kept = kept
        self._number: int | None = None  # of the open file

    # -- writing

    def write(self, records: Iterable[Record]) -> None:
        """Append each record as one line.

        :raises OSError: when the disk is full, or the file cannot be written or rotated
        """
        lines = [(_line(record), tuple(names_of(record))) for record in records]
        with self._locked():
            while lines:
                start = self._open_current()
                if start and start + len(lines[0][0]) > self._max_bytes:
                    self._rotate()
                    continue
                fitting = list(_fitting(lines, self._max_bytes - start))
                text = b"".join(line for line, _ in fitting)
                self._append(text)
                self._index().add(_placed(fitting, start), start + len(text), FILE_MODE)
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
        with mapped(self._path) as data:
            found = [(start, names_of(record)) for start, record in _records(data, _lines(data, covered))]
            size, ends = len(data), data[len(data) - 1] == ord("\n")
        if not ends:
            self._append(b"\n")
        index.add(found, size + (not ends), FILE_MODE)
        return size + (not ends)

    def _append(self, line: bytes) -> None:
        assert self._number is not None
        written = os.write(self._number, line)
        if written < len(line):
            raise OSError(f"only {written} of {len(line)} bytes were written to {self._path}")

    def _index(self) -> LineIndex:
        assert self._number is not None
        return LineIndex(self._indexes, os.fstat(self._number).st_ino)

    def _rotate(self) -> None:
        """Rename each file to the next number; the last one goes."""
        names = [self._path, *(self._path.with_name(f"{self._path.name}.{n}") for n in range(1, self._kept))]
        names[-1].unlink(missing_ok=True)
        for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
            if newer.exists():
                newer.replace(older)
        self.close()
        there = {str(path.stat().st_ino) for path in self._files()}
        for index in self._indexes.iterdir():
            if index.name != "lock" and index.name not in there:
                index.unlink(missing_ok=True)

    # -- reading

    def find(self, name: str) -> list[Record]:
        """See ``store.Store``."""
        return self._newest(partial(self._named, name), FOUND_MAX)

    def last(self, count: int, wanted: Wanted) -> list[Record]:
        """See ``store.Store``."""
        return self._newest(partial(_wanted, wanted), count)

    def _newest(self, read: Callable[[Path, Any], Iterator[Record]], count: int) -> list[Record]:
        """The first ``count`` records that ``read`` finds in the files, newest file first; returned oldest first."""
        try:
            found = list(islice(self._read_all(read), count))
        except OSError as error:
            raise RecordsError("records_file", error, "read it as a user of its group") from error
        return sorted(found, key=lambda record: float(record["at"]))

    def _read_all(self, read: Callable[[Path, Any], Iterator[Record]]) -> Iterator[Record]:
        for path in self._files():
            with mapped(path) as data:
                yield from read(path, data)

    def _files(self) -> list[Path]:
        """The current file and the rotated ones, newest first."""
        found: dict[int, tuple[int, Path]] = {}
        for path in self._path.parent.iterdir():
            if path.name.startswith(self._path.name) and path.suffix not in COMPRESSED and path.is_file():
                status = path.stat()
                found[status.st_ino] = (status.st_mtime_ns, path)
        return [path for _, path in sorted(found.values(), reverse=True)]

    def _named(self, name: str, path: Path, data: Any) -> Iterator[Record]:
        """Records with this name, newest first: those of the index, and those that are not indexed yet."""
        index = LineIndex(self._indexes, path.stat().st_ino)
        covered = index.covered()
        if covered > len(data):  # of a file that was truncated
            covered = 0
        starts = dict.fromkeys(index.offsets(name)[-FOUND_MAX:] if covered else ())
        found = [record for _, record in _records(data, [*starts, *_lines(data, covered)]) if name in names_of(record)]
        yield from reversed(found)


def _wanted(wanted: Wanted, _: Path, data: Any) -> Iterator[Record]:
    """Wanted records, newest first.  Lines without a text that each wanted one has are not parsed."""
    text = _text_of_all(wanted)
    for block in _blocks_backwards(data):
        for line in reversed(block.splitlines(keepends=True)) if text in block else ():
            for _start, record in _records(line, [0] if text in line else ()):
                if wanted.is_behind(record):
                    return
                if wanted.accepts(record):
                    yield record


def _text_of_all(wanted: Wanted) -> bytes:
    """A text that the line of each wanted record contains; of several, the one that the fewest lines contain."""
    texts = (wanted.reason, wanted.project, wanted.host, wanted.result, wanted.kind)
    return json.dumps(next(filter(None, texts), ""))[1:-1].encode()


#: a line, and the names of its record
Line = tuple[bytes, tuple[str, ...]]


def _fitting(lines: Iterable[Line], room: int) -> Iterator[Line]:
    """The first lines that have room together; the first one in any case."""
    for number, line in enumerate(lines):
        room -= len(line[0])
        if number and room < 0:
            return
        yield line


def _placed(lines: Iterable[Line], start: int) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Where each line begins, and its names."""
    for line, names in lines:
        yield start, names
        start += len(line)


def _line(record: Record) -> bytes:
    return json.dumps(record, separators=(",", ":"), default=str).encode() + b"\n"


def _lines(data: Any, start: int) -> Iterator[int]:
    """Where lines begin, from ``start`` on."""
    while start < len(data):
        yield start
        end = data.find(b"\n", start)
        start = len(data) if end < 0 else end + 1


def _blocks_backwards(data: Any) -> Iterator[bytes]:
    """Whole lines of about ``BLOCK_BYTES`` together, the last ones first."""
    end = len(data)
    while end > 0:
        start = data.find(b"\n", end - BLOCK_BYTES, end - 1) + 1 if end > BLOCK_BYTES else 0
        if end > BLOCK_BYTES and not start:  # a line that is longer than a block
            start = data.rfind(b"\n", 0, end - 1) + 1
        yield data[start:end]
        end = start


def _records(data: Any, starts: Iterable[int]) -> Iterator[tuple[int, Record]]:
    """The records at these places; a line that a killed writer left half is no record."""
    for start in starts:
        end = data.find(b"\n", start)
        try:
            record = json.loads(data[start:end]) if end >= 0 else None
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("at"), int | float):
            yield start, as_current(record)


