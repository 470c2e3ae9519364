# SPDX-License-Identifier: Apache-2.0
"""The content of a file that others may cut while it is read."""

from __future__ import annotations

import os
from typing import BinaryIO

#: Bytes that are searched at once; most lines have fewer.
PART_BYTES = 4_096


class FileBytes:
    """The bytes that an open file has when it is made, read where they are asked for.

    A file that is mapped into memory ends the process that reads behind the end of the file, as after ``copytruncate``
    of logrotate.  Here, what was cut off is empty.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._number = file.fileno()
        self._size = os.fstat(self._number).st_size

    def __len__(self) -> int:
        return self._size

    def part(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` to before ``end`` that are in the file.

        :raises OSError: when the file cannot be read
        """
        start = max(start, 0)
        return os.pread(self._number, max(min(end, self._size) - start, 0), start)

    def next_line(self, start: int) -> int:
        """Where the line ends to which ``start`` belongs, behind its line feed; 0 if it has none.

        :raises OSError: when the file cannot be read
        """
        for place in range(start, self._size, PART_BYTES):
            found = self.part(place, place + PART_BYTES).find(b"\n")
            if found >= 0:
                return place + found + 1
        return 0

    def line_before(self, first: int, end: int) -> int:
        """Where the last line begins that begins before ``end``, which is the end of a line; at least ``first``.

        :raises OSError: when the file cannot be read
        """
        last = end - 1  # without its own line feed
        while last > first:
            place = max(last - PART_BYTES, first)
            found = self.part(place, last).rfind(b"\n")
            if found >= 0:
                return place + found + 1
            last = place
        return first
