# SPDX-License-Identifier: Apache-2.0
"""Lines that meet several conditions are found, in whatever order and however often writers have indexed them."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.records.line_index import LineIndex
from shared_scheduler.records.store import RecordConditions


def entry(offset: int, kind: str, result: str) -> tuple[int, dict[str, Any]]:
    return offset, {
        "at": float(offset), "kind": kind, "result": result, "reason": "no room" if result == "failed" else "",
        "instances": [f"i-{offset}"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (RecordConditions(kind="build"), [10, 30, 50]),
        (RecordConditions(kind="build", result="failed"), [30, 50]),
        (RecordConditions(kind="build", result="failed", reason="room"), [30, 50]),
        (RecordConditions(result="failed"), [30, 40, 50]),
        (RecordConditions(reason="no room"), [30, 40, 50]),
        (RecordConditions(kind="decision", result="active"), []),
        (RecordConditions(kind="nothing", result="failed"), []),
        (RecordConditions(kind="build", reason="nothing"), []),
        (RecordConditions(names=frozenset({"i-10"})), [10]),
        (RecordConditions(names=frozenset({"i-30", "i-40", "i-60"})), [30, 40]),
        (RecordConditions(kind="build", names=frozenset({"i-30", "i-40"})), [30]),
        (RecordConditions(since_s=30.0), [30, 40, 50]),
        (RecordConditions(until_s=30.0), [10, 20, 30]),
        (RecordConditions(kind="build", since_s=20.0, until_s=40.0), [30]),
    ],
)
def test_lines_that_meet_all_conditions_are_found_in_order(
    tmp_path: Path, wanted: RecordConditions, found: list[int]
) -> None:
    index = LineIndex(tmp_path, 7)
    index.add([entry(40, "decision", "failed"), entry(50, "build", "failed")], 60)  # by a writer that was late
    index.add([entry(10, "build", "active"), entry(20, "decision", "placed"), entry(30, "build", "failed")], 60)
    index.add([entry(30, "build", "failed")], 60)  # by one that did it again

    assert list(index.offsets(wanted)) == found


def test_reasons_that_a_full_disk_takes_in_part_do_not_count_as_indexed(tmp_path: Path) -> None:
    """The last block of their file may be full while those of the others have room."""
    # given a disk that takes only the first bytes of the reasons
    index = LineIndex(tmp_path, 7)
    with files_of(400), pytest.raises(OSError):
        index.add([(0, {"at": 1.0, "reason": f"no room{' on a host' * 60}"})], 60)
    assert index.covered() == 0
    # when there is room, and the next writer indexes them again
    index.add([(0, {"at": 1.0, "reason": "no room"})], 60)
    # then they are found
    assert list(index.offsets(RecordConditions(reason="no room"))) == [0]


@contextmanager
def files_of(size_max: int) -> Iterator[None]:
    """No file of this process may be larger: a write takes what has room, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_max, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_an_index_without_times_covers_nothing(tmp_path: Path) -> None:
    index = LineIndex(tmp_path, 7)
    index.add([entry(10, "build", "active")], 20)
    assert index.covered() == 20

    (tmp_path / "7.times").unlink()

    assert index.covered() == 0


def test_what_only_one_part_of_an_index_has_is_indexed_again(tmp_path: Path) -> None:
    # given a writer that was killed after it had added the times, and before it had added the marks
    index = LineIndex(tmp_path, 7)
    index.add([entry(10, "build", "active")], 20)
    marks = (tmp_path / "7.marks").read_bytes()
    index.add([entry(20, "build", "active")], 30)
    (tmp_path / "7.marks").write_bytes(marks)
    assert index.covered() == 20

    index.add([entry(20, "build", "active")], 30)

    assert index.covered() == 30
    assert list(index.offsets(RecordConditions(since_s=0.0))) == [10, 20]
