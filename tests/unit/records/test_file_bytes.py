# SPDX-License-Identifier: Apache-2.0
"""Lines of a file are found forwards and backwards, whatever their length, and also while the file is cut."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from shared_scheduler.records.file_bytes import PART_BYTES, FileBytes

#: lengths of lines without their line feeds: those of a part, one more and one less, and several parts
LENGTHS = (0, 5, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, 1)
LINES = [b"x" * length + b"\n" for length in LENGTHS]
STARTS = [sum(map(len, LINES[:number])) for number in range(len(LINES))]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[BinaryIO]:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(LINES))
    with path.open("rb") as opened:
        yield opened


def test_each_line_is_found_from_either_side(file: BinaryIO) -> None:
    data = FileBytes(file)

    ends = [data.next_line(start) for start in STARTS]

    assert ends == [*STARTS[1:], len(data)]
    assert [data.line_before(0, end) for end in ends] == STARTS
    assert [data.part(start, end) for start, end in zip(STARTS, ends, strict=True)] == LINES


def test_a_search_backwards_ends_where_it_may(file: BinaryIO) -> None:
    data = FileBytes(file)

    assert data.line_before(STARTS[5], len(data) - len(LINES[6])) == STARTS[5]
    assert data.line_before(STARTS[6], len(data)) == STARTS[6]


def test_a_line_without_an_end_has_none(tmp_path: Path) -> None:
    path = tmp_path / "half"
    path.write_bytes(b"one\ntw")
    with path.open("rb") as opened:
        assert FileBytes(opened).next_line(4) == 0


def test_what_was_cut_off_is_empty(file: BinaryIO) -> None:
    # given a reader that knows the size of the file, and a file that is cut
    data = FileBytes(file)
    os.truncate(file.name, 3)

    assert len(data) == sum(map(len, LINES))
    assert data.next_line(STARTS[4]) == 0
    assert data.part(STARTS[4], len(data)) == b""
    assert data.line_before(0, len(data)) == 1, "what is left is found"


def test_an_empty_file_has_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with (tmp_path / "empty").open("rb") as opened:
        data = FileBytes(opened)
        assert (len(data), data.part(-1, 0), data.next_line(0)) == (0, b"", 0)
