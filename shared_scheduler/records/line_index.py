# SPDX-License-Identifier: Apache-2.0
"""The index of one file of records: at which offsets the lines with a name begin.

An index is a file of entries of 16 bytes: the digest of a name, and the offset of a line with that name.  An entry
with the digest ``COVERED`` ends each addition; its offset is the end of the data that is indexed so far.  Entries are
only added, so a reader needs no lock.  A digest may stand for two names, so a reader checks the lines that it gets.

What was written but not indexed, because its writer was killed between the two, is indexed by the next writer
(``JsonLines``); a reader reads it line by line.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

ENTRY = struct.Struct("<8sQ")
COVERED = bytes(8)
#: What is searched at a time.
BLOCK_BYTES = ENTRY.size << 16


class LineIndex:
    """The index of a data file.  Its name is the inode of that file, so it stays valid when the file is renamed."""

    def __init__(self, directory: Path, inode: int) -> None:
        self._path = directory / str(inode)

    def covered(self) -> int:
        """The size of the data that is indexed; 0 if there is no index."""
        try:
            with self._path.open("rb") as file:
                whole = file.seek(0, os.SEEK_END) // ENTRY.size
                if not whole:
                    return 0
                file.seek((whole - 1) * ENTRY.size)
                digest, offset = ENTRY.unpack(file.read(ENTRY.size))
        except FileNotFoundError:
            return 0
        return int(offset) if digest == COVERED else 0

    def offsets(self, name: str) -> list[int]:
        """Where lines begin that probably have this name, in order."""
        wanted = _digest(name)
        with mapped(self._path) as entries:
            blocks = (entries[start : start + BLOCK_BYTES] for start in range(0, len(entries), BLOCK_BYTES))
            return [offset for block in blocks for offset in _offsets(block, wanted)]

    def add(self, lines: Iterable[tuple[int, Iterable[str]]], covered: int, mode: int) -> None:
        """Add lines, as their offset and their names; all data up to ``covered`` is indexed after that.

        :raises OSError: when the index cannot be written
        """
        entries = [ENTRY.pack(_digest(name), offset) for offset, names in lines for name in names]
        number = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode)
        try:
            os.truncate(number, os.fstat(number).st_size // ENTRY.size * ENTRY.size)  # a killed writer left a part
            os.write(number, b"".join((*entries, ENTRY.pack(COVERED, covered))))
        finally:
            os.close(number)

    def remove(self) -> None:
        """Forget everything, because the inode belongs to other data now."""
        self._path.unlink(missing_ok=True)


def _offsets(block: bytes, digest: bytes) -> Iterator[int]:
    """The offsets of the entries with this digest in whole entries."""
    place = block.find(digest)  # of bytes, which searches ten times as fast as find of a map
    while place >= 0:
        if place % ENTRY.size == 0 and place + ENTRY.size <= len(block):
            yield ENTRY.unpack_from(block, place)[1]
        place = block.find(digest, place + 1)


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()


@contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap | bytes]:
    """The content of a file, which is not read into memory; empty if there is no such file.

    :raises OSError: when the file cannot be read
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        yield b""
        return
    with file:
        if not os.fstat(file.fileno()).st_size:
            yield b""  # an empty file cannot be mapped
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield content
